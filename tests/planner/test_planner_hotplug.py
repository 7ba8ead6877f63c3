"""CPUs that come and go in scenarios, plans, explanations and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.small_node import CONFIG as CONFIG_MIXED
from tests.agent.small_node import INFO, guaranteed
from tests.cli.command import EXAMPLES, SMALL, Answered, mooring
from tests.plans import started_plan

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.plan_document import plan_document
from mooring.answers.base.pods import explain
from mooring.answers.base.report import settings_facts
from mooring.answers.base.rows import mixed_lines, plan_rows
from mooring.answers.base.scenario import replay_scenario
from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.config import MIXED_CPUS, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.node.providers import ANNOTATION
from mooring.explanations.lines import story_lines
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import load_pods
from mooring.inputs.pods.scenario import scenario
from mooring.views.view import CPUUse

MACHINE = "sockets=2 cores=16 threads=1"
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
HOTPLUG = {"extensions": ["cpu-hotplug"]}


def admit(uid: str, cpu: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}]}
    return {"admit": {"metadata": {"uid": uid, "name": uid}, "spec": spec}}


def steps(*taken: dict[str, Any], mooring: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    story = {
        "id": "story",
        "machine": "m",
        "kubelet": STATIC,
        "mooring": HOTPLUG if mooring is None else mooring,
        "steps": list(taken),
    }
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


def test_a_later_step_says_what_is_offline_still() -> None:
    found = steps({"offline": "2"}, admit("a", "3"))
    assert found[1]["offline"] == "2"
    assert found[1]["containers"]["app"]["cpus"] == "1,3-4"


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


Sizes = tuple[tuple[str, int], ...]
"""Pods with one container: name, CPUs."""


def planned(tmp_path: Path, running: Sizes, new: Sizes, offline: str, config: str) -> Plan:
    return started_plan(question(tmp_path, running, new, offline, config))


def question(tmp_path: Path, running: Sizes, new: Sizes, offline: str, config: str) -> Question:
    file = tmp_path / "config.yaml"
    file.write_text(config)
    read = load_config(str(file))
    gates = PodGates.of(read.kubelet.feature_gates, read.mooring.extensions)

    def pods(named: Sizes, to: str) -> tuple[Any, ...]:
        path = tmp_path / to
        path.write_text("\n---\n".join(POD.format(name=name, cpu=cpu) for name, cpu in named))
        return tuple(load_pods([str(path)], gates=gates)) if named else ()

    return Question(
        parse_compact(MACHINE),
        read.kubelet,
        read.mooring,
        pods(new, "new.yaml"),
        pods(running, "running.yaml"),
        offline=CPUSet.parse(offline),
    )


POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}}}
spec: {{containers: [{{name: app, resources: {{limits: {{cpu: "{cpu}", memory: 1Gi}}}}}}]}}
"""
KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
"""
CONFIG = KUBELET + "---\napiVersion: mooring/v1alpha1\nkind: MooringConfiguration\nextensions: [cpu-hotplug]\n"


def test_a_plan_answers_with_what_running_pods_have_afterwards(tmp_path: Path) -> None:
    plan = planned(tmp_path, (("db", 3), ("cache", 4)), (("web", 8),), "2,9", CONFIG)
    db, cache, web = plan.answers
    assert str(db.decision.containers["app"].cpus) == "1-3"
    assert "app lost CPU 2, which is offline and has no replacement: 1 needed, 0 free on NUMA node 0." in db.why
    assert "lost" not in cache.why
    assert not web.admitted
    assert web.why.endswith("CPU 9 is offline.")
    assert ("MOOR-521", "default/db/app") in [(one.code, one.subject) for one in plan.findings]


def verb(folder: Path, name: str, running: Sizes, offline: str, config: str, *words: str) -> Answered:
    """Ask about a node on which pods run and CPUs are offline."""
    (folder / "config.yaml").write_text(config)
    (folder / "running.yaml").write_text("\n---\n".join(POD.format(name=name, cpu=cpu) for name, cpu in running))
    node = ("--machine", MACHINE, "--config", folder / "config.yaml", "--active", folder / "running.yaml")
    return mooring(name, *words, *node, *(("--offline", offline) if offline else ()), columns=200)


def test_a_plan_shows_who_stands_in(tmp_path: Path) -> None:
    plan = planned(tmp_path, (("db", 3),), (), "2", CONFIG)
    (db,) = plan.answers
    assert str(db.decision.containers["app"].cpus) == "1,3-4"
    assert "app lost CPU 2, replaced by 4 for now; it was allocated on NUMA node 0." in db.why
    assert [str(row.cpus) for row in plan_rows(plan, wide=True)] == ["1,3-4"]


def test_what_a_pod_that_ends_gives_back_stands_in(tmp_path: Path) -> None:
    asked = question(tmp_path, (("db", 3), ("cache", 4)), (("web", 7),), "2", CONFIG)
    assert [str(one.decision.containers["app"].cpus) for one in started_plan(asked).answers[:2]] == ["1-3", "4-7"]
    db, _, web = started_plan(replace(asked, leaving={"web": ("cache",)})).answers
    assert str(db.decision.containers["app"].cpus) == "1,3-4"
    assert str(web.decision.containers["app"].cpus) == "8-14"


def test_what_an_evicted_pod_gives_back_stands_in_before_a_replica_has_it(tmp_path: Path) -> None:
    kubelet = planned(tmp_path, (("db", 3), ("cache", 4)), (), "2", CONFIG).kubelet
    assert kubelet is not None
    assert str(CPUSet(kubelet.without(["cache"]).node.cpu.assignments["db"]["app"])) == "1,3-4"


def test_capacity_counts_without_offline_cpus_and_says_so(tmp_path: Path) -> None:
    words = "--shape", "cpu=4,memory=1Gi", "-o", "json"
    counted = verb(tmp_path, "capacity", (("db", 3),), "8,9,10", CONFIG, *words).document
    assert [one["cpus"] for one in counted["replicas"]] == ["4-7", "11-14"]
    assert counted["next"]["why"].endswith("CPUs 8-10 are offline.")
    (cpus,) = (one for one in counted["fragmentation"] if one["resource"] == "cpu")
    assert [(one["free"], one["largest"], one["empty"]) for one in cpus["numaNodes"]] == [(4, 4, 7), (5, 5, 5)]


def test_an_explanation_says_what_was_lost_and_what_cannot_be_had(tmp_path: Path) -> None:
    plan = planned(tmp_path, (("db", 3), ("cache", 4)), (("web", 8),), "2,9", CONFIG)
    assert plan.kubelet is not None
    topology = plan.kubelet.settings.topology
    told = [[line.text for line in story_lines(explain(plan, one.pod), topology)] for one in plan.answers]
    assert [len([line for line in lines if "offline" in line]) for lines in told] == [1, 0, 1]
    assert told[2][-1] == "CPU 9 is offline"


def test_a_picture_has_offline_cpus_at_their_places(tmp_path: Path) -> None:
    plan = planned(tmp_path, (("db", 3), ("cache", 4)), (), "2,9", CONFIG)
    view = plan_view(plan)
    uses = {cpu.cpu: cpu.use for cpu in view.cpus()}
    assert (uses[2], uses[9], uses[1]) == (CPUUse.BROKEN, CPUUse.OFFLINE, CPUUse.EXCLUSIVE)
    assert not any(box.is_offline() for box in view.boxes)
    assert next(entry.count for entry in view.legend if entry.use is CPUUse.BROKEN) == 1
    assert any(line.startswith("default/db/app has CPUs 1-3, of which CPU 2 is offline") for line in view.caption)


def test_a_plan_without_the_extension_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cpu-hotplug"):
        planned(tmp_path, (("db", 3),), (), "2", KUBELET)
    with pytest.raises(InputError, match="the machine has no CPU 99"):
        planned(tmp_path, (("db", 3),), (), "99", CONFIG)


def test_a_report_names_extensions_where_there_are_any(tmp_path: Path) -> None:
    told = [
        dict(settings_facts(plan.kubelet.settings)).get("extensions", "")
        for plan in (planned(tmp_path, (), (), "", config) for config in (CONFIG, KUBELET))
    ]
    assert told == ["cpu-hotplug", ""]


def test_nothing_is_said_where_nothing_is_offline(tmp_path: Path) -> None:
    assert (
        planned(tmp_path, (("db", 3),), (), "", CONFIG).answers
        == planned(tmp_path, (("db", 3),), (), "", KUBELET).answers
    )
    assert MooringConfig().replace_offline == "same-nodes"


def test_the_pool_of_the_text_has_no_cpu_that_is_offline(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text("{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app}]}}")
    text = verb(tmp_path, "plan", (("db", 3),), "2,9", CONFIG, "-f", str(tmp_path / "new.yaml")).out
    assert "Shared pool: 11 CPUs (0,5-8,10-15)" in text


# Mixed containers in plans: the exclusive set stays the assignment, and a note says that they use the pool too.


EXTENDED = MooringConfig(frozenset({MIXED_CPUS}))
POD_MIXED = guaranteed("a", "2", "1", annotations={f"{ANNOTATION}.main": "true"})


def planned_mixed(mooring: MooringConfig = EXTENDED) -> Plan:
    return started_plan(Question(Machine("small", INFO), CONFIG_MIXED, mooring, (POD_MIXED,)))


def without_note(plan: Plan) -> dict[str, Any]:
    [fields] = to_builtins(plan_document(plan))["pods"]
    return {name: value for name, value in fields.items() if name != "mixed"}


def test_the_note_is_all_that_the_extension_changes() -> None:
    mixed, plain = planned_mixed(), planned_mixed(MooringConfig())
    assert without_note(mixed) == without_note(plain)
    assert to_builtins(plan_document(mixed))["pods"][0]["mixed"] == ["main"]
    assert "mixed" not in to_builtins(plan_document(plain))["pods"][0]
    assert mixed.kubelet is not None
    assert plain.kubelet is not None
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
    plan = started_plan(Question(Machine("small", INFO), strict, EXTENDED, (pod,)))
    assert mixed_lines(plan) == [
        "default/name-a/main is mixed: it has CPUs 1-7 for itself and runs there alone while the shared pool is empty."
    ]
