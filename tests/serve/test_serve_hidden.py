"""What people may not see: names of pods in namespaces whose pods they may not list, wherever texts could have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.serve.clusters import CONFIG, MACHINE, pod
from tests.serve.site import node_site, recording
from tests.serve.test_serve_node import TokenGuard

from mooring.answers.base.plan import Question
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.monitoring.serve.recording import Recorded, Recording
from mooring.monitoring.serve.snapshot import ANY, NodeSnapshot, snapshot_of, snapshot_of_status

STRICT = {"strict-cpu-reservation": "true"}
NONE = replace(CONFIG, topology_manager_policy="none", cpu_manager_policy_options=STRICT)
HOTPLUG = MooringConfig(extensions=frozenset({CPU_HOTPLUG}))


def asked(*pods: Pod, config: KubeletConfig = CONFIG, **fields: Any) -> Question:
    return Question(MACHINE, config, fields.pop("mooring", MooringConfig()), pods, **fields)


def seen(snapshot: NodeSnapshot) -> NodeSnapshot:
    """Return what a person sees who may list the pods of team-a only."""
    return snapshot.seen_by(lambda namespace: namespace == "team-a")


def test_a_refused_pod_is_explained_without_the_pods_in_its_way() -> None:
    pods = pod("ledger-db", 24, "secret"), pod("ledger-web", 20, "secret"), pod("mine", 14)
    with node_site(recording(asked(*pods)), TokenGuard(), loopback=False) as site:
        address = f"/pod?uid={pods[2].uid}"
        everything = site.ask(address, Authorization="Bearer all").text
        assert "Nearest change" in everything
        assert "<svg" in everything
        both = site.ask(address, Authorization="Bearer team-a,secret").text
        assert both == everything
        some = site.ask(address, Authorization="Bearer team-a").text
        assert "MOOR-103" in some
        assert not any(one in some for one in ("Nearest change", "<svg", "ledger", "secret"))


def test_without_a_token_no_moment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, read = recording(), list[int]()
    at = recorded.at

    def counted(number: int) -> Recorded:
        read.append(number)
        return at(number)

    monkeypatch.setattr(recorded, "at", counted)
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        assert site.ask("/body?number=7").status == 401
        assert read == []
        assert site.ask("/body?number=7", Authorization="Bearer core").status == 200
        assert set(read) == {7}


@pytest.mark.parametrize(
    ("question", "namespace"),
    [
        (asked(pod("mine", 62), pod("ledger", 1, "secret"), config=NONE), "secret"),
        (
            asked(active=(pod("mine", 8), pod("ledger", 8, "secret")), mooring=HOTPLUG, offline=CPUSet.parse("5-6")),
            "secret",
        ),
        (
            asked(findings=(Finding("info", "secret/ledger", "the pod has failed and is left out"),)),
            "secret",
        ),
        (asked(findings=(Finding("warning", "claim secret/ledger (cpus)", "is offline"),)), "secret"),
        (asked(findings=(Finding("warning", "plugin order", "failed at order: secret/ledger"),)), ANY),
        (asked(findings=(Finding("warning", "state files", "hold entries of 1 pod (secret_ledger)"),)), ANY),
        (
            asked(
                pod("mine", 1),
                pod("ledger", 1, "secret"),
                findings=(Finding("warning", "team-a/mine", "gets CPUs 3, which secret/ledger has too"),),
            ),
            ANY,
        ),
    ],
    ids=["shared pool", "offline", "finished pod", "claim", "plugin", "state files", "two pods"],
)
def test_a_finding_about_a_pod_is_for_people_who_may_list_it(question: Question, namespace: str) -> None:
    snapshot = snapshot_of(question)
    assert namespace in {one.namespace for one in snapshot.notices if "ledger" in one.text}
    assert all(one.namespace in ("", "team-a", namespace) for one in snapshot.notices)
    assert not any("secret" in one.text for one in seen(snapshot).notices)
    assert snapshot.seen_by(lambda _namespace: True) is snapshot
    assert ANY not in snapshot.namespaces


def test_a_finding_about_no_pod_is_for_all_people() -> None:
    about = ("nvidia.com/gpu", "NUMA node 1", "shared pool", "memory_manager_state")
    findings = tuple(Finding("warning", one, "is unusual") for one in about)
    shown = seen(snapshot_of(asked(pod("mine", 1), pod("ledger", 1, "secret"), findings=findings)))
    assert {f"{one}: is unusual" for one in about} <= {one.text for one in shown.notices}


def test_why_a_kubelet_would_not_start_is_for_people_who_may_list_all_pods() -> None:
    snapshot = snapshot_of(asked(pod("mine", 1), files=StateTexts(cpu="{")))
    refusal = snapshot.notices[0]
    assert refusal.text.startswith("The kubelet would not start: ")
    shown = seen(snapshot)
    assert shown.notices[0].text == "The kubelet would not start"
    assert shown.notices[0].warning
    assert refusal.text not in repr(shown.view)


def test_the_reasons_of_an_agent_are_for_people_who_may_list_all_pods() -> None:
    document = {
        "pods": [],
        "held": [],
        "reasons": ["container starts are refused (1), the newest because secret/ledger holds CPU 3"],
        "configuration": {"refusal": "secret/ledger holds CPU 3"},
        "cpus": {"overlap": ""},
        "counts": {"repairs": 0},
    }
    snapshot = snapshot_of_status(snapshot_of(asked()).view, document)
    assert sum("secret/ledger" in one.text for one in snapshot.notices) == 2
    texts = [one.text for one in seen(snapshot).notices]
    assert texts == ["Not ready", "The configuration as it is now is not in force"]


def test_the_headline_that_can_name_pods_is_for_people_who_may_list_them() -> None:
    snapshot = recording(asked(pod("ledger-db", 24, "secret"), pod("mine", 2))).now.snapshot
    crashing = replace(snapshot, view=replace(snapshot.view, headline="The kubelet would crash on secret/ledger-db."))
    assert crashing.seen_by(lambda _namespace: True).view.headline
    assert not seen(crashing).view.headline


def test_a_refused_pod_keeps_the_time_at_which_it_was_first_seen() -> None:
    times = iter(range(100, 200))
    pods = pod("fits", 2), pod("large", 60)
    recorded = Recording(snapshot_of(asked(*pods)), lambda: float(next(times)))
    first = {one.name: one.since for one in recorded.now.snapshot.pods}
    recorded.take(snapshot_of(asked(*pods, pod("huge", 61))))
    then = {one.name: one.since for one in recorded.now.snapshot.pods}
    assert (first["fits"], then["fits"]) == (0, 0)
    assert first["large"] == then["large"] == 100
    assert then["huge"] == 101
