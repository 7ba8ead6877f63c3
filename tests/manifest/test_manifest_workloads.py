"""Pod templates in objects of other API groups: every one is found, with the pods that it stands for."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import cases, refusal

from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Container, ContainerKind, QoS
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.pods.pod_files import pods_of

FILES = Path(__file__).parent / "workloads"
"""Objects after the public API references of the projects, shortened."""


def names(path: Path, **more: Any) -> list[str]:
    return [pod.name for pod in pods_of(load_documents(path), **more)]


EXPECTED = yaml.safe_load(FILES.with_name("pods-of-workloads.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", EXPECTED)
def test_templates_of_operators_give_their_pods(file: str) -> None:
    found = Counter(name.rpartition("-")[0] for name in names(FILES / file))
    assert found == EXPECTED[file]


def test_requests_of_a_template_are_those_of_its_pods() -> None:
    [leader, *_] = pods_of(load_documents(FILES / "leaderworkerset.yaml"))
    assert str(leader.containers[0].requests["cpu"]) == "8"
    assert leader.namespace == "inference"


def test_a_stream_of_helm_gives_its_pods_and_one_line_for_the_rest() -> None:
    found: list[Finding] = []
    assert names(FILES / "helm-template.yaml", report=found.append) == ["db-0", "web-0", "web-1", "db-migrate-0"]
    assert [(one.severity, one.message) for one in found if one.code == "MOOR-503"] == [
        ("info", "2 ConfigMap (web, db), 1 ServiceAccount (web), 1 Service (web)"),
        ("info", "1 Prometheus (main): no pod template found; --pod-template-path Prometheus=PATH names one"),
        ("info", "1 Pod (web-test-connection): Helm hooks that do not run on installation"),
    ]


def test_a_path_names_templates_that_are_not_recognized() -> None:
    paths = {"InferenceService": ("spec.predictor", "spec.explainers[*]")}
    assert names(FILES / "inferenceservice.yaml", paths=paths) == ["iris-predictor-0", "iris-a-0"]


@pytest.mark.parametrize(
    ("file", "paths", "message"), cases(__file__, "refused-workloads.yaml", "file", "paths", "says")
)
def test_errors_name_the_field_in_the_object(file: str, paths: dict[str, list[str]], message: str) -> None:
    assert message in refusal(names, FILES / file, paths=paths)


def test_misspelt_fields_of_a_template_are_named() -> None:
    found: list[Finding] = []
    names(FILES / "misspelt.yaml", report=found.append)
    [finding] = found
    assert "misspelt.yaml:10" in finding.message
    assert finding.message.endswith("Container has no field resource; did you mean resources?")


def amounts(container: Container) -> dict[str, int]:
    """Return the requests, CPUs in thousandths."""
    return {name: amount.milli if name == "cpu" else amount.units for name, amount in container.requests.items()}


def test_a_virtual_machine_is_the_pod_of_its_launcher() -> None:
    [pod] = pods_of(load_documents(FILES / "virtual-machine.yaml"))
    assert (pod.namespace, pod.name, pod.qos) == ("vms", "virt-launcher-dpdk-0", QoS.GUARANTEED)
    assert {container.name: container.kind for container in pod.containers} == {
        "guest-console-log": ContainerKind.SIDECAR,
        "container-disk-binary": ContainerKind.INIT,
        "volumeroot-init": ContainerKind.INIT,
        "compute": ContainerKind.APP,
        "volumeroot": ContainerKind.APP,
    }
    compute = next(container for container in pod.containers if container.name == "compute")
    # Eight CPUs of the guest and one for its emulator; page tables, processes, eight CPUs, an IO thread, graphics, the
    # passed device and the Guaranteed pod make the overhead.
    overhead = -(-(4 * 1024**3) // 1000) * 1000 // 512 + (220 + 8 * 8 + 8 + 32 + 1024 + 100) * 1024**2
    assert amounts(compute) == {"cpu": 9000, "memory": overhead, "hugepages-1Gi": 4 * 1024**3, "nvidia.com/gpu": 1}
    assert compute.limits == compute.requests


def test_dedicated_cpus_of_limits() -> None:
    [pod] = pods_of(load_documents(FILES / "virtual-machine-instance.yaml"))
    [compute] = pod.containers
    assert pod.qos is QoS.GUARANTEED
    overhead = -(-(2 * 1024**3) // 1000) * 1000 // 512 + (220 + 2 * 8 + 8 + 100) * 1024**2
    assert amounts(compute) == {"cpu": 2000, "memory": 2 * 1024**3 + overhead}


def test_machines_without_dedicated_cpus_share() -> None:
    found: list[Finding] = []
    first, second = pods_of(load_documents(FILES / "virtual-machine-shared.yaml"), report=found.append)
    assert (first.name, second.name, first.qos) == ("virt-launcher-small-0", "virt-launcher-small-1", QoS.BURSTABLE)
    assert amounts(first.containers[-1])["cpu"] == 400
    [finding] = found
    assert (finding.code, finding.subject) == ("MOOR-516", "VirtualMachineInstanceReplicaSet small")
    assert "requests memory 370309192, cpu 400m" in finding.message


def test_a_misspelt_cpu_field_of_a_virtual_machine_is_named(tmp_path: Path) -> None:
    text = (FILES / "virtual-machine-instance.yaml").read_text(encoding="utf-8")
    (tmp_path / "vm.yaml").write_text(text.replace("dedicatedCpuPlacement", "dedicatedCpuPlacment"), encoding="utf-8")
    noticed: list[Finding] = []
    pods_of(load_documents(tmp_path / "vm.yaml"), report=noticed.append)
    [misspelt] = [one for one in noticed if one.code == "MOOR-512"]
    assert misspelt.subject == "spec.domain.cpu.dedicatedCpuPlacment"
    assert misspelt.message.endswith("did you mean dedicatedCpuPlacement?")


SPARK = """
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: pi, namespace: jobs}
spec:
"""


def spark(tmp_path: Path, spec: str, **more: Any) -> dict[str, list[Any]]:
    """Return the pods of an application: name -> QoS, CPUs requested and limited, MiB requested and limited."""
    file = tmp_path / "spark.yaml"
    file.write_text(SPARK + spec)
    found: dict[str, list[Any]] = {}
    for pod in pods_of(load_documents(file), **more):
        first = pod.containers[0]
        limit = first.limits.get("cpu")
        sizes = [amounts["memory"].units / 1024**2 for amounts in (first.requests, first.limits)]
        found[pod.name] = [pod.qos.value, first.requests["cpu"].milli, limit and limit.milli, *sizes]
    return found


@pytest.mark.parametrize("case", yaml.safe_load(FILES.with_name("spark.yaml").read_text(encoding="utf-8")))
def test_a_spark_application_is_the_pods_that_spark_makes(case: dict[str, Any], tmp_path: Path) -> None:
    found = spark(tmp_path, textwrap.indent(case["spec"], "  "))
    assert found == {f"pi-{role}-0": case[role] for role in ("driver", "executor")}


@pytest.mark.parametrize(("executors", "spec"), cases(__file__, "spark-executors.yaml", "executors", "spec"))
def test_executors_are_those_at_the_start(executors: int, spec: str, tmp_path: Path) -> None:
    assert len(spark(tmp_path, f"  {spec}\n")) == 1 + executors


def test_sidecars_gpus_and_templates_of_spark_count(tmp_path: Path) -> None:
    file = tmp_path / "spark.yaml"
    file.write_text(
        SPARK.replace("kind: Spark", "kind: ScheduledSpark")
        + "  template:\n    driver: {sidecars: [{name: proxy}], initContainers: [{name: get}]}\n    executor:\n"
        "      gpu: {name: nvidia.com/gpu, quantity: 2}\n      template: {spec: {containers: [{name: spark, "
        "resources: {limits: {hugepages-2Mi: 4Mi}}}]}}\n"
    )
    found: list[Finding] = []
    driver, executor = pods_of(load_documents(file), report=found.append)
    assert [one.name for one in driver.containers] == ["get", "spark-kubernetes-driver", "proxy"]
    assert {"cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"} == set(executor.containers[0].requests)
    assert [one.code for one in found] == ["MOOR-516", "MOOR-516"]
    assert found[1].message.startswith("planned as its executor, which requests ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("  executor: {memory: 8Gi}\n", "spec.executor.memory: '8Gi' is no size of Spark; write it as Spark reads it"),
        ("  executor: {instances: -1}\n", "instances"),
        ("  memoryOverheadFactor: much\n", "spec.memoryOverheadFactor: 'much' is no number"),
    ],
)
def test_sizes_that_spark_does_not_read_are_refused(spec: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(spark, tmp_path, spec)


def test_misspelt_fields_of_spark_are_named(tmp_path: Path) -> None:
    found: list[Finding] = []
    spark(tmp_path, "  driver: {corelimit: '1'}\n  executer: {cores: 4}\n", report=found.append)
    assert {one.subject for one in found if one.code == "MOOR-512"} == {"spec.driver.corelimit", "spec.executer"}


@pytest.mark.parametrize(
    "text",
    [
        "spark-submit --master k8s://https://h:6443 --conf spark.executor.instances=5 local:///a.jar\n",
        "#!/bin/bash\nset -e\n\n./bin/spark-submit \\\n  --master k8s://h \\\n  local:///a.jar\n",
        "$ $SPARK_HOME/bin/spark-submit --deploy-mode cluster a.py\n",
    ],
)
def test_a_command_of_spark_is_refused_with_what_to_give(text: str, tmp_path: Path) -> None:
    file = tmp_path / "submit.sh"
    file.write_text(text)
    assert "a command of Spark, which makes the pods itself; give its pods, kubectl" in refusal(load_documents, file)
