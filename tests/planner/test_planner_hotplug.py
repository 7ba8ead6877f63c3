"""CPUs that come and go in scenarios, plans, explanations and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.small_node import CONFIG as CONFIG_MIXED
from tests.agent.small_node import INFO, guaranteed
from tests.cli.command import EXAMPLES, SMALL, Answered, mooring
from tests.cli.given import ALIGNED, given, pod, written
from tests.plans import started_plan

from mooring import CPUSet, Machine, Pod
from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.plan_document import plan_document
from mooring.answers.base.pods import explain
from mooring.answers.base.report import settings_facts
from mooring.answers.base.rows import mixed_lines, plan_rows
from mooring.answers.base.scenario import replay_scenario
from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.config import CPU_HOTPLUG, MIXED_CPUS, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.node.providers import ANNOTATION
from mooring.explanations.lines import story_lines
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import scenario

MACHINE = "sockets=2 cores=16 threads=1"
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
HOTPLUG = {"extensions": ["cpu-hotplug"]}


def admit(uid: str, cpu: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}]}
    return {"admit": {"metadata": {"uid": uid, "name": uid}, "spec": spec}}


def steps(*taken: dict[str, Any], mooring: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    story = {"id": "story", "machine": "m", "kubelet": STATIC, "steps": list(taken)}
    story["mooring"] = HOTPLUG if mooring is None else mooring
    answer = replay_scenario(scenario(story, source="test"), {"m": parse_compact(MACHINE).info})
    found: list[dict[str, Any]] = answer["expect"]["steps"]
    return found


def test_a_step_tells_what_was_broken_and_what_is_restored() -> None:
    _, lost, back = steps(admit("a", "3"), {"offline": "2"}, {"online": "2"})
    assert (lost["offline"], lost["usablePool"]) == ("2", "0,5-15")
    assert lost["displaced"] == {"a": {"app": {"cpus": "1,3-4", "original": "1-3"}}}
    assert [one["code"] for one in lost["findings"]] == ["MOOR-522"]
    assert '"defaultCpuSet":"0,2,5-15"' in lost["cpuManagerState"]
    assert back["restored"] == {"a": {"app": {"cpus": "1-3", "before": "1,3-4"}}}
    assert (back["offline"], back["displaced"], back["broken"], back["findings"]) == ("", {}, {}, [])


def test_a_pod_that_leaves_makes_room_for_stand_ins() -> None:
    found = steps(admit("a", "7"), admit("b", "8"), {"offline": "1"}, {"remove": "b"})
    assert found[2]["refused"] == {"a": {"app": "1 needed, 0 free on NUMA node 0"}}
    assert "displaced" in found[3]
    far = {"extensions": ["cpu-hotplug"], "cpuHotplug": {"replace": "anywhere"}}
    found = steps(admit("a", "7"), admit("b", "8"), {"offline": "1"}, {"remove": "b"}, mooring=far)
    assert found[3]["displaced"] == {"a": {"app": {"cpus": "2-8", "original": "1-7"}}}


def test_a_reboot_begins_with_all_cpus_and_a_restart_does_not() -> None:
    found = steps(admit("a", "3"), {"offline": "2,9"}, {"restart": True}, {"reboot": True})
    assert (found[2]["offline"], found[2]["displaced"]) == ("2,9", found[1]["displaced"])
    assert "offline" not in found[3]
    assert found[3]["sharedPool"] == "0,4-15"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"offline": "16"}, r"steps\[0\]\.offline: the machine has no CPU 16; it has 0-15"),
        ({"online": "3-"}, r"steps\[0\]\.online: '3-' is not a list of CPUs"),
        ({"offline": ""}, r"steps\[0\]\.offline"),
        ({"offline": 3}, r"steps\[0\]\.offline"),
    ],
)
def test_a_wrong_step_is_refused_with_its_field(step: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        steps(step)


@pytest.mark.parametrize("step", [{"offline": "3"}, {"online": "3"}])
def test_without_the_extension_a_step_is_refused_with_the_remedy(step: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"steps\[0\]\.o\w+: needs the extension cpu-hotplug; .*extensions: \[cpu-ho"):
        steps(step, mooring={})


KUBELET = KubeletConfig(
    cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"
)
EXTENDED = MooringConfig(frozenset({CPU_HOTPLUG}))


def pods(sizes: Mapping[str, int]) -> tuple[Pod, ...]:
    """Return pods with one container each: name -> CPUs."""
    made = (Pod.of(name, cpus, "1Gi") for name, cpus in sizes.items())
    return tuple(replace(one, uid=one.name, containers=(replace(one.containers[0], name="app"),)) for one in made)


def question(
    running: Mapping[str, int], new: Mapping[str, int], offline: str, mooring: MooringConfig = EXTENDED
) -> Question:
    cpus = CPUSet.parse(offline)
    return Question(parse_compact(MACHINE), KUBELET, mooring, pods(new), pods(running), offline=cpus)


def planned(
    running: Mapping[str, int], new: Mapping[str, int], offline: str, mooring: MooringConfig = EXTENDED
) -> Plan:
    return started_plan(question(running, new, offline, mooring))


def cpus_of(answer: Answer) -> str:
    return str(answer.decision.containers["app"].cpus)


def test_a_plan_answers_with_what_running_pods_have_afterwards() -> None:
    plan = planned({"db": 3, "cache": 4}, {"web": 8}, "2,9")
    db, cache, web = plan.answers
    assert cpus_of(db) == "1-3"
    assert "app lost CPU 2, which is offline and has no replacement: 1 needed, 0 free on NUMA node 0." in db.why
    assert "lost" not in cache.why
    assert not web.admitted
    assert web.why.endswith("CPU 9 is offline.")
    assert ("MOOR-521", "default/db/app") in [(one.code, one.subject) for one in plan.findings]


EXTENSION = {"apiVersion": "mooring/v1alpha1", "kind": "MooringConfiguration", "extensions": ["cpu-hotplug"]}


def verb(folder: Path, name: str, offline: str, *words: str) -> Answered:
    """Ask about a node on which a pod with three CPUs runs and CPUs are offline."""
    node = given(folder, machine=MACHINE, kubelet=ALIGNED, more=(EXTENSION,))
    running = written(folder / "running.yaml", pod("db", 3, uid="db"))
    return mooring(name, *words, *node, "--active", running, "--offline", offline, columns=200)


def test_a_plan_shows_who_stands_in() -> None:
    plan = planned({"db": 3}, {}, "2")
    (db,) = plan.answers
    assert cpus_of(db) == "1,3-4"
    assert "app lost CPU 2, replaced by 4 for now; it was allocated on NUMA node 0." in db.why
    assert [str(row.cpus) for row in plan_rows(plan, wide=True)] == ["1,3-4"]


def test_what_an_evicted_pod_gives_back_stands_in_before_a_replica_has_it() -> None:
    kubelet = planned({"db": 3, "cache": 4}, {}, "2").kubelet
    assert str(CPUSet(kubelet.without(["cache"]).node.cpu.assignments["db"]["app"])) == "1,3-4"


def test_capacity_counts_without_offline_cpus_and_says_so(tmp_path: Path) -> None:
    words = "--shape", "cpu=4,memory=1Gi", "-o", "json"
    counted = verb(tmp_path, "capacity", "8,9,10", *words).document
    assert [one["cpus"] for one in counted["replicas"]] == ["4-7", "11-14"]
    assert counted["next"]["why"].endswith("CPUs 8-10 are offline.")
    (cpus,) = (one for one in counted["fragmentation"] if one["resource"] == "cpu")
    assert [(one["free"], one["largest"], one["empty"]) for one in cpus["numaNodes"]] == [(4, 4, 7), (5, 5, 5)]


def test_an_explanation_says_what_was_lost_and_what_cannot_be_had() -> None:
    plan = planned({"db": 3, "cache": 4}, {"web": 8}, "2,9")
    topology = plan.kubelet.settings.topology
    told = [[line.text for line in story_lines(explain(plan, one.pod), topology)] for one in plan.answers]
    assert [len([line for line in lines if "offline" in line]) for lines in told] == [1, 0, 1]
    assert told[2][-1] == "CPU 9 is offline"


def test_a_plan_without_the_extension_refuses() -> None:
    with pytest.raises(InputError, match="cpu-hotplug"):
        planned({"db": 3}, {}, "2", MooringConfig())
    with pytest.raises(InputError, match="the machine has no CPU 99"):
        planned({"db": 3}, {}, "99")


def test_extensions_are_named_where_there_are_any_and_change_nothing_where_nothing_is_offline() -> None:
    plans = [planned({"db": 3}, {}, "", mooring) for mooring in (EXTENDED, MooringConfig())]
    told = [dict(settings_facts(plan.kubelet.settings)).get("extensions", "") for plan in plans]
    assert told == ["cpu-hotplug", ""]
    assert plans[0].answers == plans[1].answers
    assert MooringConfig().replace_offline == "same-nodes"


def test_the_pool_of_the_text_has_no_cpu_that_is_offline(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text("{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app}]}}")
    text = verb(tmp_path, "plan", "2,9", "-f", str(tmp_path / "new.yaml")).out
    assert "Shared pool: 11 CPUs (0,5-8,10-15)" in text


# Mixed containers in plans: the exclusive set stays the assignment, and a note says that they use the pool too.


MIXING = MooringConfig(frozenset({MIXED_CPUS}))
POD_MIXED = guaranteed("a", "2", "1", annotations={f"{ANNOTATION}.main": "true"})


def planned_mixed(mooring: MooringConfig = MIXING) -> Plan:
    return started_plan(Question(Machine("small", INFO), CONFIG_MIXED, mooring, (POD_MIXED,)))


def without_note(plan: Plan) -> dict[str, Any]:
    [fields] = to_builtins(plan_document(plan))["pods"]
    return {name: value for name, value in fields.items() if name != "mixed"}


def test_the_note_is_all_that_the_extension_changes() -> None:
    mixed, plain = planned_mixed(), planned_mixed(MooringConfig())
    assert without_note(mixed) == without_note(plain)
    assert to_builtins(plan_document(mixed))["pods"][0]["mixed"] == ["main"]
    assert "mixed" not in to_builtins(plan_document(plain))["pods"][0]
    assert to_builtins(pod_resources_document(mixed.kubelet.node)) == to_builtins(
        pod_resources_document(plain.kubelet.node)
    )


def test_text_and_picture_say_who_is_mixed_and_where_it_runs() -> None:
    line = "default/name-a/main is mixed: it has CPUs 1-2 for itself and runs in the shared pool too (0,4-7)."
    assert mixed_lines(planned_mixed()) == [line]
    example = ("-f", EXAMPLES / "mixed.yaml", "--config", EXAMPLES / "mixed-kubelet.yaml", *SMALL)
    text = mooring("plan", *example, code=0).out
    assert [each.split()[:3] for each in text.splitlines() if each.startswith("  ")][1:] == [
        ["poll", "mixed", "2"],
        ["metrics", "shared", "–"],
        ["app", "exclusive", "2"],
    ]
    assert "poll is mixed: it has CPUs 1,5 for itself and runs in the shared pool too (0,3-4,7)." in text
    assert mixed_lines(planned_mixed(MooringConfig())) == []


def test_an_empty_pool_is_said() -> None:
    strict = replace(CONFIG_MIXED, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    pod = guaranteed("a", "7", annotations={ANNOTATION: "true"})
    plan = started_plan(Question(Machine("small", INFO), strict, MIXING, (pod,)))
    assert mixed_lines(plan) == [
        "default/name-a/main is mixed: it has CPUs 1-7 for itself and runs there alone while the shared pool is empty."
    ]
