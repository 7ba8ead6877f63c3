"""Each example of a vendor's configuration is planned with, and every verb that reads a configuration takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, Answered, mooring
from tests.cli.given import given, pod
from tests.cli.test_cli_admission import KUBELET

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.archive.reader import KUBELET_CONFIG

VENDORS = EXAMPLES / "vendors"
MACHINE = ("--machine", "sockets=2 numa=2 cores=24 threads=2 memory=64Gi")
ALONE = sorted(
    file.name
    for file in VENDORS.iterdir()
    if file.is_file() and file.name not in {"kubelet.yaml", "kubelet-command-line.txt"}
)


@pytest.fixture
def pods(tmp_path: Path) -> str:
    return given(tmp_path, pod("app", 4))[1]


@pytest.mark.parametrize("name", ALONE)
def test_an_example_gives_a_container_its_cpus(name: str, pods: str) -> None:
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", str(VENDORS / name), "-o", "json")
    container = answered.document["pods"][0]["containers"]["app"]
    assert (answered.code, len(CPUSet.parse(container["cpus"]))) == (0, 4), answered.err


def test_a_file_drop_ins_and_flags_are_one_configuration_with_origins(pods: str) -> None:
    given = [str(VENDORS / name) for name in ("kubelet-command-line.txt", "kubelet.conf.d", "kubelet.yaml")]
    answered = mooring(
        "plan", "-v", "-f", pods, *MACHINE, *(word for path in given for word in ("--config", path)), columns=400
    )
    rows = [line.split() for line in answered.out.partition("configuration in force")[2].splitlines()[1:]]
    origins = {row[0]: (row[1], Path(row[2]).name) for row in rows if len(row) == 3}
    assert origins["cpuManagerPolicy"] == ("static", "10-pinning.conf:3:1")
    assert origins["kubeReserved.memory"] == ("512Mi", "kubelet.yaml:4:27")
    assert origins["maxPods"] == ("40", "kubelet-command-line.txt:1")


@pytest.mark.parametrize(
    "words",
    [
        ("capacity", "--shape", "cpu=4,memory=1Gi"),
        ("show",),
        ("explain", "app"),
        ("whatif",),
        ("compare", "--with", ""),
    ],
    ids=lambda words: str(words[0]),
)
def test_every_verb_reads_what_a_plan_reads(words: tuple[str, ...], pods: str) -> None:
    config = str(VENDORS / "gke-system-config.yaml")
    given = [word or config for word in words]
    asked = ("-f", pods) if words[0] != "capacity" else ()
    answered = mooring(*given, *asked, *MACHINE, "--config", config)
    assert answered.code in (0, 1), answered.err
    assert "reserves CPU and memory by the size of the machine" in answered.err


def test_an_archive_keeps_what_a_vendors_file_comes_to(tmp_path: Path) -> None:
    folder = EXAMPLES / "node"
    packed = tmp_path / "node.tar.gz"
    config = ("--config", str(VENDORS / "talos-worker.yaml"))
    mooring("collect", "--root", str(folder), "--no-kubectl", *config, "--to", str(packed), code=0)
    shown = mooring("plan", "--node", str(packed), "-f", str(EXAMPLES / "pods.yaml"), "-v").out
    assert "systemReserved.memory" in shown
    assert KUBELET_CONFIG in shown


def test_strict_refuses_a_misspelt_field_of_a_wrapper(pods: str, tmp_path: Path) -> None:
    file = tmp_path / "gke.yaml"
    file.write_text("kubeletConfig:\n  cpuManagerPolicys: static\n")
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", str(file), "--strict", code=2)
    assert (
        "gke.yaml:2:3: GKEKubeletConfig has no field cpuManagerPolicys; did you mean cpuManagerPolicy?" in answered.err
    )


UNKNOWN = "failed to parse kubelet flag: unknown flag: --pod-infra-container-image"
WAYS = {
    "kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--pod-infra-container-image=pause:3.10"\n',
    "k3s.yaml": 'kubelet-arg: ["pod-infra-container-image=pause:3.10"]\n',
    "kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --pod-infra-container-image=pause:3.10\n",
    "kubeadm.yaml": """
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: pod-infra-container-image, value: "pause:3.10"}]}
""",
    "talos.yaml": """
