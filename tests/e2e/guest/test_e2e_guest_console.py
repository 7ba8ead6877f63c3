from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.e2e.guest.boot import command, read_results
from tests.e2e.guest.inside import steps


def test_results_are_read_between_the_kernel_s_own_lines() -> None:
    console = (
        "[    1.0] booting\n"
        'MOORING-STEP {"step": "a", "ok": true}\n'
        '[    2.0] noise MOORING-STEP {"step": "b", "ok": false}\n'
        'MOORING-STEP {"step": "c", "o\n'
    )
    assert {name: result["ok"] for name, result in read_results(console)} == {"a": True, "b": False}


def test_the_guest_has_64_cpus_on_8_nodes_at_two_distances() -> None:
    words = command(SimpleNamespace(qemu="qemu", kernel=Path("vmlinuz")), Path("initrd"))
    nodes = [word for word in words if word.startswith("node,")]
    assert nodes[0] == "node,nodeid=0,cpus=0-7,memdev=m0"
    assert nodes[7] == "node,nodeid=7,cpus=56-63,memdev=m7"
    assert {word.rpartition("=")[2] for word in words if word.startswith("dist,")} == {"12", "32"}


def test_steps_keep_the_order_of_the_file() -> None:
    assert next(iter(steps())) == "the_kernel_is_found_as_it_is"
