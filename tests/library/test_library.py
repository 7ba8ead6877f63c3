"""The library: each argument takes what one has, and a wrong one is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import mooring
from mooring import CPUSet, Node, Pod, explain, load_config, load_machine, load_pods, plan
from mooring.answers.base.plan import Plan

CONFIG = "examples/kubelet.yaml"
PODS = "examples/pods.yaml"
MACHINE = "epyc-7763-2s-nps4"
DOCUMENT = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "app"},
    "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]},
}


@pytest.mark.parametrize(
    "source",
    [CONFIG, Path(CONFIG), Path(CONFIG).read_text(encoding="utf-8")],
    ids=["path", "path object", "text"],
)
def test_a_configuration_in_every_form_is_the_same(source: Any) -> None:
    assert load_config(source).kubelet == load_config(CONFIG).kubelet


def test_mappings_are_the_documents_that_they_hold() -> None:
    assert load_config(DOCUMENT).kubelet.cpu_manager_policy == "static"
    (pod,) = load_pods(POD)
    assert (pod.name, pod.qos.value) == ("app", "Guaranteed")
    info = {
        "num_cores": 2,
        "memory_capacity": 2**30,
        "topology": [{"node_id": 0, "memory": 2**30, "cores": [{"core_id": 0, "thread_ids": [0, 1], "socket_id": 0}]}],
    }
    assert load_machine(info).info.num_cores == 2


def test_pods_keep_the_order_of_values_and_files() -> None:
    first, last = Pod.of("a/first", cpu=2, memory="1Gi"), Pod.of("last")
    found = load_pods([first, PODS, POD, last])
    assert [found[0], found[-1]] == [first, last]
    assert found[-2].name == "app"


def test_a_plan_takes_sources_and_what_loaders_return_alike() -> None:
    one = plan(MACHINE, CONFIG, PODS)
    other = plan(load_machine(MACHINE), load_config(CONFIG), load_pods(PODS))
    assert [answer.decision for answer in one.answers] == [answer.decision for answer in other.answers]
    assert repr(one) == "<Plan of epyc-7763-2s-nps4: 8 of 11 pods admitted>"


def test_a_plan_of_an_archive_has_its_machine_configuration_and_pods() -> None:
    planned = plan(node="examples/node", pods=Pod.of("more/one", cpu=2, memory="1Gi"))
    assert planned.answers[-1].pod.name == "one"
    assert sum(answer.running for answer in planned.answers) == 3


def test_a_refused_plan_says_so_in_its_repr() -> None:
    assert "would not start" in repr(plan(MACHINE, {**DOCUMENT, "reservedSystemCPUs": ""}))


def test_an_explanation_is_the_text_of_the_verb() -> None:
    told = explain(plan(MACHINE, CONFIG, PODS), "ai/inference")
    assert str(told).startswith("error[MOOR-105]: ai/inference is rejected: TopologyAffinityError\n")
    assert repr(told).startswith("<Explanation [MOOR-105] ai/inference: ")


def test_plan_and_node_are_pictures_in_a_notebook() -> None:
    planned = plan(MACHINE, CONFIG, PODS)
    node, decision = Node.fresh(load_machine(MACHINE), load_config(CONFIG)).admit(Pod.of("hpc/x", cpu=4, memory="1Gi"))
    assert decision.admitted
    for shown in (planned, node, plan(MACHINE, {**DOCUMENT, "reservedSystemCPUs": ""})):
        assert (shown._repr_svg_() or "").startswith("<svg")
        assert len(repr(shown).splitlines()) == 1
    assert "hpc/x" in (node._repr_svg_() or "")


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_dataframe_has_a_row_for_each_container(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.base.rows.find_spec", lambda one: one == name or None)
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(DataFrame=dict))
    planned = plan(MACHINE, CONFIG, PODS)
    assert isinstance(planned, Plan)
    table = planned.to_dataframe()
    rows = list(zip(table["pod"], table["container"], table["verdict"], table["cpus"], strict=True))
    assert ("core/upf-0", "forwarder", "exclusive", "8-15,136-143") in rows
    assert [row for row in rows if row[0] == "ai/inference"] == [("ai/inference", "", "rejected", "")]


def test_the_dataframe_of_pandas_counts_the_cpus_of_the_plan() -> None:
    planned = plan(MACHINE, CONFIG, PODS)
    assert isinstance(planned, Plan)
    placed = [one for answer in planned.answers if answer.admitted for one in answer.decision.containers.values()]
    assert planned.to_dataframe().cpu_count.sum() == sum(len(one.cpus) for one in placed)


def test_without_pandas_and_polars_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.base.rows.find_spec", lambda _: None)
    planned = plan(MACHINE, CONFIG, PODS)
    assert isinstance(planned, Plan)
    with pytest.raises(mooring.MooringError, match=r"pip install 'kube-mooring\[notebook\]'"):
        planned.to_dataframe()


def test_a_pod_of_python_is_that_of_a_manifest() -> None:
    built = Pod.of("app", cpu=2, memory="1Gi")
    (read,) = load_pods(POD)
    assert (built.containers, built.qos) == (read.containers, read.qos)
    assert [Pod.of("a").qos.value, Pod.of("a", cpu=1).qos.value] == ["BestEffort", "Burstable"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_machine(5), "machine: must be a path, the text of a file or a mapping, not a number"),  # type: ignore[arg-type]
        (lambda: load_config(["x"]), "config: must be a path, the text of a file or a mapping, not a list"),  # type: ignore[arg-type]
        (lambda: load_pods(3), "pods: must be a path, the text of a file or a mapping, not a number"),  # type: ignore[arg-type]
        (lambda: load_pods([5]), "pods: must be a path, the text of a file or a mapping, not a number"),  # type: ignore[list-item]
        (lambda: load_config("cpuManagerPolicy: {\n"), "config:2:1: not valid YAML"),
        (lambda: plan("sockets=1 cores=2", CONFIG, {"kind": "Pod"}), "pods: "),
        (lambda: Pod.of("a", cpu="many"), "quantities must match"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(mooring.MooringError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_text_is_no_mask_and_no_machine() -> None:
    with pytest.raises(TypeError, match=r"CPUSet.parse\('0-3'\)"):
        CPUSet("0-3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="machine: must be what load_machine returns"):
        mooring.Node.fresh("epyc-7763-2s-nps4", load_config())  # type: ignore[arg-type]


def test_every_promised_name_is_there_and_on_the_page() -> None:
    page = Path("docs/how-to/use-the-library.md").read_text(encoding="utf-8").partition("## What is promised")[2]
    for name in mooring.__all__:
        assert getattr(mooring, name) is not None
        assert f"`{name}" in page, name


def test_a_document_of_an_explanation_is_json() -> None:
    told = explain(plan(MACHINE, CONFIG, PODS), "ai/inference")
    assert msgspec.json.decode(msgspec.json.encode(told.document))["code"] == "MOOR-105"