version: v1alpha1
machine: {type: worker, kubelet: {extraArgs: {pod-infra-container-image: pause:3.10}}}
cluster: {}
""",
}
"""File -> flags of a kubelet, as a vendor writes them."""


@pytest.mark.parametrize("name", WAYS)
def test_a_flag_that_the_release_lacks_ends_the_kubelet_in_any_file(name: str, pods: str, tmp_path: Path) -> None:
    file, config = tmp_path / name, tmp_path / "kubelet.yaml"
    file.write_text(WAYS[name])
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    beside = () if name == "talos.yaml" else ("--config", config)
    given = ("-f", pods, *MACHINE, "--config", file, *beside)
    answered = mooring("plan", *given, "--kubelet-version", "1.35", "-o", "json")
    assert (answered.code, answered.document["startError"]) == (1, UNKNOWN)
    assert "startError" not in mooring("plan", *given, "--kubelet-version", "1.34", "-o", "json").document
    explained = " ".join(mooring("explain", "app", *given, "--kubelet-version", "1.35", columns=400).out.split())
    assert UNKNOWN in explained
    assert f"Remove --pod-infra-container-image from {file}" in explained


def test_a_flag_that_no_kubelet_has_is_not_only_a_warning(pods: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kubelet-arg: [cpu-manager=true, cpus=0, cpu-manager-policy=static, reserved-cpus=0-3]\n")
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", file, "-o", "json")
    found = answered.document
    assert (answered.code, found["startError"]) == (1, "failed to parse kubelet flag: unknown flag: --cpu-manager")
    assert any("did you mean --cpu-manager-policy?" in one["message"] for one in found["findings"])


# Workloads on the command line: streams of other tools, and templates at paths that the caller names.


FILES = Path(__file__).parent.parent / "manifest" / "workloads"


def test_what_helm_prints_is_planned_as_it_is() -> None:
    answered = mooring("plan", "-f", "-", *NODE, stdin=(FILES / "helm-template.yaml").read_bytes(), code=0)
    assert "4 pods admitted, 0 rejected." in answered.out
    assert answered.err.splitlines()[:3] == [
        f"note[MOOR-503]: objects without pods: {which}"
        for which in (
            "2 ConfigMap (web, db), 1 ServiceAccount (web), 1 Service (web)",
            "1 Prometheus (main): no pod template found; --pod-template-path Prometheus=PATH names one",
            "1 Pod (web-test-connection): Helm hooks that do not run on installation",
        )
    ]


def test_a_template_is_named_by_its_path() -> None:
    file = str(FILES / "inferenceservice.yaml")
    without = mooring("plan", "-f", file, *NODE, code=2)
    assert "there is no pod in the manifests, only 1 InferenceService (iris): no pod template found" in without.err
    named = mooring("plan", "-f", file, "--pod-template-path", "InferenceService=spec.predictor", *NODE)
    assert "iris-predictor-0" in named.out
    wrong = mooring("plan", "-f", file, "--pod-template-path", "spec.predictor", *NODE)
    assert wrong.err == (
        "mooring: --pod-template-path: 'spec.predictor' is not KIND=PATH; "
        "write one such as InferenceService=spec.predictor\n"
    )


# Machines that are typed in: what is a guess of theirs, and decides nothing, is not worth a warning.


EIGHT = "sockets=2 numa=8 cores=64 threads=2 memory=256Gi"
CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
featureGates: {CPUManagerPolicyAlphaOptions: true}
"""
POD_MACHINE = "{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {containers: [{name: c}]}}"


@pytest.mark.parametrize(
    ("options", "warned"), [("", False), ('cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"}', True)]
)
def test_caches_that_the_kubelet_merges_are_warnings(tmp_path: Path, options: str, *, warned: bool) -> None:
    (tmp_path / "kubelet.yaml").write_text(CONFIG + options)
    (tmp_path / "pod.yaml").write_text(POD_MACHINE)
    planned = mooring(
        "plan", "-f", tmp_path / "pod.yaml", "--machine", EIGHT, "--config", tmp_path / "kubelet.yaml", code=0
    )
    assert ("MOOR-445" in planned.err) == warned
    assert "num_physical_cores" not in mooring("topology", "--machine", EIGHT).out


# Whole questions with what people have at hand: other tools' objects, dumps and single files.


