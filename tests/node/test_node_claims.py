from __future__ import annotations

from functools import reduce
from operator import or_

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.strategies_whole_node import configurations, hardware, pods
from tests.node.nodes import config, machine

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.owners import HeldClaim, OwnerKind, claim_of, claims_of, state_owner
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node import Node
from mooring.engine.node.claims import Claim, Share, claim, claimable, release

# Two NUMA nodes with four cores each; CPU n and n + 8 are siblings; CPU 0 is reserved.
INFO = machine()
NUMA0, NUMA1 = 0x0F0F, 0xF0F0


def asked(count: int, within: int = NUMA1, *, uid: str = "u1", wished: int = 0, numa_nodes: int = 0) -> Claim:
    return Claim(uid, "shop", "cpus", (Share("fast", "numa1", count, CPUMask(within), CPUMask(wished), numa_nodes),))


def fresh(configuration: KubeletConfig | None = None) -> Node:
    return Node.fresh(INFO, configuration or config())


def cpus_of(node: Node, uid: str = "u1") -> str:
    held = claim_of(node.cpu, uid)
    return "" if held is None else list_text(held.cpus)


def reason(node: Node, wanted: Claim) -> str:
    after, refused = claim(node, wanted)
    assert after is node
    assert refused is not None
    return refused.reason


def test_a_claim_gets_whole_cores_of_its_group_and_the_shared_pool_loses_them() -> None:
    node, refused = claim(fresh(), asked(4))
    assert refused is None
    assert cpus_of(node) == "4-5,12-13"
    assert str(node.shared_pool) == "0-3,6-11,14-15"


def test_a_group_never_gives_reserved_cpus() -> None:
    node, _ = claim(fresh(), asked(7, NUMA0))
    assert cpus_of(node) == "1-3,8-11"
    assert reason(fresh(), asked(8, NUMA0)) == "InsufficientCPUs"


def test_shares_of_one_claim_are_apart() -> None:
    shares = (Share("a", "numa1", 2, CPUMask(NUMA1)), Share("b", "numa1", 2, CPUMask(NUMA1)))
    node, _ = claim(fresh(), Claim("u1", "shop", "cpus", shares))
    held = claim_of(node.cpu, "u1")
    assert held is not None
    assert {one: list_text(cpus) for one, cpus in held.shares.items()} == {
        ("numa1", "a"): "4,12",
        ("numa1", "b"): "5,13",
    }


def test_asking_twice_changes_nothing() -> None:
    node, first = claim(fresh(), asked(4))
    again, second = claim(node, asked(4))
    assert again is node
    assert second == first


def test_another_allocation_of_the_same_claim_waits_until_the_first_is_given_back() -> None:
    node, _ = claim(fresh(), asked(4))
    assert reason(node, asked(2)) == "ClaimChanged"
    assert reason(node, asked(4, NUMA0)) == "ClaimChanged"
    assert cpus_of(claim(release(node, "u1"), asked(2))[0]) == "4,12"


def test_under_policy_none_there_are_no_claims() -> None:
    assert reason(fresh(KubeletConfig()), asked(1)) == "CPUManagerPolicyNone"
    assert claimable(fresh(KubeletConfig())) == 0


def test_with_full_pcpus_only_half_cores_are_refused() -> None:
    node = fresh(config(options={"full-pcpus-only": "true"}))
    assert reason(node, asked(3)) == "SMTAlignmentError"
    assert reason(node, asked(2, 0b11)) == "InsufficientCPUs"
    assert reason(node, asked(2, 0b110)) == "SMTAlignmentError"
    assert cpus_of(claim(node, asked(2))[0]) == "4,12"


@pytest.mark.parametrize(
    ("count", "numa_nodes", "options", "cpus"),
    [
        (4, 2, {}, "1,4,9,12"),
        (5, 2, {}, "1,4-5,9,12"),
        (6, 2, {"full-pcpus-only": "true"}, "1,4-5,9,12-13"),
        (4, 1, {}, "4-5,12-13"),
        (4, 3, {}, "InsufficientCPUs"),
        (15, 2, {}, "1-15"),
        (12, 1, {}, "InsufficientCPUs"),
    ],
)
def test_a_claim_is_distributed_evenly_over_exactly_as_many_numa_nodes_as_it_asks_for(
    count: int, numa_nodes: int, options: dict[str, str], cpus: str
) -> None:
    node = fresh(config(options=options))
    after, refused = claim(node, asked(count, NUMA0 | NUMA1, numa_nodes=numa_nodes))
    assert (cpus_of(after) if refused is None else refused.reason) == cpus


def test_the_last_cpu_of_the_shared_pool_is_not_given_away() -> None:
    node = fresh(config(options={"strict-cpu-reservation": "true"}))
    assert str(node.shared_pool) == "1-15"
    everything = asked(15, NUMA0 | NUMA1)
    assert reason(node, everything) == "EmptySharedPool"
    assert str(claim(node, asked(14, NUMA0 | NUMA1))[0].shared_pool) == "8"


