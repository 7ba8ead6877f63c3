"""CPUs that go back when a delay is over have marks of their own."""

from __future__ import annotations

import pytest
from tests.render.pictured import terminal_text

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.compact import parse_compact
from mooring.views.build import CPUOwner, build_view
from mooring.views.view import NodeView
from mooring.views.wording import cpu_mark, cpu_sentence, owner_marks


def view(owners: int, leaving: CPUSet) -> NodeView:
    """Return a machine on which each owner has one CPU, and the first also the last CPUs."""
    machine = parse_compact("cores=64 threads=1")
    first = CPUOwner("ns/pod0/app", "0", CPUSet.parse("0,60-63"), leaving=leaving)
    others = [CPUOwner(f"ns/pod{number}/app", str(number), CPUSet.from_ids([number])) for number in range(1, owners)]
    return build_view(machine, owners=[first, *others])


@pytest.mark.parametrize("owners", [2, 26, 50])
def test_marks_of_leaving_cpus_are_nobody_elses(owners: int) -> None:
    found = view(owners, CPUSet.parse("62-63"))
    marks = {cpu.cpu: cpu_mark(cpu, found) for cpu in found.cpus() if cpu.owner is not None}
    assert marks[62] == marks[63] == marks[0].upper() != marks[0]
    assert len(set(marks.values())) == owners + 1
    assert "released when the delay is over" in next(cpu_sentence(cpu, found) for cpu in found.cpus() if cpu.leaving)
    assert "CPUs with capital letters are released" in terminal_text(found)


def test_nothing_changes_where_nothing_leaves() -> None:
    found = view(30, CPUSet())
    assert [owner.mark for owner in found.owners] == list(owner_marks(30))
    assert "capital" not in terminal_text(found)
