"""The pod that a decision is made about: of a source where one knows it, else derived."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from mooring.agent.nri.types import Container as RuntimeContainer
from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.agreement import Difference, differences
from mooring.agent.pods.derive import Guess, derived
from mooring.agent.pods.source import OnePod
from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.manifest.defaults import PodGates
from mooring.manifest.pod_fields import scale_down_grace
from mooring.manifest.pods import DEFAULT_GATES
from mooring.node.mixed import ANNOTATION, check_mixing


@dataclass(frozen=True, slots=True)
class Resolved:
    """A pod, and how far it is to be trusted."""

    pod: Pod
    is_derived: bool
    """Whether no source knew it."""
    guesses: tuple[Guess, ...] = ()
    differences: tuple[Difference, ...] = ()
    """Where the source's pod and the runtime do not agree. The decision goes by the pod, as the kubelet's does."""
    problems: tuple[str, ...] = ()
    """Annotations of a derived pod that cannot be understood; they count for nothing. A source's pod has none."""


def resolved(
    source: OnePod | None,
    sandbox: PodSandbox,
    container: RuntimeContainer | None,
    others: Sequence[RuntimeContainer] = (),
    gates: PodGates = DEFAULT_GATES,
) -> Resolved:
    """Return the pod of a sandbox.

    Args:
        source: None when there is none.
        sandbox: as the runtime tells it.
        container: the one that is being created, as its client asks for it; None when it is about the pod alone.
        others: the pod's other containers as their client asked for them, in the order of their creation.
        gates: say whether a derived pod's own scale-down delay is looked at.

    >>> found = resolved(None, PodSandbox("s", "u", "web", "shop", cgroup_parent="/kubepods/podu"), None)
    >>> found.pod.uid, found.is_derived
    ('u', True)
    """
    pod = source.pod(sandbox) if source is not None else None
    if pod is not None:
        return Resolved(pod, is_derived=False, differences=tuple(differences(pod, sandbox, container)))
    made = derived(sandbox, [*others, *([container] if container is not None else [])])
    return Resolved(
        _with_delay(made.pod, gates), is_derived=True, guesses=made.guesses, problems=_mixing_problems(made.pod, gates)
    )


def _mixing_problems(pod: Pod, gates: PodGates) -> tuple[str, ...]:
    # Containers that are still to come are not known, so that a name cannot be wrong.
    names = [name.removeprefix(f"{ANNOTATION}.") for name in pod.annotations]
    try:
        check_mixing(pod.annotations if gates.knows_mixing else {}, names)
    except InputError as error:
        return (str(error),)
    return ()


def _with_delay(pod: Pod, gates: PodGates) -> Pod:
    """Return the pod with the delay of its annotation; one that cannot be understood is none."""
    with suppress(InputError):
        grace = scale_down_grace({}, pod.annotations, gates, stored=True)
        return pod if grace is None else replace(pod, scale_down_grace=grace)
    return pod
