"""What is known of a node besides its pods, from a plan: its findings, and to whom they may be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mooring.answers.base.plan import Plan
from mooring.engine.core.machine import Finding
from mooring.engine.node.hotplug import hotplug_findings
from mooring.monitoring.serve.snapshot import ANY, NodeNotice

_OWNER: Final = re.compile(r"(?:claim )?([a-z0-9-]+)/")
"""How the subject begins that is a pod, one of its containers or a claim. Domains of resources have a dot, which names
of namespaces cannot have."""
_QUOTING: Final = ("plugin ", "state files")
"""How the subjects begin of findings with the words of a plugin, or with uids of the state files."""


def plan_notices(plan: Plan) -> Iterator[NodeNotice]:
    """Yield what a page shows of a plan besides its pods, each with the namespace of the pods that it names."""
    pods = {answer.pod.uid: answer.pod for answer in plan.answers} | {pod.uid: pod for pod in plan.unasked}
    names = {f"{pod.namespace}/{pod.name}": pod.namespace for pod in pods.values()}
    if plan.kubelet is None:
        message = plan.refusal.message if plan.refusal is not None else ""
        brief = "The kubelet would not start"
        yield NodeNotice(f"{brief}: {message}", True, ANY, brief)
    offline = hotplug_findings(plan.kubelet.node) if plan.kubelet is not None else []
    for one in plan.findings:
        if one not in offline:
            text = one.message if one.message.startswith(one.subject) else f"{one.subject}: {one.message}"
            yield NodeNotice(text, one.severity == "warning", _namespace(one, names))
    for one in offline:
        yield NodeNotice(f"{one.subject} {one.message}", True, _namespace(one, names))


def _namespace(finding: Finding, names: Mapping[str, str]) -> str:
    """Return the namespace of the pods that a finding names, empty where it names none."""
    if finding.subject.startswith(_QUOTING):
        return ANY
    text = f"{finding.subject} {finding.message}"
    named = {namespace for name, namespace in names.items() if name in text}
    if owner := _OWNER.match(finding.subject):
        named.add(owner[1])
    return named.pop() if len(named) == 1 else ANY if named else ""
