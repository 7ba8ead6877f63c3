"""The commands that capture a node give the machine that the node is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mooring.inputs.machines.loader import load_machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "ask-what-a-node-will-do.md"
MOST_LOOKS = 20


@pytest.mark.skipif(not Path("/sys/devices/system/cpu").is_dir(), reason="this computer has no sysfs to capture")
def test_the_documented_capture_of_this_computer_is_this_computer(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"^## Capture the machine$.*?^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    live: list[object] = []
    # The memory of a virtual machine may change at any moment: what counts is a capture between two equal looks.
    while len(live) < 2 or live[-1] != live[-2]:
        assert len(live) < MOST_LOOKS, "this computer changes all the time"
        live.append(described("live"))
        subprocess.run(block[1], shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the page's own commands
        live.append(described("live"))
    assert described(str(tmp_path / "node.tar.gz")) == live[-1]


def described(machine: str) -> object:
    found = load_machine(machine)
    return found.info.topology, found.info.memory_capacity, found.hardware
