"""Starting on a state, restarting, admitting again (cpu-manager.md section 2, "What a step does" of the recordings)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine, node, settings_of

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Endless, StartRefusal
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node import Node, Readmission, StartRefusedError
from mooring.engine.node.settings import RestoredStates, start_managers
from mooring.engine.topologymanager.hints import Hint


def one(uid: str, cpu: str) -> Pod:
    return guaranteed(uid, container("c", cpu))


def restarted(busy: Node, kubelet: KubeletConfig | None = None) -> tuple[Node, Readmission]:
    answer = busy.restart(settings_of(kubelet) if kubelet else None)
    assert not isinstance(answer, StartRefusal), answer
    return answer


# Start.


def test_a_refused_start_raises_with_the_kubelets_text() -> None:
    with pytest.raises(StartRefusedError) as error:
        node(options={"fast": "true"})
    text = 'new static policy error: unknown CPU Manager Policy option: "fast"'
    assert error.value.refusal == StartRefusal("cpuManager", text)
    assert str(error.value) == text


def test_policy_none_looks_at_nothing_but_the_name() -> None:
    state = CPUState("none", CPUMask(0b1), {"u": {"c": CPUMask(0b1)}})
    found = Node.start(settings_of(KubeletConfig()), RestoredStates(state))
    assert isinstance(found, Node)
    assert found.cpu is state


def test_the_memory_manager_is_not_reached_behind_a_cpu_manager_that_fails() -> None:
    bad_cpu, bad_memory = StartRefusal("start", "cpu"), StartRefusal("start", "memory")
    settings = settings_of(config())
    assert start_managers(settings, RestoredStates(bad_cpu, bad_memory)) == (None, None, bad_cpu)
    cpu, *rest = start_managers(settings, RestoredStates(None, bad_memory))
    assert (cpu is None, *rest) == (False, None, bad_memory)


# Restart.


def test_readmitted_pods_lose_no_hints_when_they_end() -> None:
    """Only containers that were started since the kubelet's start delete theirs (topology-manager.md section 4)."""
    busy, _ = node("best-effort").admit(one("u", "2"))
    after, _ = restarted(busy)
    assert after.started == {}
    removed, _ = after.remove("u")
    assert removed.stored_hints == {"u": {"c": Hint(NUMAMask(0b1), True)}}
    started, _ = busy.remove("u")
    assert started.stored_hints == {}


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


def test_another_configuration_can_keep_the_kubelet_from_starting() -> None:
    busy, _ = node().admit(one("u", "2"))
    strict = busy.restart(settings_of(config(options={"strict-cpu-reservation": "true"})))
    text = 'start cpu manager error: some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,2-8,10-15"'
    assert strict == StartRefusal("start", text)
    other = busy.restart(settings_of(KubeletConfig()))
    assert isinstance(other, StartRefusal)
    bad = StartRefusal("validation", "bad")
    assert busy.restart(bad) is bad


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
