"""The story of one pod of a plan."""

from __future__ import annotations

from dataclasses import replace

from mooring.core.pod import Pod
from mooring.explain import reason as code
from mooring.explain import story as tell
from mooring.explain.chapters import chapters_of
from mooring.explain.circumstances import Circumstances
from mooring.explain.codes.pages import page
from mooring.explain.reason import Reason
from mooring.explain.remarks import all_remarks
from mooring.explain.story import Story
from mooring.kubelet.kubelet import Kubelet
from mooring.node.facts import AdmissionBegun, StaleStateRemoved
from mooring.planner.answering import Answer
from mooring.planner.explain.held_claims import claims_told
from mooring.planner.picture import policies
from mooring.planner.plan import Plan


def explain(plan: Plan, pod: Pod, container: str = "") -> Story:
    """Return the story of a pod of the plan, as a whole or for one of its containers.

    Args:
        plan: what was decided.
        pod: one of its pods, also one that nobody was there to ask.
        container: name of one of its containers; empty for all of them.
    """
    place = next((place for place, one in enumerate(plan.answers) if one.pod.uid == pod.uid), None)
    if plan.kubelet is None or place is None:
        return _untold(plan, pod, container)
    answer = plan.answers[place]
    return replace(story_of(answer, plan.kubelet, container), claims=claims_told(answer, _before(plan, place)))


def _before(plan: Plan, place: int) -> Kubelet:
    """Return the kubelet that gave an answer, as it was then; CPUs go offline after the pods that ran already."""
    kubelet, after = plan.trace[place], plan.kubelet
    gone = after.node.cpu.offline & ~kubelet.node.cpu.offline if after is not None else 0
    return kubelet.offline(gone)[0] if gone and not plan.answers[place].running else kubelet


def story_of(answer: Answer, kubelet: Kubelet, container: str = "") -> Story:
    """Return the story of an answer that a kubelet gave.

    Args:
        answer: with its facts.
        kubelet: the one that was asked; its settings count, not its state.
        container: name of one of the pod's containers; empty for all of them.
    """
    pod, facts, settings = answer.pod, answer.facts, kubelet.settings
    chapters = chapters_of(pod, facts, settings)
    told = {chapter.container for chapter in chapters}
    remarks = all_remarks(answer.decision, Circumstances(settings, pod, facts, kubelet.node.memory))
    return Story(
        pod=pod,
        container=container,
        verdict=_verdict(answer),
        running=answer.running,
        why=Reason(answer.code, answer.why, answer.remedy),
        reason=answer.decision.reason,
        message=answer.decision.message,
        circumstances=policies(kubelet),
        remarks=tuple(remarks),
        chapters=tuple(one for one in chapters if not container or one.container in ("", container)),
        unreached=tuple(one.name for one in pod.containers if one.name not in told) if chapters else (),
        dropped=_dropped(facts),
        facts=facts,
    )


def _verdict(answer: Answer) -> str:
    if answer.crash:
        return tell.CRASH
    if answer.decision.endless is not None:
        return tell.ENDLESS
    return tell.ADMITTED if answer.admitted else tell.REJECTED


def _dropped(facts: tuple[object, ...]) -> tuple[str, ...]:
    """Return the pods whose leftovers were dropped before this one was decided about."""
    begun = next((at for at, fact in enumerate(facts) if isinstance(fact, AdmissionBegun)), 0)
    found = [uid for fact in facts[begun:] if isinstance(fact, StaleStateRemoved) for uid in fact.pods]
    return tuple(dict.fromkeys(found))


def _untold(plan: Plan, pod: Pod, container: str) -> Story:
    """Return the story of a pod that nobody was there to ask."""
    if plan.refusal is not None:
        why = Reason(
            plan.refusal_code,
            f"{page(plan.refusal_code).title}: the kubelet would not start, so that nobody asks about the pod.",
            plan.remedy,
        )
        verdict, reason, message = tell.NOT_STARTED, plan.refusal.stage, plan.refusal.message
    else:
        last = plan.answers[-1] if plan.answers else None
        before = f" of {last.pod.namespace}/{last.pod.name}" if last is not None else ""
        why = Reason(
            last.code if last is not None else code.NOT_SERVED,
            f"The kubelet would not return from the admission{before}, so that nobody asks about this pod.",
            last.remedy if last is not None else "",
        )
        verdict, reason, message = tell.NOT_ASKED, "", ""
    return Story(
        pod=pod,
        container=container,
        verdict=verdict,
        running=False,
        why=why,
        reason=reason,
        message=message,
        circumstances=policies(plan.kubelet) if plan.kubelet is not None else "",
        remarks=(),
        chapters=(),
        unreached=(),
        dropped=(),
        facts=(),
    )
