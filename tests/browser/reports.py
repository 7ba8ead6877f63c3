"""The reports that the browser opens, made as a user makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.report import machine_report, report_of
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pod_files import load_pods
from mooring.views.report import ReportView

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LARGE = "sockets=2 numa=8 cores=256 threads=2 l3=32 memory=1Ti"
WITH_HUGE_PAGES = "sockets=2 numa=4 cores=64 threads=2 l3=16 memory=256Gi hugepages-2Mi=4096"

REFUSED = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
"""

LARGE_CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: restricted
maxPods: 500
reservedSystemCPUs: "0,256"
reservedMemory: [{numaNode: 0, limits: {memory: 2148Mi}}]
kubeReserved: {memory: 1Gi}
systemReserved: {memory: 1Gi}
evictionHard: {memory.available: 100Mi}
"""


def large_pods(count: int = 200) -> str:
    """Return pods of several shapes, with names as long as those of Deployments."""
    pods = []
    for number in range(count):
        cpus, memory = ((2, "1Gi"), (1, "512Mi"), (4, "2Gi"), (3, "2Gi"), (2, "4Gi"), (6, "1Gi"))[number % 6]
        sidecar = "500m" if number % 5 == 0 else "1"
        pods.append(
            "apiVersion: v1\nkind: Pod\n"
            f"metadata: {{name: workload-{number:03}-7f9c8d5b6-x2x4z, namespace: team-{number % 7}}}\n"
            "spec:\n  containers:\n"
            f'    - {{name: main, resources: {{limits: {{cpu: "{cpus}", memory: {memory}}}}}}}\n'
            f'    - {{name: sidecar, resources: {{limits: {{cpu: "{sidecar}", memory: 128Mi}}}}}}\n'
        )
    return "---\n".join(pods)


def asked(machine: str, config: Path | None = None, pods: Path | None = None) -> ReportView:
    """Return the report about pods on a machine; about the machine alone without a configuration."""
    loaded = load_machine(machine)
    if config is None:
        return machine_report(loaded)
    configuration = load_config(str(config))
    question = Question(
        loaded,
        configuration.kubelet,
        configuration.mooring,
        tuple(load_pods([str(pods)])) if pods else (),
        devices=offered_devices(configuration.devices, loaded),
        findings=configuration.findings,
    )
    return report_of(make_plan(question))


def all_reports(folder: Path) -> Mapping[str, ReportView]:
    """Return the reports by name; ``folder`` takes their input."""
    (folder / "large.yaml").write_text(LARGE_CONFIG, encoding="utf-8")
    (folder / "pods.yaml").write_text(large_pods(), encoding="utf-8")
    (folder / "refused.yaml").write_text(REFUSED, encoding="utf-8")
    return {
        "example": asked("epyc-7763-2s-nps4", EXAMPLES / "kubelet.yaml", EXAMPLES / "pods.yaml"),
        "devices": asked(WITH_HUGE_PAGES, EXAMPLES / "ai-kubelet.yaml", EXAMPLES / "ai-pods.yaml"),
        "large": asked(LARGE, folder / "large.yaml", folder / "pods.yaml"),
        "hybrid": asked("i7-1370p"),
        "refused": asked("small-1s8", folder / "refused.yaml", EXAMPLES / "pods.yaml"),
    }
