"""Every recorded start that kubelet v1.37.1 refused: the doctor names its cause, and starts on its own repair.

What the cause is comes from the kubelet's message, and for the memory manager from the note in which the recording says
how the file was damaged; neither knows anything of the doctor.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from functools import lru_cache

import pytest
from tests.explain.refused_starts import RecordedStart, recorded_starts
from tests.planner.recordings import CORPORA, some

from mooring.answers.base.answering import RESTART
from mooring.answers.doctor.diagnosis import Diagnosis, diagnose, with_repairs
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet

RECORDINGS = {"state-files.jsonl.gz": 363, "admission-lifecycle-restart.jsonl.gz": 199}
"""File -> refused starts."""
PARTS = 3
NOTHING = ("", "null", "[]")
"""The only texts among the recordings that say nothing, so that deletion is all that is left."""

CAUSES = (
    (r"configured policy .* differs from state checkpoint policy", {"MOOR-305"}),
    (r"checkpoint is corrupted", {"MOOR-303"}),
    (r"checkpoint data: unexpected end of JSON input", {"MOOR-301", "MOOR-302"}),
    (r"unexpected end of JSON input|invalid character", {"MOOR-301"}),
    (r"unmarshal string into Go struct field CPUManagerCheckpointV2.entries of type map", {"MOOR-304"}),
    (r"json: cannot unmarshal", {"MOOR-302"}),
    (r"could not parse (default CPU set|cpuset)", {"MOOR-306"}),
    (r"default cpuset cannot be empty", {"MOOR-310"}),
    (r"overlaps with default cpuset", {"MOOR-311"}),
    (r"not all reserved cpus", {"MOOR-313", "MOOR-315"}),
    (r"some of strictly reserved cpus", {"MOOR-314"}),
    (r"current set of available CPUs", {"MOOR-313", "MOOR-316", "MOOR-317"}),
    (r"the expected machine state is different", {"MOOR-330", "MOOR-331", "MOOR-332", "MOOR-333", "MOOR-335"}),
    (r"machine state can not be empty", {"MOOR-334"}),
    (r"the memory assignment uses", {"MOOR-336"}),
    (r"not a subset of online-cpus|references a NUMA node", {"MOOR-350"}),
)
"""The kubelet's words -> codes of which one must be among the errors."""

DAMAGE = {
    "alloc": {"MOOR-332"},
    "assign": {"MOOR-335"},
    "blocksize": {"MOOR-335"},
    "cells": {"MOOR-335"},
    "freeres": {"MOOR-335"},
    "sysres": {"MOOR-333"},
    "total": {"MOOR-332"},
    "nodegone": {"MOOR-330", "MOOR-334"},
    "nonode": {"MOOR-336"},
    "emptyms": {"MOOR-334"},
}
"""How the recording damaged a memory state file that the kubelet read and refused -> the code for just that."""


@lru_cache(maxsize=2)
def refused(name: str) -> tuple[RecordedStart, ...]:
    return tuple(start for start in recorded_starts(name) if start.error)


@lru_cache(maxsize=1)
def notes() -> dict[str, str]:
    with gzip.open(CORPORA / "state-files.jsonl.gz", "rt", encoding="utf-8") as file:
        return {line["id"]: line.get("note", "") for line in map(json.loads, file)}


def errors(diagnosis: Diagnosis) -> set[str]:
    return {problem.code for problem in diagnosis.all_problems if problem.severity == "error"}


def wanted(message: str) -> set[str]:
    """Return the codes one of which is the cause; of a difference of CPU sets exactly what the two sets say."""
    sets = re.search(r'available CPUs "([^"]*)" doesn\'t match with CPUs in state "([^"]*)"', message)
    if sets:
        machine, state = (CPUSet.parse(text) for text in sets.groups())
        return {"MOOR-317"} if machine - state else {"MOOR-313", "MOOR-316"}
    return next(codes for pattern, codes in CAUSES if re.search(pattern, message))


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_refused_start_has_its_cause_and_a_repair_that_starts(name: str, part: int) -> None:
    found = refused(name)
    assert len(found) == RECORDINGS[name]
    for start in some(found[part::PARTS]):
        question = replace(start.question, active=())
        diagnosis = diagnose(question)
        assert diagnosis.refusal is not None
        assert diagnosis.refusal.message == start.error, start.id
        codes = errors(diagnosis)
        assert codes & wanted(start.error), (start.id, codes, start.error)
        assert "MOOR-351" not in codes, start.id
        if start.stage != "start":
            assert diagnosis.is_blocked
            assert not diagnosis.repairs
            continue
        assert diagnosis.repairs, start.id
        for repair in diagnosis.repairs:
            text = question.files.cpu if repair.file.startswith("cpu") else question.files.memory
            assert (repair.text is None) == (text in NOTHING), (start.id, text)
        files = with_repairs(question.files, diagnosis.repairs)
        assert refusal_of(start_kubelet(question.machine.info, question.config, question.mooring, files)) is None, (
            start.id
        )


@pytest.mark.corpus
def test_damage_that_the_recording_describes_is_what_is_named() -> None:
    seen = set()
    for start in refused("state-files.jsonl.gz"):
        damage = dict(word.split(":", 1) for word in notes()[start.id].split()).get("memory", "")
        if "start memory manager error: [memorymanager]" not in start.error or damage not in DAMAGE:
            continue
        codes = errors(diagnose(replace(start.question, active=())))
        assert codes & DAMAGE[damage], (start.id, damage, codes)
        seen.add(damage)
    assert seen == set(DAMAGE)


@pytest.mark.corpus
def test_a_repaired_node_is_sound() -> None:
    for start in refused("state-files.jsonl.gz")[::16] + refused("admission-lifecycle-restart.jsonl.gz")[::16]:
        diagnosis = diagnose(start.question)
        again = diagnose(replace(start.question, files=with_repairs(start.question.files, diagnosis.repairs)))
        # No file keeps the kubelet from moving pods at a later start, which it names as an error too.
        assert diagnosis.is_blocked or (errors(again) <= {RESTART} and not again.repairs), (start.id, errors(again))


@pytest.mark.corpus
def test_files_on_which_the_kubelet_started_have_no_error_that_it_looks_for() -> None:
    looks_for = {code for _, codes in CAUSES for code in codes} - {"MOOR-311", "MOOR-313"}
    started = [start for start in recorded_starts("state-files.jsonl.gz") if not start.error]
    for start in started[::4]:
        diagnosis = diagnose(replace(start.question, active=()))
        assert diagnosis.refusal is None
        assert not errors(diagnosis) & looks_for, start.id
        assert not any(file.kubelet for file in diagnosis.files)


def test_a_start_without_files_is_sound() -> None:
    question = replace(refused("state-files.jsonl.gz")[0].question, files=StateTexts(), active=())
    diagnosis = diagnose(question)
    assert diagnosis.is_sound
    assert [file.format for file in diagnosis.files] == ["", ""]
