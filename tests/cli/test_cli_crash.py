"""A crash of the kubelet on one pod does not end a plan: the pod is left out, and the others are asked."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import Answered, mooring

CONFIG = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
memoryManagerPolicy: Static
kubeReserved: {memory: 924Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
"""
POD = """\
kind: Pod
metadata: {name: NAME}
spec: {containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi EXTRA}}}]}
"""
MACHINE = "cores=4 threads=2 memory=16Gi"


def plan(folder: Path, *options: str, machine: str = MACHINE) -> Answered:
    """Plan three pods, of which the second requests huge pages."""
    pods = [("first", ""), ("huge", ", hugepages-1Gi: 1Gi"), ("last", "")]
    text = "---\n".join(POD.replace("NAME", name).replace(" EXTRA", extra) for name, extra in pods)
    (folder / "pods.yaml").write_text(text, encoding="utf-8")
    (folder / "kubelet.yaml").write_text(CONFIG, encoding="utf-8")
    given = ("-f", folder / "pods.yaml", "--config", folder / "kubelet.yaml", "--machine", machine)
    return mooring("plan", *given, "-o", "json", *options)


def verdicts(answered: Answered) -> dict[str, str]:
    """Return what became of each pod that was asked about."""
    return {
        one["name"]: "crash" if "crash" in one else "admitted" if one["admitted"] else "rejected"
        for one in answered.document["pods"]
    }


def test_the_pods_after_a_crash_are_asked(tmp_path: Path) -> None:
    answered = plan(tmp_path)
    assert verdicts(answered) == {"first": "admitted", "huge": "crash", "last": "admitted"}
    assert answered.code == 1
    assert "unasked" not in answered.document


def test_the_huge_pages_that_the_machine_text_lacks_are_named_and_can_be_added(tmp_path: Path) -> None:
    (found,) = [one for one in plan(tmp_path).document["findings"] if one["code"] == "MOOR-152"]
    assert found["subject"] == "default/huge"
    assert "the machine as it was given lists no hugepages-1Gi" in found["message"]
    assert "add hugepages-1Gi=PAGES (0 for none)" in found["message"]
    listed = plan(tmp_path, machine=f"{MACHINE} hugepages-1Gi=0")
    assert verdicts(listed) == {"first": "admitted", "huge": "rejected", "last": "admitted"}
    assert verdicts(plan(tmp_path, machine=f"{MACHINE} hugepages-1Gi=1"))["huge"] == "admitted"


def test_a_plan_can_stop_at_a_crash(tmp_path: Path) -> None:
    answered = plan(tmp_path, "--stop-at-crash")
    assert verdicts(answered) == {"first": "admitted", "huge": "crash"}
    assert [one["name"] for one in answered.document["unasked"]] == ["last"]
