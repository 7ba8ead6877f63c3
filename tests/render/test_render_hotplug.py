"""CPUs that are offline for now stand at their places; those that somebody has are told apart, also without colour."""

from __future__ import annotations

import re

from tests.render.pictured import terminal_text

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.compact import parse_compact
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.svg.picture import svg_text
from mooring.views.view import CPUUse, NodeView
from mooring.views.wording import MARKS, cpu_mark, cpu_sentence


def view(offline: str = "2,6") -> NodeView:
    """Return a machine with 8 CPUs, of which an owner has 1 to 3."""
    cpus = CPUSet.parse
    pools = Pools(cpus("0"), cpus("0,4-7"), cpus("4-5,7"), cpus(offline))
    return build_view(
        parse_compact("cores=8 threads=1"), owners=[CPUOwner("ns/pod/app", "1", cpus("1-3"))], pools=pools
    )


def test_broken_and_offline_are_two_uses_with_signs_of_their_own() -> None:
    found = view()
    uses = {cpu.cpu: cpu.use for cpu in found.cpus()}
    assert (uses[2], uses[6]) == (CPUUse.BROKEN, CPUUse.OFFLINE)
    marks = {cpu.cpu: cpu_mark(cpu, found) for cpu in found.cpus()}
    assert len({marks[cpu] for cpu in (0, 1, 2, 4, 6)}) == 5
    assert len(set(MARKS.values())) == len(MARKS)
    two = next(cpu for cpu in found.cpus() if cpu.cpu == 2)
    assert cpu_sentence(two, found).startswith("CPU 2 · offline, but held by ns/pod/app · core of CPU 2")
    assert [cpu.cpu for cpu in found.cpus()] == list(range(8))


def test_both_pictures_have_them_in_map_and_legend() -> None:
    text = terminal_text(view())
    assert "2†" in text
    assert "offline; its owner does without it" in " ".join(text.split())
    svg = svg_text(view())
    classes = {name for found in re.findall(r'class="([^"]*)"', svg) for name in found.split()}
    assert {"broken", "offline"} <= classes
    assert "url(#mooring-crosses)" in svg
    assert 'id="mooring-crosses"' in svg


def test_a_cpu_of_two_pods_stays_contested() -> None:
    cpus = CPUSet.parse
    owners = [CPUOwner("a", "1", cpus("1-2")), CPUOwner("b", "2", cpus("2"))]
    found = build_view(parse_compact("cores=4 threads=1"), owners=owners, pools=Pools(offline=cpus("2")))
    assert next(cpu.use for cpu in found.cpus() if cpu.cpu == 2) is CPUUse.CONTESTED


def test_nothing_is_drawn_otherwise_where_all_is_online() -> None:
    text = terminal_text(view(""))
    assert "†" not in text
    assert "offline" not in text
