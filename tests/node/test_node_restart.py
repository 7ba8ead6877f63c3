"""Starting on a state, restarting, admitting again (cpu-manager.md section 2, "What a step does" of the recordings)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine, node, settings_of

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Endless, StartRefusal
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node, Readmission, StartRefusedError
from mooring.engine.node.start import RestoredStates, start_managers
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hint, Hints

ALL = (1 << 16) - 1


def one(uid: str, cpu: str) -> Pod:
    return guaranteed(uid, container("c", cpu))


def restarted(busy: Node, kubelet: KubeletConfig | None = None) -> tuple[Node, Readmission]:
    answer = busy.restart(settings_of(kubelet) if kubelet else None)
    assert not isinstance(answer, StartRefusal), answer
    return answer


# Start.


def test_a_fresh_node_has_the_whole_machine_in_its_pool() -> None:
    assert str(node().shared_pool) == "0-15"
    assert str(node(options={"strict-cpu-reservation": "true"}).shared_pool) == "1-15"
    assert Node.fresh(machine(), KubeletConfig()).cpu == CPUState("none", NO_CPUS, {})


def test_a_refused_start_raises_with_the_kubelets_text() -> None:
    with pytest.raises(StartRefusedError) as error:
        node(options={"fast": "true"})
    text = 'new static policy error: unknown CPU Manager Policy option: "fast"'
    assert error.value.refusal == StartRefusal("cpuManager", text)
    assert str(error.value) == text


def test_a_state_that_does_not_fit_keeps_the_kubelet_from_starting() -> None:
    found = Node.start(settings_of(config()), RestoredStates(CPUState("static", CPUMask(ALL & ~1), {})))
    text = 'start cpu manager error: not all reserved cpus: "0" are present in defaultCpuSet: "1-15"'
    assert found == StartRefusal("start", text)


def test_a_state_of_another_policy_keeps_the_kubelet_from_starting() -> None:
    found = Node.start(settings_of(config()), RestoredStates(CPUState("none", NO_CPUS, {})))
    assert found == StartRefusal(
        "start",
        "start cpu manager error: could not restore state from checkpoint: "
        'configured policy "static" differs from state checkpoint policy "none", please drain this node and delete '
        'the CPU manager checkpoint file "cpu_manager_state" before restarting Kubelet',
    )


def test_policy_none_looks_at_nothing_but_the_name() -> None:
    state = CPUState("none", CPUMask(0b1), {"u": {"c": CPUMask(0b1)}})
    found = Node.start(settings_of(KubeletConfig()), RestoredStates(state))
    assert isinstance(found, Node)
    assert found.cpu is state


def test_the_memory_manager_is_not_reached_behind_a_cpu_manager_that_fails() -> None:
    bad_cpu, bad_memory = StartRefusal("start", "cpu"), StartRefusal("start", "memory")
    settings = settings_of(config())
    started = start_managers(settings, RestoredStates(bad_cpu, bad_memory))
    assert (started.cpu, started.memory, started.refusal) == (None, None, bad_cpu)
    started = start_managers(settings, RestoredStates(None, bad_memory))
    assert (started.cpu is None, started.memory, started.refusal) == (False, None, bad_memory)


def test_too_much_reserved_is_found_last() -> None:
    settings = settings_of(replace(config(), kube_reserved={"memory": "17Gi"}))
    bad_memory = StartRefusal("start", "memory")
    assert start_managers(settings, RestoredStates(None, bad_memory)).refusal == bad_memory
    started = start_managers(settings, RestoredStates())
    assert started.refusal is not None
    assert started.refusal.message.startswith("invalid Node Allocatable configuration.")
    assert isinstance(started.memory, MemoryState)


# Restart.


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_running_pods_keep_their_cpus(policy: str, scope: str) -> None:
    busy = node(policy, scope)
    for uid, cpu in (("a", "2"), ("b", "3"), ("c", "500m")):
        busy, _ = busy.admit(one(uid, cpu))
    after, readmission = restarted(busy)
    assert [decision.uid for decision in readmission.decisions] == ["a", "b", "c"]
    assert readmission.refused == ()
    assert after.cpu == busy.cpu
    assert (after.active, after.stored_hints) == (busy.active, busy.stored_hints)


def test_hints_of_a_running_container_are_made_from_what_it_holds() -> None:
    busy, _ = node("best-effort").admit(one("u", "2"))
    _, readmission = restarted(busy)
    assert readmission.decisions[0].hints == {"c": {"cpu": Hints((NUMAMask(0b1),), (NUMAMask(0b11),))}}


def test_readmitted_pods_lose_no_hints_when_they_end() -> None:
    """Only containers that were started since the kubelet's start delete theirs (topology-manager.md section 4)."""
    busy, _ = node("best-effort").admit(one("u", "2"))
    after, _ = restarted(busy)
    assert after.started == {}
    removed, _ = after.remove("u")
    assert removed.stored_hints == {"u": {"c": Hint(NUMAMask(0b1), True)}}
    started, _ = busy.remove("u")
    assert started.stored_hints == {}