MACHINE_PASTED = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi")
POD_PASTED = """\
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - {name: main, image: demo, resources: {limits: {cpu: "4", memory: 1Gi, nvidia.com/gpu: 1}}}
"""
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-7,16-23\t0\nGPU1\tSYS\t X \t8-15,24-31\t1\n"
ALLOCATABLE = {
    "devices": [
        {"resource_name": "nvidia.com/gpu", "device_ids": [f"GPU-{node}"], "topology": {"nodes": [{"ID": node}]}}
        for node in (0, 1)
    ],
    "cpu_ids": ["1", "2"],
}
HELD = {
    "podResources": [
        {
            "name": "runs",
            "namespace": "default",
            "containers": [
                {
                    "name": "c",
                    "devices": [
                        {"resourceName": "nvidia.com/gpu", "deviceIds": ["GPU-0"], "topology": {"nodes": [{}]}}
                    ],
                    "cpuIds": ["1", "17", "2", "18"],
                }
            ],
        }
    ]
}
TYPED_MACHINE = """\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {name: eight}
spec:
  cpu: {guest: 8, dedicatedCPUPlacement: true, isolateEmulatorThread: true}
  memory: {guest: 16Gi}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm}
spec:
  instancetype: {name: %s}
  template: {spec: {domain: {devices: {}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kubelet.yaml").write_text(KUBELET)
    (tmp_path / "pod.yaml").write_text(POD_PASTED % "train")
    return tmp_path


def plan(folder: Path, *arguments: str, pods: str = "pod.yaml") -> Answered:
    config = ("--config", str(folder / "kubelet.yaml"))
    return mooring("plan", "-f", str(folder / pods), *MACHINE_PASTED, *config, *arguments)


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_matrix_of_nvidia_smi_is_a_list_of_devices(folder: Path) -> None:
    answer = plan(folder, "--config", written(folder, "topo.txt", f"$ nvidia-smi topo -m\n{MATRIX}"))
    assert answer.code == 0
    assert "nvidia.com/gpu: GPU0 (NUMA 0) held by default/train/main; GPU1 (NUMA 1) free." in answer.out


def test_devices_in_a_row_that_are_alike_are_one(folder: Path) -> None:
    answer = mooring("plan", "-f", folder / "pod.yaml", "--machine", "hgx-8gpu", columns=200)
    of_gpus = "gpu-0 (NUMA 0) held by default/train/main; gpu-1 to gpu-3 (NUMA 0) free; gpu-4 to gpu-7 (NUMA 1) free."
    assert f"nvidia.com/gpu: {of_gpus}" in " ".join(answer.out.split())


def test_what_a_plan_prints_as_pod_resources_is_read_again(folder: Path) -> None:
    devices = ("--config", written(folder, "allocatable.json", json.dumps(ALLOCATABLE)))
    dump = written(folder, "dump.json", plan(folder, *devices, "-o", "podresources").out)
    written(folder, "second.yaml", POD_PASTED % "second")
    answer = plan(folder, "--active", dump, pods="second.yaml")
    assert answer.code == 0
    assert "GPU-0 (NUMA 0) held by default/train/main; GPU-1 (NUMA 1) held" in answer.out


def test_a_holder_on_two_numa_nodes_stays_where_it_is(folder: Path) -> None:
    held = json.loads(json.dumps(HELD))
    held["podResources"][0]["containers"][0]["cpuIds"] = ["8", "24"]
    devices = ("--config", written(folder, "allocatable.json", json.dumps(ALLOCATABLE)))
    answer = plan(folder, *devices, "--active", written(folder, "list.json", json.dumps(held)))
    assert answer.code == 0
    assert "none would be refused" in answer.out
    assert "GPU-0 (NUMA 0) held by default/runs/c" in answer.out


def test_a_dump_with_words_for_numbers_is_one_line(folder: Path) -> None:
    held = json.dumps(HELD).replace('"17"', '"x"')
    answer = plan(folder, "--active", written(folder, "list.json", held))
    assert answer.code == 2
    assert answer.complaint.endswith("list.json: cpu_ids: 'x' is not a whole number; give what the kubelet answers")


@pytest.mark.parametrize(("kind", "node"), [("memory", 7), ("memory", -7), ("x y", 0)])
def test_memory_that_no_node_has_is_a_refusal(folder: Path, kind: str, node: int) -> None:
    config = '{"kind": "KubeletConfiguration", "memoryManagerPolicy": "Static", "reservedMemory": [%s]}'
    written(folder, "kubelet.yaml", config % '{"numaNode": 0, "limits": {"memory": "100Mi"}}')
    block = f'{{"memoryType": "{kind}", "size": 5000, "topology": {{"nodes": [{{"ID": {node}}}]}}}}'
    held = f'{{"podResources": [{{"name": "a", "containers": [{{"name": "c", "memory": [{block}]}}]}}]}}'
    answer = plan(folder, "--active", written(folder, "list.json", held))
    assert answer.code == 2
    assert f"default/a holds '{kind}' of NUMA nodes {node}, which this machine does not have" in answer.complaint


def test_cpus_that_two_containers_list_are_held_once(folder: Path) -> None:
    both = '{"podResources": [{"name": "a", "containers": [{"name": "b", "cpuIds": [1]}, {"cpuIds": [1]}]}]}'
    assert "overlaps" not in plan(folder, "--active", written(folder, "list.json", both)).out


def test_an_instance_type_beside_a_virtual_machine_counts(folder: Path) -> None:
    written(folder, "vm.yaml", TYPED_MACHINE % "eight")
    answer = plan(folder, pods="vm.yaml")
    assert answer.code == 0
    assert "requests memory 17658019841, cpu 9" in answer.err
    written(folder, "vm.yaml", TYPED_MACHINE % "other")
    assert "CPUs and memory are in the instance type other" in plan(folder, pods="vm.yaml").complaint


def test_one_state_file_is_enough(folder: Path) -> None:
    saved = folder / "state"
    plan(folder, "--save-state", str(saved))
    written(folder, "second.yaml", POD_PASTED % "second")
    active = ("--active", str(folder / "pod.yaml"))
    answer = plan(folder, *active, "--state", str(saved / "cpu_manager_state"), pods="second.yaml")
    assert "main       exclusive     4  0     whole cores, one L3  3-4,19-20" in answer.out
    text = (saved / "cpu_manager_state").read_text()
    (folder / "copy.txt").write_text(f"# cat /var/lib/kubelet/cpu_manager_state\n{text}")
    assert plan(folder, *active, "--state", str(folder / "copy.txt"), pods="second.yaml").out == answer.out
    refused = plan(folder, "--state", str(folder / "pod.yaml"))
    assert (refused.code, refused.complaint.partition("--state: ")[2]) == (
        2,
        "is no state file of a kubelet; give cpu_manager_state, memory_manager_state, or the directory that has them",
    )


def test_doctor_reads_one_state_file_and_does_not_write_it(folder: Path) -> None:
    plan(folder, "--save-state", str(folder / "state"))
    file = str(folder / "state" / "cpu_manager_state")
    config = ("--config", str(folder / "kubelet.yaml"))
    assert "cpu_manager_state: sound" in mooring("doctor", *MACHINE_PASTED, *config, "--state", file).out
    refused = mooring("doctor", *MACHINE_PASTED, *config, "--state", file, "--write")
    assert (refused.code, "--state: is one file; name the directory" in refused.complaint) == (2, True)


def test_a_huge_page_reservation_of_bottlerocket_ends_the_kubelet(folder: Path) -> None:
    settings = (
        '[settings.kubernetes]\ncpu-manager-policy = "static"\nmemory-manager-policy = "Static"\n'
        '[settings.kubernetes.memory-manager-reserved-memory.0]\nenabled = true\nmemory = "993Mi"\n'
        'hugepages-2Mi = "10Mi"\n'
    )
    config = ("--config", written(folder, "user-data.toml", settings))
    answer = mooring("plan", "-f", str(folder / "pod.yaml"), *MACHINE_PASTED, *config, code=1)
    assert 'the total amount "10Mi" of type "hugepages-2Mi" is not equal to the value "0"' in answer.out


def test_what_kubectl_describes_is_refused_with_the_command_that_helps(folder: Path) -> None:
    written(folder, "described.txt", "Name:           web\nNamespace:      default\nEvents:\n  a: b: c\n")
    answer = plan(folder, pods="described.txt")
    assert answer.code == 2
    assert "this is output of kubectl for people" in answer.err
    assert "kubectl get pods -o yaml" in answer.err


AROUND = {
    "prompt above": "[root@worker-1 ~]# cat file\n{}",
    "prompt below": "{}\nroot@worker-1:~# \n",
    "dollar": "$ cat file\n{}",
    "fence": "It says:\n\n```\n{}\n```\n",
}
BOTTLEROCKET = """[settings.kubernetes]
cpu-manager-policy = "static"
topology-manager-policy = "restricted"
[settings.kubernetes.kube-reserved]
cpu = "1"
"""
GIVEN = {
    "kubelet.yaml": "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n",
    "kubelet.json": '{"kind": "KubeletConfiguration", "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}',
    "flags.txt": "--cpu-manager-policy=static --reserved-cpus=0\n",
    "bottlerocket.toml": BOTTLEROCKET,
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", GIVEN)
def test_prompts_and_fences_around_configuration_and_pods_are_nothing(name: str, around: str, tmp_path: Path) -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, resources: {limits: "
    pod += "{cpu: 2, memory: 1Gi}}}]}}"

    def placed(form: str) -> list[object]:
        (tmp_path / name).write_text(form.format(GIVEN[name]) if "{}" in form else GIVEN[name])
        (tmp_path / "pod.yaml").write_text(form.replace("{}", pod))
        words = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi", "--config", tmp_path / name)
        answered = mooring("plan", "-f", tmp_path / "pod.yaml", *words, "-o", "json")
        document = answered.document
        return [answered.code, document["pods"][0]["containers"], document["reservedCPUs"], document["sharedPool"]]

    assert placed(AROUND[around]) == placed("{}")


def test_toml_that_is_damaged_in_one_line_is_not_read_in_part(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(BOTTLEROCKET.replace('cpu = "1"', 'cpu = "1'))
    (tmp_path / "pod.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}"
    )
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", "--machine", "cores=4", "--config", file, code=2)
    assert "not valid TOML" in answered.complaint
