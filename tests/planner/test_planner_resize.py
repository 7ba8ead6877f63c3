"""What a resize would do: every answer is the engine's, and the largest size is one that it takes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.events import Amounts, Resizing
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object, resized_pod

CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
MACHINE = "sockets=2 numa=2 cores=16 threads=2 memory=32Gi"
PINNED = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,16", "featureGates": {CPUS: True}}
ALIGNED = PINNED | {"topologyManagerPolicy": "single-numa-node"}
EXTENDED = ("exclusive-resize",)


def pod(name: str, *cpus: str, memory: str = "1Gi", **resources: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "resources": resources or {"limits": {"cpu": cpu, "memory": memory}}}
        for number, cpu in enumerate(cpus)
    ]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(
    name: str,
    *pods: dict[str, Any],
    config: dict[str, Any] = ALIGNED,
    extensions: tuple[str, ...] = EXTENDED,
    code: int | None = None,
    **given: str,
) -> Any:
    """Return the document of the verb with its fields as attributes; with the exit code 2 its complaint."""
    own = {"apiVersion": "mooring/v1alpha1", "kind": "MooringConfiguration", "extensions": extensions}
    for file, documents in (("pods", pods), ("kubelet", ({"kind": "KubeletConfiguration", **config}, own))):
        Path(f"{file}.yaml").write_text("\n---\n".join(map(json.dumps, documents)), encoding="utf-8")
    amounts = [word for resource, text in given.items() for one in text.split(" ") for word in (f"--{resource}", one)]
    node = ("--machine", MACHINE, "--config", "kubelet.yaml", "-f", "pods.yaml", "-o", "json")
    answered = mooring("resize", *([name] if name else []), *amounts, *node, code=code)
    return answered.complaint if code else json.loads(answered.out, object_hook=lambda one: SimpleNamespace(**one))


def largest(found: Any, container: str = "c0") -> Any:
    (part,) = (one.largest for one in found.containers if one.name == container)
    return not_none(part)


def takes(*pods: dict[str, Any], name: str = "web", **given: Any) -> bool:
    found: bool = ask(name, *pods, **given).accepted
    return found


def test_growth_stays_on_the_node_and_the_largest_size_is_the_last_that_is_taken() -> None:
    pods = pod("web", "4"), pod("other", "6")
    found = ask("web", *pods, cpu="6")
    assert found.accepted
    (web,) = found.containers
    assert CPUSet.parse(web.before.cpus) <= CPUSet.parse(web.after.cpus)
    # 16 CPUs on the node, 2 reserved, 6 of the other pod.
    assert largest(found).cpus == 8
    assert (takes(*pods, cpu="8"), takes(*pods, cpu="9")) == (True, False)


@pytest.mark.parametrize("config", [PINNED, ALIGNED], ids=["anywhere", "one node"])
def test_no_larger_number_than_the_largest_is_taken(config: dict[str, Any]) -> None:
    pods = pod("web", "4"), pod("other", "6")
    most = largest(ask("web", *pods, config=config, cpu="5")).cpus
    taken = [count for count in range(4, 33) if takes(*pods, config=config, cpu=str(count))]
    assert max(taken) == most


@pytest.mark.parametrize(
    ("policy", "beside", "most"),
    # 32 CPUs, 2 reserved; 19 are of another pod and of the container beside it.
    [("static", "2750m", 8250), ("none", "2750m", 8250), ("static", "2", 8999), ("none", "2", 9000)],
)
def test_a_fraction_of_a_guaranteed_pod_grows_to_the_last_thousandth(policy: str, beside: str, most: int) -> None:
    config = PINNED | {"cpuManagerPolicy": policy}
    pods = pod("web", "2", "500m"), pod("other", "17"), pod("more", beside)
    found = largest(ask("web/c1", *pods, config=config, cpu="700m"), "c1")
    assert (found.cpus, found.milliCPUs) == (None, most)
    amounts = [most, most + 1, most + 2, most + 1000]
    assert [takes(*pods, name="web/c1", config=config, cpu=f"{one}m") for one in amounts] == [True, False, False, False]


def test_the_largest_memory_is_taken_and_a_mebibyte_more_is_not() -> None:
    pods = pod("web", "4"), pod("other", "2", memory="8Gi")
    most = largest(ask("web", *pods, memory="2Gi")).memoryBytes
    assert takes(*pods, memory=str(most))
    refused = ask("web", *pods, memory=str(most + 2**20))
    assert (refused.reason, refused.code) == ("Deferred", "MOOR-142")


@pytest.mark.parametrize(
    ("cpu", "config", "extensions", "code"),
    [
        ("6", ALIGNED | {"featureGates": {}}, (), "MOOR-181"),
        ("2", ALIGNED, EXTENDED, "MOOR-182"),
        ("2500m", ALIGNED, EXTENDED, "MOOR-183"),
        ("20", ALIGNED, EXTENDED, "MOOR-184"),
        ("20", ALIGNED, (), "MOOR-141"),
        ("5", ALIGNED | {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, EXTENDED, "MOOR-121"),
    ],
    ids=["policy", "baseline", "fraction", "node", "sum", "half a core"],
)
def test_each_refusal_has_code_and_words(
    cpu: str, config: dict[str, Any], extensions: tuple[str, ...], code: str
) -> None:
    found = ask("web", pod("web", "4"), pod("other", "14"), config=config, extensions=extensions, cpu=cpu)
    assert not found.accepted
    assert found.code == code
    assert found.message
    assert all(one.after == one.before is not None for one in found.containers)


def test_several_containers_are_named() -> None:
    web = pod("web", "2", "4")
    found = ask("web", web, cpu="c0=4 c1=5")
    assert [len(CPUSet.parse(one.after.cpus)) for one in found.containers if one.after is not None] == [4, 5]
    assert ask("web/c1", web, cpu="6").accepted
    assert "the pod has 2 containers" in ask("web", web, cpu="4", code=2)
    assert "has no container 'c9'" in ask("web", web, cpu="c9=4", code=2)
    assert "given twice" in ask("web/c1", web, cpu="6 c1=7", code=2)


def test_the_limit_follows_where_it_is_the_request_and_stays_elsewhere() -> None:
    burstable = pod("web", "", requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "3", "memory": "1Gi"})
    found = ask("web", burstable, cpu="2", memory="2Gi")
    assert found.accepted
    # With the request at its limit the pod would be Guaranteed.
    assert largest(found).cpus == 2
    assert "above the limit" in ask("web", burstable, cpu="4", code=2)


def test_a_resize_cannot_change_the_class() -> None:
    web = pod_from_object(pod("web", "2"), source="x")
    with pytest.raises(InputError, match="QoS class"):
        resized_pod(web, Resizing(web.uid, {"c0": Amounts({"cpu": Quantity.parse("1")})}), PodGates())


def test_advice_about_a_refused_resize_was_run() -> None:
    pods = pod("web", "4"), pod("small", "2"), pod("other", "6")
    found = ask("web", *pods, cpu="12")
    size, _, removed = found.remedy.partition(", or ")
    assert size == "Request 6 CPUs for c0"
    assert removed == "remove default/other: the resize is then accepted (run here)."
    assert takes(*pods, cpu="6")
    assert takes(*pods[:2], cpu="12")
    assert not takes(pods[0], pods[2], cpu="12")


def test_the_extension_is_advice_where_it_resizes_and_advice_that_was_not_run_says_so() -> None:
    found = ask("web", pod("web", "4"), config=PINNED | {"featureGates": {}}, extensions=(), cpu="6")
    assert "the extension exclusive-resize: the resize is then accepted (run here)." in found.remedy
    assert ask("web", pod("web", "4", "500m"), cpu="c1=2").remedy.startswith("In general (not run here): ")


def test_a_pod_that_does_not_run_cannot_be_resized() -> None:
    found = ask("big", pod("web", "2"), pod("big", "40"), cpu="2")
    assert (found.accepted, found.runs, bool(found.notRunning)) == (False, False, True)
    refused = ask("web", pod("web", "2"), config=ALIGNED | {"reservedSystemCPUs": "99"}, cpu="3")
    assert (refused.accepted, refused.runs, refused.notRunning, bool(refused.startError)) == (False, False, "", True)


def test_a_fraction_that_the_kubelet_resizes_in_no_way_stays() -> None:
    config = PINNED | {"featureGates": {}}
    found = ask("web/c1", pod("web", "2", "1500m"), config=config, extensions=(), cpu="2700m")
    assert (found.accepted, largest(found, "c1").milliCPUs) == (False, 1500)
