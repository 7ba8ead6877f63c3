"""What the API server and its webhooks add to pods, seen from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Answered, mooring

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
"""
LIMITED = """\
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: shop}
spec:
  limits:
  - type: Container
    default: {cpu: 500m, memory: 256Mi}
    defaultRequest: {cpu: 500m, memory: 256Mi}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: api, namespace: shop, labels: {sidecar.istio.io/inject: "true"}}
spec:
  containers:
  - {name: api, image: demo, resources: {limits: {cpu: "4", memory: 2Gi}}}
  - {name: helper, image: demo}
"""
PROXY = "{name: istio-proxy, image: proxy, resources: {requests: {cpu: 100m}, limits: {cpu: 2}}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kubelet.yaml").write_text(KUBELET)
    (tmp_path / "limits.yaml").write_text(LIMITED)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "proxy.yaml").write_text(PROXY)
    return tmp_path


def ask(verb: str, *more: str) -> Answered:
    machine = "sockets=2 cores=16 threads=2 memory=64Gi"
    return mooring(verb, *more, "-f", "pod.yaml", "--machine", machine, "--config", "kubelet.yaml")


@pytest.mark.usefixtures("folder")
def test_a_limit_range_beside_the_pod_or_among_active_pods_makes_its_container_exclusive() -> None:
    assert "Its 4 exclusive CPUs" not in ask("plan", "-o", "wide").out
    for option in ("-f", "--active"):
        answer = ask("plan", "-o", "wide", option, "limits.yaml")
        assert "Its 4 exclusive CPUs come from NUMA node 0" in answer.out
        assert "note[MOOR-541]: shop/api: LimitRanger plugin set: " in answer.err
        assert "objects without pods" not in answer.err


def test_a_pod_that_the_limit_range_forbids_is_bad_input(folder: Path) -> None:
    (folder / "limits.yaml").write_text(LIMITED + "    max: {cpu: 2}\n")
    answer = ask("plan", "-f", "limits.yaml")
    assert answer.code == 2
    assert 'pods "api" is forbidden: maximum cpu usage per Container is 2, but limit is 4' in answer.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("verb", ["plan", "explain", "compare", "capacity", "show"])
def test_an_injector_is_named_until_its_container_is_given(verb: str) -> None:
    limited = ("-f", "limits.yaml")
    assert "warning[MOOR-542]: shop/api: Istio will add container istio-proxy" in ask(verb, *limited).err
    given = ask(verb, *limited, "--inject", "proxy.yaml")
    assert "warning" not in given.err
    assert "note[MOOR-542]: shop/api: Istio (sidecar.istio.io/inject: true): counted with istio-proxy" in given.err


@pytest.mark.usefixtures("folder")
def test_a_command_that_is_shown_has_the_injected_container() -> None:
    answer = ask("plan", "-f", "limits.yaml", "--inject", "proxy.yaml", "-o", "wide")
    assert "its QoS class is Burstable" in answer.out
    assert "istio-proxy" in answer.out
