"""Every command that an answer prints contains the options of the call, and runs as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.cli.command import NODE, PODS, Answered, mooring

WORKLOADS = Path(__file__).parent.parent / "manifest" / "workloads"
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: app, resources: {{limits: {limits}}}}}]}}
"""
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: single-numa-node
featureGates: {CPUManagerPolicyAlphaOptions: true}
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
memoryManagerPolicy: Static
systemReserved: {memory: 1948Mi}
kubeReserved: {cpu: "0"}
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}]
"""
MACHINE = ("--machine", "sockets=2 cores=8 threads=2 memory=32Gi")
LIMITS = [
    "{cpu: 3, memory: 1Gi}",
    "{cpu: 20, memory: 1Gi}",
    "{cpu: 40, memory: 1Gi}",
    "{cpu: 2, memory: 20Gi}",
    "{cpu: 2, memory: 60Gi}",
]


def printed(answered: Answered) -> list[list[str]]:
    """Return the commands in an answer as a shell reads them."""
    lines = (line.partition("mooring ") for line in answered.out.replace("\\\n", "").splitlines())
    found = [shlex.split(rest) for before, command, rest in lines if command and before.strip() in ("", *"123456789")]
    return [words for words in found if not words[1].startswith("MOOR-")]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "a kubelet.yaml"
    file.write_text(CONFIG)
    return str(file)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("verb", ["explain", "whatif"])
def test_printed_changes_run_and_admit_the_pod(tmp_path: Path, config: str, limits: str, verb: str) -> None:
    names = ["first", "asked"]
    files = [tmp_path / f"{name} pod.yaml" for name in names]
    for file, name, amounts in zip(files, names, ("{cpu: 2, memory: 1Gi}", limits), strict=True):
        file.write_text(POD.format(name=name, limits=amounts))
    options = ("--active", files[0], "-f", files[1], "--config", config, *MACHINE, "--kubelet-version", "1.36")
    commands = printed(mooring(verb, *options, columns=60))
    assert commands
    for words in commands:
        assert words[0] == "whatif"
        # Every pod is admitted after the change, as the answer promises.
        assert mooring(*words).code == 0, words


def test_a_change_that_is_made_already_stays_in_the_command() -> None:
    made = ("--set", "topologyManagerPolicy=restricted")
    commands = printed(mooring("whatif", "core/timekeeper", *PODS, *NODE, *made))
    assert commands
    for words in commands:
        assert words[:5] == ["whatif", *PODS, *NODE[:2]]
        assert any(word.startswith("topologyManagerPolicy=") for word in words)
        after = mooring(*words, "-o", "json").document["after"]
        assert {pod["name"]: pod["admitted"] for pod in after["pods"]}["timekeeper"]


def test_the_command_that_explains_an_admitted_pod_runs() -> None:
    options = ("-f", WORKLOADS / "inferenceservice.yaml", "--pod-template-path", "InferenceService=spec.predictor")
    [words] = printed(mooring("explain", *options, *NODE, "--strict"))
    answered = mooring(*words)
    assert answered.code == 0
    assert "default/iris-predictor-0 is admitted" in answered.out