def test_the_record_of_reusable_cpus_is_filled_again_by_readmission() -> None:
    pod = guaranteed("u", container("i", "4", kind=ContainerKind.INIT), container("a", "2"))
    busy, _ = node().admit(pod)
    after, _ = restarted(busy)
    assert after.providers.reusable_cpus == busy.providers.reusable_cpus
    assert after.providers.reusable_cpus.of("u") == mask_of([2, 10])


def test_nothing_stale_is_removed_while_the_kubelet_starts() -> None:
    busy, _ = node("single-numa-node").admit(guaranteed("x", container("a", "6"), container("b", "9")))
    busy = busy.adopt([one("u", "1")])
    after, readmission = restarted(busy)
    assert "x" in after.cpu.assignments
    assert [decision.uid for decision in readmission.decisions] == ["u"]
    assert "x" not in after.admit(one("v", "1"))[0].cpu.assignments


def test_a_pod_that_is_refused_at_the_restart_leaves_the_list_and_keeps_its_cpus_until_later() -> None:
    busy, _ = node("best-effort").admit(one("u", "9"))
    busy, _ = busy.admit(one("v", "2"))
    after, readmission = restarted(busy, config("single-numa-node"))
    assert [decision.uid for decision in readmission.refused] == ["u"]
    assert [*after.active] == ["v"]
    assert "u" in after.cpu.assignments
    assert [*after.admit(one("w", "1"))[0].cpu.assignments] == ["v", "w"]


def test_a_set_of_another_size_is_impossible_for_the_hints_and_kept_by_the_allocation() -> None:
    busy, _ = node("best-effort").admit(one("u", "2"))
    grown = replace(busy, active={"u": one("u", "3")})
    after, readmission = restarted(grown)
    assert readmission.decisions[0].hints == {"c": {"cpu": IMPOSSIBLE}}
    assert readmission.decisions[0].admitted
    assert after.cpu == busy.cpu
    after, readmission = restarted(grown, config("restricted"))
    assert [decision.uid for decision in readmission.refused] == ["u"]


def test_full_pcpus_only_comes_too_late_for_running_containers() -> None:
    busy, _ = node().admit(one("u", "3"))
    after, readmission = restarted(busy, config(options={"full-pcpus-only": "true"}))
    assert (readmission.refused, after.cpu) == ((), busy.cpu)


def test_another_configuration_can_keep_the_kubelet_from_starting() -> None:
    busy, _ = node().admit(one("u", "2"))
    strict = busy.restart(settings_of(config(options={"strict-cpu-reservation": "true"})))
    text = 'start cpu manager error: some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,2-8,10-15"'
    assert strict == StartRefusal("start", text)
    other = busy.restart(settings_of(KubeletConfig()))
    assert isinstance(other, StartRefusal)
    bad = StartRefusal("validation", "bad")
    assert busy.restart(bad) is bad


def test_reservation_may_move_inside_the_pool() -> None:
    busy, _ = node().admit(one("u", "2"))
    after, _ = restarted(busy, config(reserved="2"))
    assert str(after.settings.allocatable_cpus) == "0-1,3-15"
    refused = busy.restart(settings_of(config(reserved="1")))
    assert isinstance(refused, StartRefusal)


def test_a_restart_ends_at_an_endless_admission() -> None:
    info = machine(4, 10, sockets=2)
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    fresh = node(info=info, options=options, reserved="79")
    kept = mask_of([*range(5), *range(10, 15), *range(20, 25), *range(30, 35), 79])
    held = {"x": {"c": fresh.cpu.default & ~kept}}
    providers = replace(fresh.providers, cpu=replace(fresh.cpu, default=CPUMask(kept), assignments=held))
    busy = replace(fresh, providers=providers).adopt([one("x", "2"), one("u", "14"), one("v", "2")])
    after, readmission = restarted(busy)
    assert [(decision.uid, decision.endless) for decision in readmission.decisions] == [
        ("x", None),
        ("u", Endless("group-loop")),
    ]
    assert after.cpu == providers.cpu
