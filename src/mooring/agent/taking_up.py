"""Going on under another configuration, with all pods where they are."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.options import choices_of
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.resizing import releases_resumed
from mooring.agent.reactor.resume import Resumed, reconfigured
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState
from mooring.core.moment import Moment


def under(state: AgentState, new: AgentConfiguration, now: Moment) -> Outcome:
    """Return what another configuration comes to. That the engine accepts it was asked before.

    Args:
        state: under the old one.
        new: the other one.
        now: the present moment.
    """
    options = choices_of(new.options)
    same = (state.kubelet.settings.config, state.kubelet.mooring) == (new.kubelet, new.mooring)
    after = state if same and not new.mooring.plugins.plugins else _reconfigured(state, new, now)
    after, effects = enforced(state, replace(after, options=options))
    return outcome(state, after, None, effects)


def _reconfigured(state: AgentState, new: AgentConfiguration, now: Moment) -> AgentState:
    found = reconfigured(state, new.kubelet, new.mooring)
    if not isinstance(found, Resumed):
        return state
    # What only memory knew of releases begins anew, as after a restart.
    after = found.state
    return releases_resumed(replace(after, kubelet=after.kubelet.at(now)))
