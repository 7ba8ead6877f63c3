"""What became of a pod, in one value: a stable code, a sentence, and what can be done.

The codes 1xx are given here and nowhere else; each has a page (``mooring explain MOOR-101``). A code names a cause, not
the kubelet's reason: too few CPUs are MOOR-101 whichever manager noticed it.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_ENOUGH_CPUS = "MOOR-101"
LARGER_THAN_A_NODE = "MOOR-102"
NO_SINGLE_NODE = "MOOR-103"
TOO_MANY_NODES = "MOOR-104"
PINNED_BY_EARLIER = "MOOR-105"
HOLDS_ANOTHER_NUMBER = "MOOR-106"
HELD_ELSEWHERE = "MOOR-107"
PULLED_APART = "MOOR-108"

NOT_ENOUGH_MEMORY = "MOOR-111"
NO_SINGLE_NODE_FOR_MEMORY = "MOOR-112"
TOO_MANY_NODES_FOR_MEMORY = "MOOR-113"
MEMORY_GROUP_CONFLICT = "MOOR-114"
TOO_LITTLE_WHERE_CHOSEN = "MOOR-115"

NO_WHOLE_CORES = "MOOR-121"
TOO_FEW_WHOLE_CORES = "MOOR-122"
NOTHING_TO_SHARE = "MOOR-123"
TAKING_FAILS = "MOOR-124"
WITHHELD = "MOOR-125"

NOT_ENOUGH_DEVICES = "MOOR-131"
DEVICES_APART = "MOOR-132"
MORE_DEVICES_THAN_A_NODE = "MOOR-133"
PINNED_BY_DEVICES = "MOOR-134"
DEVICES_FAR_APART = "MOOR-135"
FAR_FROM_DEVICES = "MOOR-136"
HELD_APART = "MOOR-137"
UNKNOWN_NODES = "MOOR-138"

OUT_OF_CPU = "MOOR-141"
OUT_OF_MEMORY = "MOOR-142"
OUT_OF_PODS = "MOOR-143"
OUT_OF_ANOTHER_RESOURCE = "MOOR-144"
NO_POD_LEVEL_RESOURCES = "MOOR-145"

NEVER_RETURNS = "MOOR-151"
CRASHES = "MOOR-152"
NOT_SERVED = "MOOR-159"

EXCLUSIVE_CPUS = "MOOR-161"
PARTITION = "MOOR-162"
UNHEALTHY_DEVICES = "MOOR-139"

SHARED_BY_POLICY = "MOOR-163"
SHARED_BY_QOS = "MOOR-164"
SHARED_BY_AMOUNT = "MOOR-165"
SHARED_BY_GATE = "MOOR-166"

SPREAD = "MOOR-171"
CACHES_SPLIT = "MOOR-172"
STRANDED_CPUS = "MOOR-173"
UNEVEN_SHARES = "MOOR-174"
CORE_SHARED = "MOOR-175"
NEIGHBOURS_SHARE = "MOOR-176"
MEMORY_GROUP = "MOOR-177"
MEMORY_ELSEWHERE = "MOOR-178"
POOL_EMPTY = "MOOR-179"
DEVICES_SPREAD = "MOOR-180"

RESIZE_BY_POLICY = "MOOR-181"
BELOW_BASELINE = "MOOR-182"
BETWEEN_POOLS = "MOOR-183"
NO_ROOM_BESIDE = "MOOR-184"
NO_POD_LEVEL_RESIZE = "MOOR-185"
WITHOUT_BASELINE = "MOOR-186"
LESS_MEMORY = "MOOR-187"
HIDDEN_SIBLINGS = "MOOR-188"
RESIZE_NOT_SERVED = "MOOR-189"
DEVICES_ELSEWHERE = "MOOR-190"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is."""

    code: str
    sentence: str
    """Plain words; a clause without its subject where it becomes part of a sentence."""
    remedy: str = ""
    """One or two sentences about what to do; empty where nothing is to be done. It is general advice and not tried: it
    names no figure. What is found by asking the engine again is in ``mooring.answers.base.changes``."""
