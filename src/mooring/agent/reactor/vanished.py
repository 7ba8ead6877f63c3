"""Sandboxes that went without a word.

After its own restart containerd (2.1.9 and 2.4.2, measured) tells no plugin that a sandbox from before it is stopped or
removed. What such a pod held would stay taken until the next Synchronize.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, Finding, Report
from mooring.agent.reactor.sandbox import end_sandbox
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import AgentState, Phase
from mooring.core.observer import Observer


def vanished(state: AgentState, sandbox_ids: Iterable[str], observer: Observer | None = None) -> Outcome:
    """End sandboxes of which the kernel has nothing left.

    One in which a container is being made stays: its group is yet to come.

    Args:
        state: now.
        sandbox_ids: where neither the sandbox nor a container of it has a control group.
        observer: hears of the engine's facts, for metrics.
    """
    making = {one.sandbox_id for one in state.containers.values() if one.phase is Phase.CREATING}
    after = state
    effects: list[Effect] = []
    for sandbox_id in sandbox_ids:
        sandbox = after.sandboxes.get(sandbox_id)
        if sandbox is None or sandbox_id in making:
            continue
        ended = end_sandbox(after, sandbox, observer)
        after = ended.state
        text = f"the sandbox of {sandbox.namespace}/{sandbox.name} is gone, and the runtime did not say so"
        effects += [*ended.effects, Report(Finding.POD_GONE, text, sandbox.uid)]
    return outcome(state, after, None, tuple(effects))
