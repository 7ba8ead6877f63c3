"""Any states of the managers, with names that need escaping."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.planner.doctor_nodes import CONFIG, MACHINE

from mooring import Machine
from mooring.answers.base.plan import Question
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState

STRICTLY = " "
"""Behind a text: no kubelet writes it, so that Go's rules alone read the file, to the same end."""


def format_of(text: str) -> str:
    """Return what the doctor calls the format of a state file."""
    [file] = [
        one for one in diagnose(Question(Machine("small", MACHINE), CONFIG, files=StateTexts(text))).files if one.exists
    ]
    return file.format


names = st.one_of(
    st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.text('<>&"\\ \n\x00\x7fé\u2028😀:[]{}', max_size=4)
)
cpu_masks = st.integers(0, 2**70 - 1)
containers = st.dictionaries(names, cpu_masks, max_size=3)
cpu_states = st.builds(
    CPUState,
    st.sampled_from(["none", "static"]) | names,
    cpu_masks,
    st.dictionaries(names, containers, max_size=3),
    st.dictionaries(names, cpu_masks, max_size=3),
    st.dictionaries(names, containers, min_size=1, max_size=3),
)

sizes = st.integers(0, 2**64 - 1)
numa = st.lists(st.integers(0, 70), max_size=3).map(tuple)
blocks = st.lists(st.builds(Block, numa, names, sizes), max_size=3).map(tuple)
tables = st.builds(MemoryTable, sizes, sizes, sizes, sizes, sizes)
nodes = st.builds(NUMANodeState, st.integers(-1, 9), st.dictionaries(names, tables, max_size=2), numa)
memory_states = st.builds(
    MemoryState,
    st.sampled_from(["None", "Static"]) | names,
    st.dictionaries(st.integers(0, 70), nodes, max_size=3),
    st.dictionaries(names, st.dictionaries(names, blocks, max_size=2), max_size=3),
    st.dictionaries(names, blocks, max_size=3),
)
