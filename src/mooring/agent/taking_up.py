"""Going on under another configuration, with all pods where they are."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.options import choices_of
from mooring.agent.reactor.outcomes import EventOutcome, Refused
from mooring.agent.reactor.placing import waiting_placed
from mooring.agent.reactor.resizing import releases_resumed
from mooring.agent.reactor.resume import reconfigured
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState
from mooring.core.decision import StartRefusal
from mooring.core.moment import Moment
from mooring.core.observer import Observer


def under(state: AgentState, new: AgentConfiguration, now: Moment, observer: Observer | None = None) -> EventOutcome:
    """Return what another configuration comes to, or why the old one stays.

    That the engine accepts it was asked before, but the state may have changed since.

    Args:
        state: under the old one.
        new: the other one.
        now: the present moment.
        observer: hears of the engine's facts, for metrics.
    """
    same = (state.kubelet.settings.config, state.kubelet.mooring) == (new.kubelet, new.mooring)
    after = state if same and not new.mooring.plugins.plugins else _reconfigured(state, new, now)
    if isinstance(after, StartRefusal):
        return EventOutcome(state, Refused(after.message))
    placed = waiting_placed(replace(after, options=choices_of(new.options)), observer)
    after, effects = enforced(state, placed.state)
    return outcome(state, after, None, (*effects, *placed.effects))


def _reconfigured(state: AgentState, new: AgentConfiguration, now: Moment) -> AgentState | StartRefusal:
    found = reconfigured(state, new.kubelet, new.mooring)
    if isinstance(found, StartRefusal):
        return found
    # What only memory knew of releases begins anew, as after a restart.
    after = found.state
    return releases_resumed(replace(after, kubelet=after.kubelet.at(now)))
