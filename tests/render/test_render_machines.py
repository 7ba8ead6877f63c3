"""Real machines: every recorded computer can be drawn, from both of its descriptions."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from tests.planner.recordings import some
from tests.render.pictured import terminal_text
from tests.render.sample_machines import occupied

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import load_machine
from mooring.views.svg.picture import svg_text

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/*.tar.gz"))[::2] or ["none"]


def recorded(name: str) -> Machine:
    archive = MACHINES / name / f"{name}.tar.gz"
    if not archive.exists():
        pytest.skip("the recorded machines lie beside the repository, in ../shared/machines, and are not there")
    try:
        return load_machine(str(archive))
    except InputError as error:
        pytest.skip(f"not a machine: {error}")


@pytest.mark.corpus
@pytest.mark.parametrize("name", some(NAMES, 3))
def test_a_recorded_machine_is_drawn_whole_from_hardware_and_from_the_kubelets_view(name: str) -> None:
    machine = recorded(name)
    for description in (machine, replace(machine, hardware=None)):
        view = occupied(description)
        if description.hardware is not None:
            online = {cpu.cpu for box in view.boxes if not box.is_offline() for cpu in box.cpus()}
            assert online == set(description.hardware.online)
            assert {node.id for node in view.numa} >= {node.id for node in description.hardware.nodes}
        assert len({cpu.cpu for cpu in view.cpus()}) == len(list(view.cpus()))
        assert max(len(line) for line in terminal_text(view, 100).splitlines()) <= 100
        ET.fromstring(svg_text(view))  # noqa: S314 - our own text, and being well-formed is what is tested
