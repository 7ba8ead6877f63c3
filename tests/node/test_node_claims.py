from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.small_node import guaranteed
from tests.node.nodes import config, machine

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.owners import OwnerKind, claim_key, claim_of, claims_of, state_owner
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import restart_kubelet, start_kubelet
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


def test_a_claim_does_not_reach_beyond_its_group() -> None:
    assert reason(fresh(), asked(9)) == "InsufficientCPUs"


def test_a_claim_is_all_or_nothing() -> None:
    shares = (Share("a", "numa1", 2, CPUMask(NUMA1)), Share("b", "numa0", 8, CPUMask(NUMA0)))
    assert reason(fresh(), Claim("u1", "shop", "cpus", shares)) == "InsufficientCPUs"


def test_shares_of_one_claim_are_apart() -> None:
    shares = (Share("a", "numa1", 2, CPUMask(NUMA1)), Share("b", "numa1", 2, CPUMask(NUMA1)))
    node, _ = claim(fresh(), Claim("u1", "shop", "cpus", shares))
    held = claim_of(node.cpu, "u1")
    assert held is not None
    assert [(one.request, list_text(one.cpus)) for one in held.shares] == [("a", "4,12"), ("b", "5,13")]
    assert cpus_of(node) == "4-5,12-13"


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


def test_giving_back_restores_the_node() -> None:
    node, _ = claim(fresh(), asked(4))
    assert release(node, "u1").cpu == fresh().cpu
    assert release(fresh(), "u1") == fresh()


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


def test_pods_and_claims_do_not_meet_and_the_removal_of_pods_leaves_claims_alone() -> None:
    node, _ = claim(fresh(), asked(4))
    node, decision = node.admit(guaranteed("pod", "10"))
    assert decision.admitted
    held = decision.containers["main"].cpus
    assert not held & CPUSet.parse(cpus_of(node))
    node, _ = node.remove("pod")
    assert cpus_of(node.settled()) == "4-5,12-13"
    assert [*claims_of(node.cpu)] == ["u1"]


def test_a_restart_from_the_files_keeps_claims_with_their_names() -> None:
    start = start_kubelet(INFO, config(), MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet)
    kubelet, _ = start.claim(asked(4))
    again = restart_kubelet(kubelet)
    assert isinstance(again, Kubelet)
    node = again.settled().node
    assert claim_of(node.cpu, "u1") == claim_of(kubelet.node.cpu, "u1")
    held = claim_of(node.cpu, "u1")
    assert held is not None
    assert (held.namespace, held.name, held.shares[0].device) == ("shop", "cpus", "numa1")
    assert again.release("u1").node.cpu == replace(start.node.cpu)


def test_owners_of_claims_are_told_from_pods() -> None:
    assert state_owner(claim_key("u1")).kind is OwnerKind.CLAIM
    assert state_owner("u1").kind is not OwnerKind.CLAIM
