"""Values of the opt-out annotation that nobody can read.

Only ``true`` opts out (:func:`mooring.agent.reactor.placing.opted_out`). Who writes ``yes`` gets CPUs of his own and
would not learn why.
"""

from __future__ import annotations

from mooring.agent.reactor.effects import Effect, EventFor, Finding, Report
from mooring.agent.reactor.values import AgentState
from mooring.core.pod import Pod

_READ = frozenset({"true", "false"})


def opt_out_unread(state: AgentState, pod: Pod) -> tuple[Effect, ...]:
    """Return what tells of an opt-out annotation with another value than ``true`` or ``false``, when a pod is new.

    Args:
        state: before the pod was decided about.
        pod: that is to be.
    """
    name = state.options.opt_out_annotation
    value = pod.annotations.get(name) if name else None
    if value is None or value.strip().lower() in _READ:
        return ()
    if pod.uid in state.kubelet.node.active or pod.uid in state.held:
        return ()
    text = f"annotation {name}: {value!r:.60} is neither true nor false and counts as false"
    return (
        Report(Finding.OPT_OUT_UNREAD, f"{pod.namespace}/{pod.name}: {text}", pod.uid),
        EventFor(pod.uid, pod.namespace, pod.name, "OptOutUnread", text),
    )
