"""A trace with resizes can be compared: they are left out, and that is said."""

from __future__ import annotations

from mooring.manifest.scenario import Admit, Remove, Restart, scenario
from mooring.planner.compare.trace import trace_of_scenario


def test_resizes_and_time_are_left_out_of_a_compared_trace() -> None:
    pod = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "c"}]}}
    steps = [
        {"admit": pod},
        {"resize": {"uid": "a", "containers": {}}},
        {"advance": "1s"},
        {"reboot": True},
        {"remove": "a"},
    ]
    trace, findings = trace_of_scenario(scenario({"steps": steps}, source="x"))
    assert [type(step) for step in trace.steps] == [Admit, Restart, Remove]
    assert [finding.code for finding in findings] == ["MOOR-723"]
