"""Random lives of pods and claims on one node: no CPU has two owners, none is lost, and reserved ones are nobody's."""

from __future__ import annotations

from functools import reduce
from operator import or_

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.strategies_whole_node import configurations, hardware, pods

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.owners import HeldClaim, OwnerKind, claim_of, claims_of, state_owner
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node.claims import Claim, Share, claimable

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
        by_key = {(one.device, one.request): one for one in taken.shares}
        for share in made:
            held = by_key[share.device, share.request].cpus
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
            for share in one.shares:
                assert not share.cpus & claimed
                claimed |= share.cpus
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
