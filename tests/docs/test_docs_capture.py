"""The commands that capture a node give the machine that the node is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mooring.discovery.loader import load_machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "ask-what-a-node-will-do.md"


@pytest.mark.skipif(not Path("/sys/devices/system/cpu").is_dir(), reason="this computer has no sysfs to capture")
def test_the_documented_capture_of_this_computer_is_this_computer(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"^## Capture the machine$.*?^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    subprocess.run(block[1], shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the page's own commands
    captured, live = load_machine(str(tmp_path / "node.tar.gz")), load_machine("live")
    assert captured.info.topology == live.info.topology
    assert captured.info.memory_capacity == live.info.memory_capacity
    assert captured.hardware == live.hardware
