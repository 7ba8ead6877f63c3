"""A kubelet with its files while containers are resized: what is in the files, what a restart makes of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.plans import started_kubelet

from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, restart_kubelet, start_kubelet
from mooring.inputs.machines.compact import parse_compact

INFO = parse_compact("cores=16 threads=1").info
CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
CONFIG = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", feature_gates={CPUS: True, f"{CPUS}ScaleDownDelay": True}
)
MOORING = MooringConfig(extensions=frozenset({"exclusive-resize", "scale-down-delay"}))
PLAIN = replace(CONFIG, feature_gates={})


def pod(cpus: int) -> Pod:
    amounts = {"cpu": Quantity.of_milli(1000 * cpus), "memory": Quantity.parse("1Gi")}
    containers = (Container("app", requests=amounts, limits=amounts),)
    return Pod("uid", "web", containers=containers, qos=QoS.GUARANTEED, scale_down_grace=10)


def shrinking() -> Kubelet:
    """Return a kubelet in the middle of a delay: a pod grew from two to four CPUs and is to have three."""
    kubelet = started_kubelet(INFO, CONFIG, MOORING).at(Moment(100 * SECOND, "boot"))
    kubelet, decision = kubelet.admit(pod(2))
    assert decision.admitted
    kubelet, _ = kubelet.resize(pod(4))
    kubelet, answer = kubelet.resize(pod(3))
    assert answer.accepted
    return kubelet


def data_of(files: StateTexts) -> dict[str, object]:
    data: dict[str, object] = json.loads(json.loads(files.cpu or "")["data"])
    return data


def after_start(kubelet: Kubelet, boot: str | None = None) -> Kubelet:
    start = restart_kubelet(kubelet, boot=boot)
    assert isinstance(start, Kubelet)
    again, readmission = start.readmit(kubelet.node.active.values())
    assert readmission.decisions[0].admitted
    return again


def ends(kubelet: Kubelet) -> int:
    return kubelet.node.cpu.pre_assignments["uid"]["app"].apply_at.since_boot // SECOND


def test_every_change_is_written_at_once() -> None:
    kubelet = shrinking()
    assert data_of(kubelet.files)["entries"] == {"uid": {"app": "1-4"}}
    assert data_of(kubelet.files)["preAssignments"] == {
        "uid": {"app": {"cpuSet": "1-3", "applyAt": 110 * SECOND, "bootId": "boot"}}
    }
    done = kubelet.at(Moment(110 * SECOND, "boot")).reconcile()
    assert data_of(done.files) == {
        "policyName": "static",
        "defaultCpuSet": "0,4-15",
        "entries": {"uid": {"app": "1-3"}},
        "baselines": {"uid": {"app": {"baseline": "1-2"}}},
    }
    assert done.reconcile().cpu_file is done.cpu_file


def test_a_delay_goes_on_over_a_restart_and_begins_anew_after_a_reboot() -> None:
    later = shrinking().at(Moment(104 * SECOND, "boot"))
    assert ends(after_start(later)) == 110
    assert after_start(later).node.moment == Moment(104 * SECOND, "boot")
    assert ends(after_start(later, boot="other")) == 10


def test_a_delay_that_was_over_in_between_is_applied_at_the_first_reconciliation() -> None:
    late = after_start(shrinking().at(Moment(500 * SECOND, "boot")))
    assert str(late.node.shared_pool) == "0,5-15"
    assert str(late.reconcile().node.shared_pool) == "0,4-15"


def test_a_kubelet_without_the_extension_starts_on_the_file_and_keeps_the_cpus() -> None:
    """A node is rolled back in the middle of a delay (KEP-6122, cases 8 and 9)."""
    kubelet = shrinking()
    old, readmission = started_kubelet(INFO, PLAIN, MooringConfig(), kubelet.files).readmit([pod(3)])
    assert readmission.decisions[0].admitted
    assert str(readmission.decisions[0].containers["app"].cpus) == "1-4"
    old, answer = old.resize(pod(2))
    assert answer.reason == "Infeasible"
    old, _ = old.admit(replace(pod(2), uid="new", name="new"))
    assert not {"preAssignments", "baselines"} & data_of(old.files).keys()
    # And forward again: what the containers have becomes their baseline.
    new = started_kubelet(INFO, CONFIG, MOORING, old.files)
    assert new.node.cpu.baselines == new.node.cpu.assignments


@pytest.mark.parametrize(
    ("state", "extended", "plain"),
    [
        (
            CPUState("static", NO_CPUS, {"uid": {"app": CPUMask(6)}}, {}, {"uid": {"app": CPUMask(6)}}),
            "default cpuset cannot be empty when assignments exist",
            "default cpuset cannot be empty",
        ),
        (
            CPUState("static", NO_CPUS, {}, {}, {"uid": {"app": CPUMask(6)}}),
            "default cpuset cannot be empty when originals exist and assignments don't exist",
            "",
        ),
    ],
    ids=["assignments", "baselines"],
)
def test_a_pool_that_is_empty_is_refused_in_the_words_of_the_kubelet_that_starts(
    state: CPUState, extended: str, plain: str
) -> None:
    files = StateTexts(cpu_state_text(state, pod_level=False, baselines=True))
    refusal = refusal_of(start_kubelet(INFO, CONFIG, MOORING, files))
    assert refusal is not None
    assert refusal.message == f"start cpu manager error: {extended}"
    assert refusal.code
    without = refusal_of(start_kubelet(INFO, PLAIN, MooringConfig(), files))
    assert (without.message if without is not None else "") == (f"start cpu manager error: {plain}" if plain else "")
