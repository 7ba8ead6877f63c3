"""Texts for people, as agreed.

The golden files are written anew by ``MOORING_GOLDEN=write pytest tests/cli/test_cli_golden.py``; look at the
difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.command import AI, EXAMPLES, NODE, PODS, ROOT, SMALL, mooring

GOLDEN = Path(__file__).parent / "golden"
MEMORY = (*NODE[:2], "--config", str(GOLDEN / "memory.yaml"))
RESIZING = (*NODE[:2], "--config", str(EXAMPLES / "resizing-kubelet.yaml"))
TEXTS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "plan-60": (("plan", *PODS, *NODE), 60, 1),
    "plan-80": (("plan", *PODS, *NODE), 80, 1),
    "plan-200": (("plan", *PODS, *NODE), 200, 1),
    "plan-wide": (("plan", *PODS, *NODE, "-o", "wide"), 80, 1),
    "plan-none": (("plan", *PODS, *SMALL), 80, 1),
    "plan-refused": (("plan", *PODS, *NODE[:2], "--config", str(GOLDEN / "refused.yaml")), 80, 1),
    "plan-memory": (("plan", "-f", str(GOLDEN / "memory-pods.yaml"), *MEMORY), 100, 1),
    "plan-crash": (("plan", "-f", str(GOLDEN / "crash-pods.yaml"), *MEMORY), 80, 1),
    "show-100": (("show", *PODS, *NODE), 100, 1),
    "show-refused": (("show", *PODS, *SMALL, "--config", str(GOLDEN / "refused.yaml")), 80, 1),
    "topology-80": (("topology", "--machine", "xeonmax-9460-2s-snc4-flat"), 80, 0),
    "topology-60": (("topology", "--machine", "i7-1370p"), 60, 0),
    "topology-numa": (("topology", "--machine", "epyc-7763-2s-nps4"), 60, 0),
    "replay": (("replay", str(GOLDEN / "scenario.yaml")), 100, 0),
    "resize-80": (("resize", "core/upf-0/forwarder", "--cpu", "20", *PODS, *RESIZING), 80, 0),
    "resize-wide": (("resize", "core/upf-0/forwarder", "--cpu", "22", *PODS, *RESIZING, "-o", "wide"), 120, 0),
    "resize-refused": (("resize", "core/upf-0/forwarder", "--cpu", "40", *PODS, *RESIZING), 60, 1),
    "explain-60": (("explain", "hpc/solver", *PODS, *NODE), 60, 1),
    "explain-80": (("explain", *PODS, *NODE), 80, 1),
    "explain-wordy": (("explain", "upf-0/forwarder", *PODS, *NODE, "-v"), 120, 0),
    "explain-devices": (("explain", "finetune", *AI, "-v"), 100, 1),
    "explain-partition": (("explain", "gateway", *AI), 100, 0),
    "explain-shared": (("explain", "logs", *PODS, *NODE), 80, 0),
    "explain-refused": (
        ("explain", "solver", *PODS, *NODE[:2], "--config", str(GOLDEN / "refused.yaml"), "--nearest", "0"),
        80,
        1,
    ),
    "explain-code": (("explain", "MOOR-103"), 80, 0),
    "help-explain": (("explain", "--help"), 100, 0),
    "help": (("--help",), 100, 0),
    "help-plan": (("plan", "--help"), 100, 0),
}
"""Name -> command, columns, exit code."""


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_agreed_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, columns, code = TEXTS[name]
    # Printed commands repeat the paths as they were typed.
    monkeypatch.chdir(ROOT)
    answered = mooring(*(word.removeprefix(f"{ROOT}/") for word in command), columns=columns)
    file = GOLDEN / f"{name}.txt"
    told = answered.out + "".join(f"[standard error] {line}\n" for line in answered.err.splitlines())
    if os.environ.get("MOORING_GOLDEN") == "write":
        file.write_text(told, "utf-8")
    assert told == file.read_text("utf-8")
    assert answered.code == code


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("verb", ["plan", "show", "topology"])
def test_no_line_is_wider_than_the_terminal(verb: str, columns: int) -> None:
    command = ("topology", *NODE[:2]) if verb == "topology" else (verb, *PODS, *NODE)
    lines = mooring(*command, columns=columns).out.splitlines()
    # The figures of the NUMA nodes need their columns.
    least = 60 if verb == "topology" else 50
    assert max(cell_len(line) for line in lines) <= max(columns, least)


def test_a_file_has_room_whatever_the_terminal(tmp_path: Path) -> None:
    assert mooring("plan", *PODS, *NODE, "--to", tmp_path / "plan.txt", columns=40).out == ""
    assert (tmp_path / "plan.txt").read_text("utf-8") == mooring("plan", *PODS, *NODE, columns=100).out