def test_cpus_that_it_had_before_are_taken_again_where_they_are_free() -> None:
    assert cpus_of(claim(fresh(), asked(2, wished=0xC0))[0]) == "6-7"
    taken, _ = claim(fresh(), asked(2, uid="other", wished=0xC0))
    assert cpus_of(claim(taken, asked(2, wished=0xC0))[0]) == "4,12"
    # Not as many, or not of the group.
    assert cpus_of(claim(fresh(), asked(2, wished=0x40))[0]) == "4,12"
    assert cpus_of(claim(fresh(), asked(2, wished=0x6))[0]) == "4,12"


FIXED = MooringConfig(fixed_defects=frozenset({"pod-restart"}))


class PodsAndClaims(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        while True:
            machine, config = data.draw(hardware()), data.draw(configurations())
            # Defect pod-restart loses CPUs of pods, claims or not.
            start = start_kubelet(machine.info, config, FIXED, StateTexts())
            if isinstance(start, Kubelet) and start.settings.cpu is not None:
                break
        self.kubelet = self.fresh = start
        self.number = 0
        self.claims: dict[str, HeldClaim] = {}

    @property
    def topology(self) -> Topology:
        assert self.kubelet.settings.topology is not None
        return self.kubelet.settings.topology

    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.number += 1
        self.kubelet, _ = self.kubelet.admit(data.draw(pods(f"pod{self.number}")))

    @precondition(lambda self: self.kubelet.node.active)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.kubelet, _ = self.kubelet.remove(data.draw(st.sampled_from([*self.kubelet.node.active])))

    @rule(data=st.data(), count=st.integers(1, 2))
    def claim(self, data: st.DataObject, count: int) -> None:
        self.number += 1
        groups = {f"numa{one}": mask for one, mask in self.topology.numa.items()}
        groups |= {f"socket{one}": mask for one, mask in self.topology.sockets.items()}
        groups |= {f"core{one}": mask for one, mask in self.topology.cores.items()}
        made = []
        for number in range(count):
            device = data.draw(st.sampled_from([*groups]))
            wished = data.draw(st.integers(0, self.topology.all_cpus))
            made.append(Share(f"r{number}", device, data.draw(st.integers(1, 5)), groups[device], CPUMask(wished)))
        uid, before = f"claim{self.number}", self.kubelet
        self.kubelet, refused = before.claim(Claim(uid, "space", uid, tuple(made)))
        taken = claim_of(self.kubelet.node.cpu, uid)
        assert (refused is None) == (taken is not None)
        if taken is None:
            event("refused")
            assert self.kubelet.node is before.node
            return
        self.claims[uid] = taken
        for share in made:
            held = taken.shares[share.device, share.request]
            assert held.bit_count() == share.count
            assert not held & ~share.within
            assert not held & ~claimable(before.node)
            if self.kubelet.settings.cpu is not None and self.kubelet.settings.cpu.rules.whole_cores:
                assert self.topology.core_siblings(held) == held
        assert self.kubelet.release(uid).node.cpu == before.node.cpu

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from([*self.claims]))
        before = self.kubelet.node.shared_pool
        self.kubelet = self.kubelet.release(uid)
        assert self.kubelet.node.shared_pool.mask == before.mask | self.claims.pop(uid).cpus

    @rule()
    def restart(self) -> None:
        start = restart_kubelet(self.kubelet)
        if isinstance(start, NotStarted):
            event("does not start")
            return
        active = self.kubelet.node.active
        self.kubelet, _ = start.readmit(active.values())

    @invariant()
    def claims_have_what_they_got(self) -> None:
        assert claims_of(self.kubelet.node.cpu) == self.claims

    @invariant()
    def no_cpu_has_two_owners_and_none_is_lost(self) -> None:
        policy, state = self.kubelet.settings.cpu, self.kubelet.node.cpu
        assert policy is not None
        claimed = 0
        for one in self.claims.values():
            for cpus in one.shares.values():
                assert not cpus & claimed
                claimed |= cpus
        pods = reduce(
            or_,
            (
                mask
                for uid, sets in state.assignments.items()
                if state_owner(uid).kind is not OwnerKind.CLAIM
                for mask in sets.values()
            ),
            reduce(or_, state.pods.values(), 0),
        )
        assert not claimed & (pods | state.default | policy.reserved)
        assert not pods & state.default
        assert claimed | pods | state.default == policy.shareable

    def teardown(self) -> None:
        if hasattr(self, "kubelet"):
            for uid in [*self.kubelet.node.active]:
                self.kubelet, _ = self.kubelet.remove(uid)
            for uid in self.claims:
                self.kubelet = self.kubelet.release(uid)
            assert self.kubelet.settled().node.cpu.default == self.fresh.node.cpu.default


TestPodsAndClaims = PodsAndClaims.TestCase
TestPodsAndClaims.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
