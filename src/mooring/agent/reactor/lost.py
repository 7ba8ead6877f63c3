"""An answer that never arrived: the runtime does not know what the state says that it was told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, Occasion
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import HAS_CGROUP, UPDATABLE, AgentState, Setting
from mooring.agent.reactor.wanted import Wanted, lift_of_container, write_of


def answer_lost(state: AgentState, container_ids: Collection[str]) -> Outcome:
    """Make true what a lost answer was to make true: the cgroups at once, the runtime's record with the next update.

    Args:
        state: in which the answer counts as given.
        container_ids: containers that the answer had updates of.
    """
    wanted = Wanted.now(state)
    after, effects = state, list[Effect]()
    for one in state.containers.values():
        if one.id not in container_ids or one.phase not in UPDATABLE:
            continue
        setting = wanted.of(one.uid, one.name)
        if one.phase in HAS_CGROUP:
            effects += (write_of(one, setting, Occasion.CHECK), *lift_of_container(one, setting))
            after = after.with_container(replace(one, told=Setting(), written=setting))
        else:
            after = after.with_container(replace(one, told=Setting()))
    return outcome(state, after, None, tuple(effects))
