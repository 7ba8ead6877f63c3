"""What the API server and its webhooks add to pods, seen from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
def test_a_command_that_is_shown_has_the_injected_container() -> None:
    answer = ask("plan", "-f", "limits.yaml", "--inject", "proxy.yaml", "-o", "wide")
    assert "its QoS class is Burstable" in answer.out
    assert "istio-proxy" in answer.out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("verb", ["plan", "explain", "compare", "capacity", "show"])
def test_an_injector_is_named_until_its_container_is_given(verb: str) -> None:
    limited = ("-f", "limits.yaml")
    assert "warning[MOOR-542]: shop/api: Istio will add container istio-proxy" in ask(verb, *limited).err
    given = ask(verb, *limited, "--inject", "proxy.yaml")
    assert "warning" not in given.err
    assert "note[MOOR-542]: shop/api: Istio (sidecar.istio.io/inject: true): counted with istio-proxy" in given.err


@pytest.mark.parametrize(
    "form",
    [
        "PROXY",
        "[PROXY]",
        "containers: [PROXY]",
        "spec: {containers: [PROXY]}",
        "template: {spec: {containers: [PROXY]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [PROXY]}}",
    ],
)
def test_injected_containers_are_added_to_marked_pods(folder: Path, form: str) -> None:
    (folder / "proxy.yaml").write_text(form.replace("PROXY", PROXY.strip()))
    plain = POD.replace("name: api, namespace", "name: plain, namespace").replace("true", "no")
    (folder / "plain.yaml").write_text(plain)
    document = ask("plan", "-f", "plain.yaml", "-f", "limits.yaml", "--inject", "proxy.yaml", "-o", "json").document
    found = {pod["name"]: pod["containers"] for pod in document["pods"]}
    assert {name: list(containers) for name, containers in found.items()} == {
        "api": ["api", "helper", "istio-proxy"],
        "plain": ["api", "helper"],
    }
    assert [containers["api"]["cpus"] != "" for containers in found.values()] == [True, False]
    told = [(one["severity"], one["subject"]) for one in document["findings"] if one["code"] == "MOOR-542"]
    assert told == [("info", "shop/api")]


def test_an_injected_sidecar_starts_first_and_a_limit_range_completes_it(folder: Path) -> None:
    (folder / "proxy.yaml").write_text("{name: istio-proxy, image: proxy, restartPolicy: Always}")
    (folder / "pod.yaml").write_text(POD + "  initContainers: [{name: probe, image: demo}]\n")
    document = ask("plan", "-f", "limits.yaml", "--inject", "proxy.yaml", "-o", "json").document
    containers = document["pods"][0]["containers"]
    assert list(containers)[:2] == ["istio-proxy", "probe"]
    assert containers["api"]["cpus"]


def test_what_cannot_be_injected_is_said(folder: Path) -> None:
    (folder / "pod.yaml").write_text(POD.replace("true", "false"))
    told = ask("plan", "--inject", "proxy.yaml").err
    assert "warning[MOOR-542]: --inject: has no effect: no new pod is marked for an injector" in told
    (folder / "proxy.yaml").write_text("resources: {}")
    assert "proxy.yaml: --inject: has no container" in ask("plan", "--inject", "proxy.yaml").complaint


# What a source leaves open is computed by a published formula, given beside it, or said to be assumed.


STATIC = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}
SIXTEEN_CPUS = ("--machine", "cores=8 threads=2 memory=64Gi")

Write = Callable[[str, Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: Any) -> str:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return str(file)

    return written


def a_pod(**limits: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {"containers": containers}}


def planned(write: Write, pod: dict[str, Any], *words: str) -> Answered:
    return mooring("plan", "-f", write("pod.json", pod), *words, "-o", "json")


def messages(answered: Answered) -> str:
    return " ".join(finding["message"] for finding in answered.document["findings"])


def why_of(answered: Answered) -> str:
    return str(answered.document["pods"][0]["why"])


def reserved(memory: str) -> list[dict[str, Any]]:
    return [{"numaNode": 0, "limits": {"memory": memory}}]


def eks(**fields: Any) -> dict[str, Any]:
    config = {**STATIC, **fields}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": {"kubelet": {"config": config}}}


def pool(**fields: Any) -> dict[str, Any]:
    kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}
    return {"kubeletConfig": kubelet, **fields}


MANAGED_BY_GKE = {"kubeletConfig": {"cpuManagerPolicy": "static", "memoryManager": {"policy": "static"}}}
IN_A_FLAG = {
    "spec": {"kubelet": {"config": {**STATIC, "reservedMemory": reserved("575Mi")}, "flags": ["--max-pods=20"]}}
}
AUTOMATIC = {**STATIC, "reservedMemory": reserved("4Gi"), "reservedSystemCPUs": "0"}
OPENSHIFT = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig"}


class TestWhatAVendorReserves:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (eks(maxPods=58, reservedMemory=reserved("993Mi")), ""),
            (eks() | IN_A_FLAG, ""),
            (eks(reservedMemory=reserved("993Mi")), "kubeReserved.memory is 893Mi (assumed)"),
            (MANAGED_BY_GKE, "(assumed)"),
            (
                OPENSHIFT | {"spec": {"autoSizingReserved": True, "kubeletConfig": AUTOMATIC}},
                "systemReserved.memory is 3996Mi (assumed)",
            ),
        ],
        ids=["EKS, known pods", "EKS, pods in a flag", "EKS, unknown pods", "GKE", "OpenShift, automatic sizes"],
    )
    def test_a_node_starts_with_what_its_formula_gives(self, write: Write, content: dict[str, Any], said: str) -> None:
        config = write("config.json", content)
        answered = planned(write, a_pod(cpu="2", memory="1Gi"), *SIXTEEN_CPUS, "--config", config)
        assert answered.code == 0, answered.out
        assert said in messages(answered)

    def test_gke_takes_an_amount_that_its_formula_rounds_to(self, write: Write, tmp_path: Path) -> None:
        (tmp_path / "conf.d").mkdir()
        kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        write("conf.d/10.conf", kind | {"reservedMemory": reserved("5711Mi")})
        words = ("--config", write("gke.json", MANAGED_BY_GKE), "--config", str(tmp_path / "conf.d"))
        assert planned(write, a_pod(cpu="2", memory="1Gi"), *SIXTEEN_CPUS, *words).code == 0

    @pytest.mark.parametrize(
        ("fields", "said", "unsaid"),
        [
            (
                {"maxPods": 110, "reservedMemory": reserved("993Mi")},
                "Reserve 1565Mi of memory on NUMA node 0",
                "assumed",
            ),
            ({"reservedMemory": reserved("100Mi")}, "What decides is not known", "run here"),
            ({"reservedMemory": reserved("50Mi")}, "What decides is not known", "run here"),
        ],
        ids=["known pods", "unknown pods", "less than the threshold"],
    )
    def test_another_amount_is_advised_by_a_formula_that_is_known(
        self, write: Write, fields: dict[str, Any], said: str, unsaid: str
    ) -> None:
        given = ("-f", write("pod.json", a_pod(cpu="2")), *SIXTEEN_CPUS, "--config", write("node.json", eks(**fields)))
        told = mooring("plan", *given, code=1).out
        assert (said in told, unsaid in told) == (True, False)

    def test_a_rejection_for_memory_that_a_vendor_may_reserve_says_so(self, write: Write) -> None:
        config = write("node.json", eks(reservedMemory=reserved("993Mi")))
        answered = planned(write, a_pod(cpu="2", memory="64Gi"), *SIXTEEN_CPUS, "--config", config)
        assert "(assumed)" in why_of(answered)
        assert answered.document["pods"][0]["assumed"] == ["reservation"]


class TestNodePoolsOfAKS:
    @pytest.mark.parametrize(
        "content",
        [
            pool(),
            pool(linuxOsConfig={"transparentHugePageEnabled": "madvise"}, name="pool1", kubeletDiskType="OS"),
            {"properties": pool(vmSize="Standard_D16s_v5")},
            {"kind": "Base", "name": "cluster", "agentPoolProfiles": [{"name": "a", "kubeletConfig": None}, pool()]},
            {
                "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
                "resources": [{"type": "Microsoft.ContainerService/managedClusters/agentPools", "properties": pool()}],
            },
        ],
    )
    def test_every_form_has_its_topology_policy(self, write: Write, content: dict[str, Any]) -> None:
        words = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi", "--config", write("pool.json", content))
        answered = mooring("plan", "-f", write("pod.json", a_pod(cpu="2", memory="1Gi")), *words, code=0)
        assert "topology manager single-numa-node" in answered.out
        assert "AKS" in answered.err
        assert "MOOR-501" not in answered.err

    def test_a_pool_has_its_pods_version_and_reservation(self, write: Write) -> None:
        content = pool(maxPods=60, currentOrchestratorVersion="1.33.2")
        words = ("--machine", "cores=8 memory=64Gi", "--config", write("pool.json", content))
        answered = mooring("plan", "-v", "-f", write("pod.json", a_pod(cpu="2")), *words, columns=200)
        assert "kubelet v1.33" in answered.out
        assert "kubeReserved.memory            1250Mi" in answered.out

    def test_several_pools_are_refused_with_their_places(self, write: Write) -> None:
        content = {"agentPoolProfiles": [pool(), pool()]}
        answered = planned(write, a_pod(cpu="2"), *SIXTEEN_CPUS, "--config", write("pools.json", content))
        assert answered.code == 2
        assert "agentPoolProfiles[0], agentPoolProfiles[1]" in answered.complaint


ROWS = [
    {
        "cpu": str(cpu),
        "node": str(cpu // 4),
        "socket": str(cpu // 4),
        "core": str(cpu),
        "l1d:l1i:l2": f"{cpu}:{cpu}:{cpu}",
    }
    for cpu in range(8)
]
NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
node 0 size: 65536 MB
node 0 free: 1 MB
node 1 cpus: 4 5 6 7
node 1 size: 32768 MB
node 1 free: 1 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
KUBELET_ASSUMPTIONS = {
    **STATIC,
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
    "kubeReserved": {"memory": "924Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": reserved("1Gi"),
}


class TestAssumedMemory:
    @pytest.fixture
    def words(self, write: Write) -> tuple[str, ...]:
        return (
            "--machine",
            write("lscpu.json", {"cpus": ROWS}),
            "--config",
            write("kubelet.json", KUBELET_ASSUMPTIONS),
        )

    def test_a_rejection_that_rests_on_it_says_so(self, write: Write, words: tuple[str, ...]) -> None:
        answered = planned(write, a_pod(cpu="2", memory="20Gi"), *words)
        assert "32 GiB of memory (assumed)" in why_of(answered)
        assert answered.document["pods"][0]["assumed"] == ["memory"]

    def test_compact_text_without_memory_is_assumed_too(self, write: Write) -> None:
        words = ("--machine", "sockets=2 cores=8", "--config", write("kubelet.json", KUBELET_ASSUMPTIONS))
        assert "8 GiB of memory (assumed)" in why_of(planned(write, a_pod(cpu="2", memory="20Gi"), *words))

    def test_numactl_beside_lscpu_tells_memory(self, write: Write, words: tuple[str, ...]) -> None:
        answered = planned(write, a_pod(cpu="2", memory="20Gi"), *words, "--machine", write("numactl.txt", NUMACTL))
        assert answered.code == 0, answered.out
        sizes = [node["memoryBytes"] >> 30 for node in answered.document["numaNodes"]]
        assert sizes == [64, 32]

    @pytest.mark.parametrize(
        "fields",
        [
            {"evictionHard": {"memory.available": "5%"}},
            {"kubeReserved": {"memory": "40Gi"}, "memoryManagerPolicy": "None", "reservedMemory": []},
        ],
    )
    def test_no_remedy_to_start_rests_on_it(self, write: Write, words: tuple[str, ...], fields: dict[str, Any]) -> None:
        config = write("kubelet.json", {**KUBELET_ASSUMPTIONS, **fields})
        answered = mooring("plan", "-f", write("pod.json", a_pod(cpu="2")), *words[:2], "--config", config, code=1)
        assert "memory (assumed) is in no given file" in " ".join(answered.out.split())
        assert "run here" not in answered.out

    def test_explain_says_it_too(self, write: Write, words: tuple[str, ...]) -> None:
        answered = mooring("explain", "app", "-f", write("pod.json", a_pod(cpu="2", memory="20Gi")), *words)
        assert "(assumed)" in answered.out

    def test_huge_pages_that_no_file_tells_are_assumed(self, write: Write, words: tuple[str, ...]) -> None:
        pod = a_pod(cpu="2", memory="1Gi", **{"hugepages-1Gi": "2Gi"})
        assert "huge pages, none (assumed)" in why_of(planned(write, pod, *words))
        assert planned(write, pod, *words, "--machine", "hugepages-1Gi=8").code == 0


TWO_SOCKETS = ("--machine", "sockets=2 cores=8 memory=64Gi")


def devices(numa: list[int]) -> dict[str, Any]:
    listed = [{"id": "gpu0", "numa": numa}, {"id": "gpu1", "numa": numa}]
    return {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {"vendor.example/gpu": listed}}


class TestDevicesOffTheMachine:
    def test_a_node_that_the_machine_lacks_is_refused_with_both(self, write: Write) -> None:
        given = write("devices.json", devices([2]))
        answered = planned(write, a_pod(cpu="2"), *TWO_SOCKETS, "--config", given)
        assert answered.code == 2
        assert f"{given}:" in answered.complaint
        assert "gpu0 is on NUMA node 2, which the machine does not have: it has 0, 1" in answered.complaint


def zone(number: int, **amounts: tuple[str, str, str]) -> dict[str, Any]:
    resources = [
        {"name": name, "capacity": capacity, "allocatable": allocatable, "available": available}
        for name, (capacity, allocatable, available) in amounts.items()
    ]
    return {"name": f"node-{number}", "type": "Node", "resources": resources}


def topology(**fields: Any) -> dict[str, Any]:
    gpu = "vendor.example/gpu"
    zones = [
        zone(0, cpu=("40", "38", "12"), memory=("125Gi", "120Gi", "100Gi"), **{gpu: ("4", "4", "1")}),
        zone(1, cpu=("40", "40", "14"), memory=("125Gi", "125Gi", "100Gi"), **{gpu: ("4", "4", "4")}),
    ]
    metadata = {"name": "worker-1"}
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": metadata}
    return {**kind, "topologyPolicies": ["SingleNUMANodeContainerLevel"], "zones": zones, **fields}


PUBLISHED_CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0-1",
}


class TestAPublishedNode:
    def words(self, write: Write, content: dict[str, Any], **config: Any) -> tuple[str, ...]:
        return (
            "--machine",
            write("nrt.json", content),
            "--config",
            write("kubelet.json", {**PUBLISHED_CONFIG, **config}),
        )

    @pytest.mark.parametrize(
        "said",
        [
            {},
            {"topologyPolicies": ["SingleNUMANodePodLevel"]},
            {"topologyPolicies": [], "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]},
            {
                "topologyPolicies": ["BestEffort"],
                "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
            },
        ],
    )
    def test_its_policy_and_what_is_left_decide(self, write: Write, said: dict[str, Any]) -> None:
        answered = planned(write, a_pod(cpu="20", memory="10Gi"), *self.words(write, topology(**said)))
        app = answered.document["pods"][-1]
        assert (answered.code, app["reason"]) == (1, "TopologyAffinityError")
        assert "14 on NUMA node 1, 12 on NUMA node 0" in app["why"]

    def test_its_devices_decide(self, write: Write) -> None:
        pod = a_pod(cpu="2", memory="1Gi", **{"vendor.example/gpu": "2"})
        answered = planned(write, pod, *self.words(write, topology()))
        app = answered.document["pods"][-1]
        assert answered.code == 0
        assert app["devices"]["main"]["vendor.example/gpu"]["numa"] == [[1], [1]]
        assert "no devices are declared" not in messages(answered)

    def test_what_is_left_of_memory_decides_with_a_memory_manager(self, write: Write) -> None:
        static = {
            "memoryManagerPolicy": "Static",
            "reservedMemory": reserved("5Gi"),
            "kubeReserved": {"memory": "5020Mi"},
        }
        words = self.words(write, topology(), **static)
        assert planned(write, a_pod(cpu="2", memory="99Gi"), *words).code == 0
        answered = planned(write, a_pod(cpu="2", memory="101Gi"), *words)
        assert answered.code == 1
        assert "only 100 GiB of memory free" in str(answered.document["pods"][-1]["why"])

    def test_a_configuration_that_says_otherwise_counts_and_is_named(self, write: Write) -> None:
        words = self.words(write, topology(), topologyManagerPolicy="best-effort")
        answered = planned(write, a_pod(cpu="20", memory="10Gi"), *words)
        assert answered.code == 0
        assert "the NodeResourceTopology says single-numa-node, the configuration best-effort" in messages(answered)

    def test_given_pods_count_in_place_of_its_amounts(self, write: Write) -> None:
        running = {**a_pod(cpu="2", memory="1Gi"), "metadata": {"name": "runs", "uid": "runs"}}
        words = self.words(write, topology())
        answered = planned(write, a_pod(cpu="20", memory="10Gi"), *words, "--active", write("runs.json", running))
        assert answered.code == 0
        assert (
            "containers hold 26 CPUs of NUMA node 0, 20 GiB memory of NUMA node 0, 3 vendor.example/gpu of NUMA node "
            "0, 26 CPUs of NUMA node 1 and 25 GiB memory of NUMA node 1; the running pods that are given, which hold 2 "
            "CPUs, count alone: give all, or none"
        ) in messages(answered)
        [severity] = [one["severity"] for one in answered.document["findings"] if one["code"] == "MOOR-528"]
        assert severity == "warning"

    def test_pods_that_hold_as_many_cpus_as_it_says_are_no_warning(self, write: Write) -> None:
        content = topology(zones=[zone(0, cpu=("40", "38", "34")), zone(1, cpu=("40", "40", "40"))])
        running = {**a_pod(cpu="4", memory="1Gi"), "metadata": {"name": "runs", "uid": "runs"}}
        words = ("--active", write("runs.json", running))
        answered = planned(write, a_pod(cpu="34", memory="1Gi"), *self.words(write, content), *words)
        found = [
            (one["severity"], one["message"]) for one in answered.document["findings"] if one["code"] == "MOOR-528"
        ]
        told = "the NodeResourceTopology says that containers hold 4 CPUs of NUMA node 0; the running pods that are "
        assert (answered.code, found) == (0, [("info", f"{told}given count in their place")])
        assert answered.document["pods"][-1]["containers"]["main"]["cpus"] != ""

    def test_alone_it_says_what_its_amounts_are(self, write: Write) -> None:
        content = topology(zones=[zone(0, cpu=("40", "38", "34"))])
        told = mooring("plan", "-f", write("pod.json", a_pod(cpu="2")), *self.words(write, content)).err
        assert "containers hold 4 CPUs of NUMA node 0: a pod of each node stands for them" in told

    def test_pods_of_a_list_that_run_count_in_place_of_its_amounts(self, write: Write) -> None:
        runs = {**a_pod(cpu="2", memory="1Gi"), "metadata": {"name": "runs"}, "status": {"phase": "Running"}}
        listed = {"apiVersion": "v1", "kind": "List", "items": [runs, a_pod(cpu="20", memory="10Gi")]}
        answered = planned(write, listed, *self.words(write, topology()))
        assert answered.code == 0
        assert [pod["name"] for pod in answered.document["pods"]] == ["runs", "app"]


class TestThisComputer:
    @pytest.mark.parametrize(("words", "warns"), [((), True), (SIXTEEN_CPUS, False), (("--machine", "live"), False)])
    def test_a_pod_of_another_node_is_none_of_this_one(self, write: Write, words: tuple[str, ...], warns: bool) -> None:
        pod = a_pod(cpu="1")
        pod["spec"]["nodeName"] = "worker-12.example.org"
        assert ("MOOR-529" in planned(write, pod, *words).out) is warns

    def test_an_object_is_no_node_archive(self, write: Write) -> None:
        node = write("node.json", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-12"}})
        answered = planned(write, a_pod(cpu="1"), "--node", node)
        assert answered.code == 2
        assert "is not a node archive but JSON or YAML" in answered.complaint


class TestSecondMachine:
    def test_two_machines_are_an_error(self, write: Write) -> None:
        answered = planned(write, a_pod(cpu="1"), "--machine", "small-1s8", "--machine", "xeon-6338n-1s")
        assert answered.code == 2
        assert "NUMA node 0 has 64 CPUs in one and 8 in the other" in answered.complaint or (
            "NUMA node 0 has 8 CPUs in one and 64 in the other" in answered.complaint
        )

    def test_compact_text_may_be_divided(self) -> None:
        answered = mooring("topology", "--machine", "sockets=2 cores=16", "--machine", "memory=64Gi")
        assert answered.out.splitlines()[0].endswith("32 CPUs · 64 GiB") or "16 CPUs · 64 GiB" in answered.out

    def test_a_key_that_is_given_twice_is_an_error(self) -> None:
        answered = mooring("topology", "--machine", "sockets=2 cores=16", "--machine", "sockets=1", code=2)
        assert "sockets: is given twice" in answered.complaint


NUMA_LINES = "NUMA node0 CPU(s): 0-3,8-11\nNUMA node1 CPU(s): 4-7,12-15\n"
WHOLE = {**KUBELET_ASSUMPTIONS, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
PARTS = [
    (NUMA_LINES, {}, "3", 1, ["cores"], "2 threads a core, as the runs of CPU numbers suggest (assumed)"),
    (NUMACTL, {}, "3", 0, ["cores"], "every CPU is a core (assumed)"),
    (NUMACTL, {}, "2", 0, None, ""),
    ("CPU(s): 8\nOn-line CPU(s) list: 0-7\n", {}, "2", 0, ["NUMA nodes"], "one NUMA node (assumed)"),
    ("CPU(s): 8\nOn-line CPU(s) list: 0-7\n", {"topologyManagerPolicy": "best-effort"}, "2", 0, None, ""),
    ("CPU(s): 8\nOn-line CPU(s) list: 0-7\nArchitecture: armv7l\n", {}, "2", 0, None, ""),
]


@pytest.mark.parametrize(("machine", "config", "cpus", "code", "assumed", "text"), PARTS)
def test_cores_sockets_and_numa_nodes_that_no_file_tells_are_marked_where_they_decide(
    write: Write, machine: str, config: dict[str, Any], cpus: str, code: int, assumed: list[str] | None, text: str
) -> None:
    kubelet = {**WHOLE, "memoryManagerPolicy": "None", "reservedMemory": [], **config}
    words = ("--machine", write("machine.txt", machine), "--config", write("kubelet.json", kubelet))
    answered = planned(write, a_pod(cpu=cpus, memory="1Gi"), *words)
    pod = answered.document["pods"][0]
    assert (answered.code, pod.get("assumed")) == (code, assumed), answered.out
    assert text in pod["why"]
    told = [one for one in answered.document["findings"] if "its admission rests on" in one["message"]]
    assert len(told) == (code == 0 and assumed is not None)


def test_lscpu_beside_numactl_leaves_no_cores_assumed(write: Write) -> None:
    lscpu = "Architecture: x86_64\nCPU(s): 8\nOn-line CPU(s) list: 0-7\nThread(s) per core: 1\nCore(s) per socket: 4\n"
    lscpu += "Socket(s): 2\nNUMA node(s): 2\nNUMA node0 CPU(s): 0-3\nNUMA node1 CPU(s): 4-7\n"
    kubelet = {**WHOLE, "memoryManagerPolicy": "None", "reservedMemory": []}
    words = ("--machine", write("numactl.txt", NUMACTL), "--machine", write("lscpu.txt", lscpu))
    answered = planned(write, a_pod(cpu="3", memory="1Gi"), *words, "--config", write("kubelet.json", kubelet))
    assert "assumed" not in answered.document["pods"][0]


@pytest.mark.parametrize(("option", "assumed"), [({"align-by-socket": "true"}, ["sockets"]), ({}, None)])
def test_sockets_that_no_file_tells_are_marked_where_align_by_socket_rejects(
    write: Write, option: dict[str, str], assumed: list[str] | None
) -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    strict = {"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "None", "reservedMemory": []}
    kubelet = {**KUBELET_ASSUMPTIONS, **strict, "featureGates": gates, "cpuManagerPolicyOptions": option}
    containers = [{"name": name, "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}} for name in "abde"]
    last = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    pod = {**a_pod(), "spec": {"containers": [*containers, last]}}
    nodes = (f"node {node} cpus: {' '.join(str(4 * node + cpu) for cpu in range(4))}\n" for node in range(4))
    sizes = "".join(f"node {node} size: 8192 MB\n" for node in range(4))
    numactl = f"available: 4 nodes (0-3)\n{''.join(nodes)}{sizes}"
    words = ("--machine", write("numactl.txt", numactl), "--config", write("kubelet.json", kubelet))
    answered = planned(write, pod, *words)
    assert (answered.code, answered.document["pods"][0].get("assumed")) == (1, assumed), answered.out
