"""The search for another scope, policy or option: the kubelet restarts, and the whole question is asked again.

One field or option is changed at a time, with what it cannot go without: the feature gate of an option, and leaving
out all options where the CPU manager's policy becomes ``none``. Where the kubelet would not start on the state files
that there are, they are deleted as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.answers.base.changes.change import NOTHING, Cost, PlannedChange, applied, of_settings
from mooring.answers.base.changes.configuration import GATES, ConfigField, FreshState
from mooring.answers.base.changes.search import Proposal, QueueOutcome, Search, begin, followed, plus, proposal
from mooring.answers.base.guarantee import is_on
from mooring.answers.base.question import Question
from mooring.engine.core.config import EXTENSIONS, KubeletConfig, with_defaults
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.gates import FeatureGates, resolve_gates
from mooring.engine.core.machine import Machine
from mooring.engine.cpumanager.options import GROUP_GATES
from mooring.engine.releases.config_fields import CPU_OPTIONS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gates import cpu_option_groups, known_gates
from mooring.engine.topologymanager.options import DEFAULT_MAX_ALLOWABLE, MAX_ALLOWABLE, PREFER_CLOSEST

SCOPES = ("container", "pod")
POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
"""Topology policies, the strictest first: of two that admit a pod the stricter one is nearer."""

DELETIONS = (
    (),
    (FreshState("cpu"),),
    (FreshState("memory"),),
    (FreshState("cpu"), FreshState("memory")),
)
"""Which state files go, the fewest first."""


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield every single field or option that admits the pod and leaves all others admitted.

    A looser topology policy that costs no less than a stricter one, apart from the guarantees, is left out.
    """
    if not search.has_room:
        return
    stricter: Cost | None = None
    for changes in candidates(search.question):
        found = _asked_again(search.question, changes, search.pod.uid, search.expected)
        if found is None:
            continue
        made, course = found
        after = course.after.settings
        cost = of_settings(search.settings, after, (*search.earlier, search.pod))
        cost = plus(cost, touched=search.touched(course), **_restart(made))
        is_policy = after.topology_policy != search.settings.topology_policy
        if is_policy and stricter is not None and not cost < stricter:
            continue
        stricter = cost if is_policy else stricter
        yield search.proposal(made, cost, course)


def proposals_to_start(question: Question, uid: str) -> Iterator[Proposal]:
    """Yield what lets a kubelet start that would not, and admits the pod."""
    for changes in ((), *candidates(question)):
        found = _asked_again(question, changes, uid, frozenset({uid}))
        if found is not None:
            made, course = found
            yield proposal(question, made, plus(NOTHING, **_restart(made)), uid, course)


def _restart(changes: tuple[PlannedChange, ...]) -> dict[str, int]:
    return {"restarts": 1, "state_files": sum(isinstance(change, FreshState) for change in changes)}


def _asked_again(
    question: Question, changes: tuple[PlannedChange, ...], uid: str, expected: frozenset[str]
) -> tuple[tuple[PlannedChange, ...], QueueOutcome] | None:
    """Ask the whole question with the changes, and with as few state files deleted as the kubelet needs to start."""
    for deleted in DELETIONS:
        if any(getattr(question.files, change.manager) is None for change in deleted):
            continue
        made = (*changes, *deleted)
        changed = applied(question, made)
        start = begin(changed)
        if isinstance(start, StartRefusal):
            if start.stage != "start":
                return None
            continue
        if not made:
            return None
        course = followed(*start, changed.leaving, expected)
        return (made, course) if course is not None and course.admitted(uid) else None
    return None


def candidates(question: Question) -> Iterator[tuple[PlannedChange, ...]]:
    """Yield the changes of one field or option each, those that loosen least first."""
    config = with_defaults(question.config)
    for scope in SCOPES:
        if scope != config.topology_manager_scope:
            yield (ConfigField("topologyManagerScope", scope),)
    yield from _options(config, question.machine, question.mooring.release.name)
    for policy in POLICIES:
        if policy != config.topology_manager_policy:
            yield (ConfigField("topologyManagerPolicy", policy),)
    for policy in ("Static", "None"):
        if policy != config.memory_manager_policy:
            yield (ConfigField("memoryManagerPolicy", policy),)
    if config.cpu_manager_policy != "static":
        yield (ConfigField("cpuManagerPolicy", "static"),)
    if config.cpu_manager_policy != "none":
        left_out = [ConfigField(f"{CPU_OPTIONS}.{name}", "") for name in sorted(config.cpu_manager_policy_options)]
        yield (ConfigField("cpuManagerPolicy", "none"), *left_out)


def _options(config: KubeletConfig, machine: Machine, release: str) -> Iterator[tuple[PlannedChange, ...]]:
    options = config.cpu_manager_policy_options
    if config.cpu_manager_policy == "static":
        for name, group in cpu_option_groups(release).items():
            if is_on(options.get(name, "")):
                yield (ConfigField(f"{CPU_OPTIONS}.{name}", "false"),)
            else:
                yield (*_gate(config, group, release), ConfigField(f"{CPU_OPTIONS}.{name}", "true"))
    if config.topology_manager_policy == "none":
        return
    on = is_on(config.topology_manager_policy_options.get(PREFER_CLOSEST, ""))
    yield (ConfigField(f"{TOPOLOGY_OPTIONS}.{PREFER_CLOSEST}", "false" if on else "true"),)
    nodes = len(machine.info.topology)
    if nodes > DEFAULT_MAX_ALLOWABLE:
        wanted = str(nodes)
        if config.topology_manager_policy_options.get(MAX_ALLOWABLE, "") != wanted:
            yield (ConfigField(f"{TOPOLOGY_OPTIONS}.{MAX_ALLOWABLE}", wanted),)


def _gate(config: KubeletConfig, group: str, release: str) -> tuple[PlannedChange, ...]:
    """Return the feature gate that an option of a group needs and that is off."""
    name, gates = GROUP_GATES.get(group, ""), resolve_gates(config.feature_gates, known_gates(release), EXTENSIONS)
    is_off = isinstance(gates, FeatureGates) and bool(name) and not gates[name]
    return (ConfigField(f"{GATES}.{name}", "true"),) if is_off else ()
