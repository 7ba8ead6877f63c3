"""What makes a refused resize possible: another size, one pod fewer, or the extension that resizes; each is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mooring.answers.base.plan import make_plan
from mooring.answers.base.question import Question
from mooring.answers.base.start.advice import GENERAL
from mooring.engine.core.config import EXCLUSIVE_RESIZE
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.options import EXCLUSIVE_RESIZE_GATE
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.policies import MEMORY_RESIZE_GATE
from mooring.explain import reason as code
from mooring.explain.phrases import plural
from mooring.explain.reason import Reason

_MOST_NAMED = 3


def resize_advice(
    reason: Reason, question: Question, kubelet: Kubelet, changed: Pod, sizes: Callable[[], Iterator[str]]
) -> str:
    """Return what to do, each alternative run before; else the general advice, marked as such.

    Args:
        reason: why the resize is refused.
        question: with which the node was filled.
        kubelet: before the resize.
        changed: the pod with the resources that it is to have.
        sizes: yields other sizes that are accepted, as instructions.
    """
    tried = [*sizes(), *_without_a_pod(kubelet, changed)]
    if reason.code == code.RESIZE_BY_POLICY:
        tried += _with_the_extension(question, changed)
    if tried:
        text = ", or ".join(tried)
        return f"{text[0].upper()}{text[1:]}: the resize is then accepted (run here)."
    return f"{GENERAL}{reason.remedy}" if reason.remedy else ""


def _accepts(kubelet: Kubelet, changed: Pod) -> bool:
    return not kubelet.resize(changed)[1].reason


def _without_a_pod(kubelet: Kubelet, changed: Pod) -> Iterator[str]:
    """Yield the removal of a pod that is enough alone, the pods with the fewest exclusive CPUs first."""
    node = kubelet.node
    found: list[tuple[int, str]] = []
    for uid, pod in node.active.items():
        try:
            enough = uid != changed.uid and _accepts(kubelet.without({uid}), changed)
        except KubeletCrashError:  # on releasing what another pod shared
            continue
        if enough:
            held = sum(cpus.bit_count() for cpus in node.cpu.assignments.get(uid, {}).values())
            found.append((held, f"{pod.namespace}/{pod.name}"))
    names = [name for _, name in sorted(found)]
    if names:
        more = f" (or one of {plural(len(names) - _MOST_NAMED, 'other')})" if len(names) > _MOST_NAMED else ""
        yield f"remove {' or '.join(names[:_MOST_NAMED])}{more}"


def _with_the_extension(question: Question, changed: Pod) -> Iterator[str]:
    """Yield the fewest gates with which the extension exclusive-resize accepts it."""
    mooring = replace(question.mooring, extensions=question.mooring.extensions | {EXCLUSIVE_RESIZE})
    for gates in ((EXCLUSIVE_RESIZE_GATE,), (MEMORY_RESIZE_GATE,), (EXCLUSIVE_RESIZE_GATE, MEMORY_RESIZE_GATE)):
        config = replace(question.config, feature_gates={**question.config.feature_gates, **dict.fromkeys(gates, True)})
        kubelet = make_plan(replace(question, config=config, mooring=mooring)).kubelet
        if kubelet is not None and changed.uid in kubelet.node.active and _accepts(kubelet, changed):
            yield f"let mooring agent pin, with {' and '.join(gates)} and the extension {EXCLUSIVE_RESIZE}"
            return
