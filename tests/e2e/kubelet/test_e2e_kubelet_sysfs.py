"""The files of a machine say what Mooring says of it; without that the comparison with a kubelet would mean nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.kubelet.sysfs import write_machine

from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.machines.loader import SHIPPED, load_machine


@pytest.mark.parametrize("name", SHIPPED)
def test_a_machine_that_was_written_is_read_as_the_same_machine(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    write_machine(tmp_path, machine)
    read = load_machine(str(tmp_path))
    assert read.info_error == ""
    assert decisive(read.info) == decisive(machine.info)


def decisive(info: MachineInfo) -> MachineInfo:
    """Return what the managers read of a machine; written machines have empty pools, so that there is a folder."""
    nodes = tuple(replace(node, hugepages=()) for node in info.topology)
    described = {"vendor_id": "", "cpu_frequency_khz": 0, "num_physical_cores": 0}
    return replace(info, topology=nodes, hugepages=(), **described)  # type: ignore[arg-type]
