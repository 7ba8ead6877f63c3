"""What must hold on a node of a world that has come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tests.agent.laws_agent import differences, overlaps
from tests.world.node import Node, Wire

from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.status import unready
from mooring.agent.store import DAMAGED_FILE, JOURNAL_FILE, LOCK_FILE, Store
from mooring.engine.core.bits import list_text
from mooring.engine.node.hotplug import known_cpus
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE

DISK = ("create", "full", "torn", "sync")
_KEPT = {LOCK_FILE, JOURNAL_FILE, DAMAGED_FILE, CPU_FILE, MEMORY_FILE, "machine.json"}


def problems(node: Node, kind: str) -> Iterator[str]:
    agent = node.agent
    if agent is None or node.program is None:
        yield "no agent runs, and none can be started"
        return
    if not isinstance(node.runtime.plugin, Wire):
        yield f"the agent is not connected: {[*node.log.lines][-3:]}"
        return
    state = agent.holder.state
    yield from (one for one in unready(agent.snapshot) if not one.startswith("container starts are refused"))
    yield from overlaps(node.runtime, state, node.kernel.online)
    yield from differences(node.runtime, cast("Any", SimpleNamespace(state=state)), node.kernel.online)
    yield from (f"{one} is known and is not there" for one in state.sandboxes if one not in node.runtime.sandboxes)
    cpu = state.kubelet.node.cpu
    if cpu.offline != (gone := known_cpus(state.kubelet.node) & ~node.kernel.online) and node.kind == "hotplug":
        yield f"CPUs {list_text(cpu.offline)} count as offline, and those that are: {list_text(gone)}"
    if any(cpu.pre_assignments.values()):
        yield f"releases are pending, long after their delay: {cpu.pre_assignments}"
    yield from _unkept(node, kind)
    found = Store(node.disk.folder).read()
    if found.texts != state.kubelet.files:
        yield "the journal is not what the state is"
    if found.pods.keys() != state.kubelet.node.active.keys() and not state.remembered:
        yield f"the journal has pods {[*found.pods]}, the state {[*state.kubelet.node.active]}"
    text = state.kubelet.files.cpu
    file = node.disk.folder / CPU_FILE
    if text is not None and (not file.exists() or file.read_text() != text):
        yield "the state file is not what the journal says"
    left = {one.name for one in node.disk.folder.iterdir()} - _KEPT
    if left and not any("cannot be locked" in line for line in node.log.lines):
        yield f"left in the state folder: {sorted(left)}"
    told = node.root / "assigned/mooring"
    # A container whose making was given up while nobody listened is known until its pod ends.
    known = node.runtime.processes.keys() | state.containers.keys()
    if node.kind != "plain" and told.is_dir() and (more := {one.name for one in told.iterdir()} - known):
        yield f"left of assigned files: {sorted(more)}"
    yield from _leaks(node)


def _unkept(node: Node, kind: str) -> Iterator[str]:
    """Yield exclusive containers that run elsewhere than was answered, where nothing was lost."""
    if kind != "plain" or any(one.partition(":")[0] in DISK for one in node.faults.happened):
        return
    assert node.agent is not None
    wanted = DesiredSettings.by(node.agent.holder.state.kubelet)
    for one in node.running():
        uid, promised = node.runtime.sandboxes[one.sandbox].uid, node.promised.get(one.id)
        if promised and wanted.is_exclusive(uid, one.name) and one.cgroup.cpus != promised:
            yield f"{uid}/{one.name} was given {promised} and has {one.cgroup.cpus}"


def _leaks(node: Node) -> Iterator[str]:
    program = node.program
    assert program is not None
    names = Counter(one.name for one in program.alive)
    if more := [name for name, count in names.items() if count > 1]:
        yield f"threads more than once: {more}"
    held = node.files.open_of(program)
    if len(held) > 2:
        yield f"files left open: {held}"
