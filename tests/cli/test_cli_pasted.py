"""Whole questions with what people have at hand: other tools' objects, dumps and single files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import Answered, mooring

MACHINE = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi")
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
"""
POD = """\
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
    (tmp_path / "pod.yaml").write_text(POD % "train")
    return tmp_path


def plan(folder: Path, *arguments: str, pods: str = "pod.yaml") -> Answered:
    config = ("--config", str(folder / "kubelet.yaml"))
    return mooring("plan", "-f", str(folder / pods), *MACHINE, *config, *arguments)


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_matrix_of_nvidia_smi_is_a_list_of_devices(folder: Path) -> None:
    answer = plan(folder, "--config", written(folder, "topo.txt", f"$ nvidia-smi topo -m\n{MATRIX}"))
    assert answer.code == 0
    assert "nvidia.com/gpu: GPU0 (NUMA 0) held by default/train/main; GPU1 (NUMA 1) free." in answer.out


def test_dumps_of_the_pod_resources_api_are_devices_and_holders(folder: Path) -> None:
    devices = ("--config", written(folder, "allocatable.json", json.dumps(ALLOCATABLE)))
    answer = plan(folder, *devices, "--active", written(folder, "list.json", json.dumps(HELD)))
    assert answer.code == 0
    assert "GPU-0 (NUMA 0) held by default/runs/c; GPU-1 (NUMA 1) held" in answer.out
    assert "c          exclusive     4  0     GPU-0    whole cores, one L3  1-2,17-18" in answer.out
    assert "main       exclusive     4  1" in answer.out


def test_what_a_plan_prints_as_pod_resources_is_read_again(folder: Path) -> None:
    devices = ("--config", written(folder, "allocatable.json", json.dumps(ALLOCATABLE)))
    dump = written(folder, "dump.json", plan(folder, *devices, "-o", "podresources").out)
    written(folder, "second.yaml", POD % "second")
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
    written(folder, "second.yaml", POD % "second")
    active = ("--active", str(folder / "pod.yaml"))
    answer = plan(folder, *active, "--state", str(saved / "cpu_manager_state"), pods="second.yaml")
    assert "main       exclusive     4  0     whole cores, one L3  3-4,19-20" in answer.out
    text = (saved / "cpu_manager_state").read_text()
    (folder / "copy.txt").write_text(f"# cat /var/lib/kubelet/cpu_manager_state\n{text}")
    again = plan(folder, *active, "--state", str(folder / "copy.txt"), pods="second.yaml")
    assert again.out == answer.out
    refused = plan(folder, "--state", str(folder / "pod.yaml"))
    assert (refused.code, refused.complaint.partition("--state: ")[2]) == (
        2,
        "is no state file of a kubelet; give cpu_manager_state, memory_manager_state, or the directory that has them",
    )


def test_doctor_reads_one_state_file_and_does_not_write_it(folder: Path) -> None:
    plan(folder, "--save-state", str(folder / "state"))
    file = str(folder / "state" / "cpu_manager_state")
    config = ("--config", str(folder / "kubelet.yaml"))
    assert "cpu_manager_state: sound" in mooring("doctor", *MACHINE, *config, "--state", file).out
    refused = mooring("doctor", *MACHINE, *config, "--state", file, "--write")
    assert (refused.code, "--state: is one file; name the directory" in refused.complaint) == (2, True)


def test_a_huge_page_reservation_of_bottlerocket_ends_the_kubelet(folder: Path) -> None:
    settings = (
        '[settings.kubernetes]\ncpu-manager-policy = "static"\nmemory-manager-policy = "Static"\n'
        '[settings.kubernetes.memory-manager-reserved-memory.0]\nenabled = true\nmemory = "993Mi"\n'
        'hugepages-2Mi = "10Mi"\n'
    )
    config = ("--config", written(folder, "user-data.toml", settings))
    answer = mooring("plan", "-f", str(folder / "pod.yaml"), *MACHINE, *config)
    assert answer.code == 1
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
def test_prompts_and_fences_around_a_configuration_and_pods_change_nothing(
    name: str, around: str, tmp_path: Path
) -> None:
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
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", "--machine", "cores=4", "--config", file)
    assert answered.code == 2
    assert "not valid TOML" in answered.complaint
