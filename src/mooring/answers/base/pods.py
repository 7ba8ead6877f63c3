"""A pod of a plan: found by its name, and its story.

A name is ``[NAMESPACE/]POD[/CONTAINER]`` or a uid; ``*`` in it stands for any text, so that ``web-*`` names all
replicas. A name that fits a pod means the pod, even where a container could be meant.

A claim of dynamic resource allocation is an owner of CPUs besides pods (:mod:`mooring.engine.node.claims`). Whether
claims are why a rejected pod lacks room is not estimated from sums: the engine is asked again without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice

from mooring.answers.base.answering import STATE_FILES, Answer
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan, archive_of, decided_by
from mooring.answers.base.plan_findings import OF_A_STORY
from mooring.engine.core.bits import list_text
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.owners import HeldClaim, claims_of
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.facts import AdmissionBegun, StaleStateRemoved
from mooring.engine.node.settings import policies
from mooring.explanations import codes as code
from mooring.explanations.codes import Reason, page
from mooring.explanations.remarks import all_remarks
from mooring.explanations.story import ClaimsInvolved, Line, PodVerdict, Story
from mooring.explanations.why import why_container
from mooring.lazy import lazily

with lazily():
    from mooring.documents import explanation as parts
    from mooring.documents import facts
    from mooring.explanations import lines

_MOST_NAMED = 6
"""How many candidates a message names."""


@dataclass(frozen=True, slots=True)
class Named:
    """A pod, or one of its containers."""

    pod: Pod
    container: str = ""
    """Empty for the pod as a whole."""

    @property
    def full(self) -> str:
        """The name that means nothing else, unless two pods have the same."""
        return "/".join(part for part in (self.pod.namespace, self.pod.name, self.container) if part)


def pods_of(plan: AnyPlan) -> tuple[Pod, ...]:
    """Return every pod of a plan, asked or not, in order."""
    return (*(answer.pod for answer in plan.answers), *plan.unasked)


def first_refused(plan: AnyPlan) -> Pod | None:
    """Return the first pod that does not run; None when all do."""
    refused = (answer.pod for answer in plan.answers if not answer.admitted)
    return next(refused, None) or next(iter(plan.unasked), None)


def called(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means; none, if it means containers or nothing."""
    return [
        pod
        for pod in pods
        if any(name == text or fnmatchcase(name, text) for name in (Named(pod).full, pod.name, pod.uid))
    ]


def called_or_owning(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means, or that could have the container that it means."""
    owner, slash, _ = text.rpartition("/")
    return called(pods, text) or (called(pods, owner) if slash else [])


def find(pods: Sequence[Pod], text: str) -> Named:
    """Return the one pod or container that a name means.

    Raises:
        InputError: it means none, or several.
    """
    found = [Named(pod) for pod in called(pods, text)] or _containers(pods, text)
    if len(found) > 1:
        raise several(found, text)
    if not found:
        raise unknown(pods, text)
    return found[0]


def find_pods(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means, at least one.

    Raises:
        InputError: there is none, or a name without ``*`` means several.
    """
    found = called(pods, text)
    if not found:
        raise unknown(pods, text)
    if len(found) > 1 and "*" not in text:
        raise several([Named(pod) for pod in found], text)
    return found


def find_pod(pods: Sequence[Pod], text: str) -> Pod:
    """Return the one pod that a name means.

    Raises:
        InputError: it means none, or several.
    """
    found = find_pods(pods, text)
    if len(found) > 1:
        raise several([Named(pod) for pod in found], text)
    return found[0]


def find_containers(pods: Sequence[Pod], text: str) -> list[Named]:
    """Return the containers that a name means, at least one; a pod as a whole stands for its pod-level resources.

    A pod without pod-level resources and with one container needs no container's name.

    Raises:
        InputError: there is none, or the container has to be named.
    """
    if called(pods, text):
        named = find_pods(pods, text)
        unclear = next((pod for pod in named if not pod.is_pod_level and len(pod.containers) != 1), None)
        if unclear is not None:
            problem = f"{Named(unclear).full} has several containers"
            raise InputError(problem, remedy=f"name one of {names_of(unclear)}")
        return [Named(pod, "" if pod.is_pod_level else pod.containers[0].name) for pod in named]
    found = _containers(pods, text)
    if not found:
        raise unknown(pods, text)
    if "*" not in text and len({one.pod.uid for one in found}) > 1:
        raise several(found, text)
    return found


def several(found: Sequence[Named], text: str) -> InputError:
    """Return the error about a name that means more than one thing."""
    names = [named.full for named in found]
    if len(set(names)) < len(names):
        names = [f"{named.full} (uid {named.pod.uid})" for named in found]
    what = "containers" if found[0].container else "pods"
    return InputError(f"{text!r:.80} means {len(found)} {what}: {enumerated(names)}", remedy="name one of them")


def unknown(pods: Sequence[Pod], text: str) -> InputError:
    """Return the error about a name that means nothing, with the names that are nearest to it."""
    owner, slash, container = text.rpartition("/")
    of_this = called(pods, owner) if slash else []
    if of_this:
        return InputError(
            f"{Named(of_this[0]).full} has no container {container!r:.80}", remedy=f"it has {names_of(of_this[0])}"
        )
    known = list(dict.fromkeys(Named(pod).full for pod in pods))
    # A workload's name begins the names of its pods.
    near = [name for name in known if name.startswith(text) or name.partition("/")[2].startswith(text)]
    if not near:
        short = {name.rpartition("/")[2]: name for name in known}
        near = [*get_close_matches(text, known), *(short[name] for name in get_close_matches(text, short))]
    near = list(dict.fromkeys(near))
    remedy = f"did you mean {enumerated(near)}?" if near else f"there are {enumerated(known) or 'none'}"
    return InputError(f"there is no pod {text!r:.80}", remedy=remedy)


def names_of(pod: Pod) -> str:
    """Return the names of a pod's containers, in order."""
    return enumerated([container.name for container in pod.containers])


def _containers(pods: Sequence[Pod], text: str) -> list[Named]:
    owner, slash, container = text.rpartition("/")
    return [
        Named(pod, one.name)
        for pod in (called(pods, owner) if slash else ())
        for one in pod.containers
        if fnmatchcase(one.name, container)
    ]


def enumerated(names: Sequence[str]) -> str:
    """Return names; of many the first, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def explain(plan: AnyPlan, pod: Pod, container: str = "") -> Story:
    """Return the story of a pod of the plan, as a whole or for one of its containers.

    Args:
        plan: what was decided.
        pod: one of its pods, also one that was not evaluated.
        container: name of one of its containers; empty for all of them.
    """
    place = next((place for place, one in enumerate(plan.answers) if one.pod.uid == pod.uid), None)
    if isinstance(plan, RefusedPlan) or place is None:
        return _not_asked(plan, pod, container)
    answer = plan.answers[place]
    story = story_of(answer, container)
    name = f"{pod.namespace}/{pod.name}"
    differs = [
        Reason(one.code, one.message)
        for one in plan.findings
        if one.code in OF_A_STORY and one.subject in (name, STATE_FILES)
    ]
    return replace(
        story,
        remarks=(*story.remarks, *differs),
        circumstances=_circumstances(plan, story.circumstances),
        claims=_claims_involved(plan, place),
    )


def story_of(answer: Answer, container: str = "") -> Story:
    """Return the story of an answer.

    Args:
        answer: with its facts.
        container: name of one of the pod's containers; empty for all of them.
    """
    pod, facts, circumstances = answer.pod, answer.facts, answer.circumstances
    chapters = circumstances.chapters
    told = {chapter.container for chapter in chapters}
    of_pod = Reason(answer.code, answer.why, answer.remedy)
    of_container = why_container(answer.decision, circumstances, container) if answer.admitted and container else None
    remarks = all_remarks(answer.decision, circumstances)
    begun = next((at for at, fact in enumerate(facts) if isinstance(fact, AdmissionBegun)), 0)
    dropped = [uid for fact in facts[begun:] if isinstance(fact, StaleStateRemoved) for uid in fact.pods]
    return Story(
        pod=pod,
        container=container,
        verdict=answer.verdict,
        running=answer.running,
        why=of_container or of_pod,
        reason=answer.decision.reason,
        message=answer.decision.message,
        circumstances=policies(circumstances.settings),
        # How many of the pod's containers share is no remark about one of them.
        remarks=tuple(one for one in remarks if of_container is None or one.code != code.NEIGHBOURS_SHARE),
        chapters=tuple(one for one in chapters if not container or one.container in ("", container)),
        unreached=tuple(one.name for one in pod.containers if one.name not in told) if chapters else (),
        dropped=tuple(dict.fromkeys(dropped)),
        facts=facts,
        shortage=answer.decision.rejection.shortage if answer.decision.rejection else None,
    )


def _not_asked(plan: AnyPlan, pod: Pod, container: str) -> Story:
    """Return the story of a pod that was not evaluated."""
    if isinstance(plan, RefusedPlan):
        why = Reason(
            plan.refusal.code,
            f"{page(plan.refusal.code).title}: the kubelet does not start, so the pod is not evaluated.",
            plan.remedy,
        )
        verdict, reason, message = PodVerdict.NOT_STARTED, plan.refusal.stage, plan.refusal.message
    else:
        last = plan.answers[-1] if plan.answers else None
        before = f" of {last.pod.namespace}/{last.pod.name}" if last is not None else ""
        why = Reason(
            last.code if last is not None else code.NOT_SERVED,
            f"The kubelet never returns from the admission{before}, so this pod is not evaluated.",
            last.remedy if last is not None else "",
        )
        verdict, reason, message = PodVerdict.NOT_ASKED, "", ""
    return Story(
        pod=pod,
        container=container,
        verdict=verdict,
        running=False,
        why=why,
        reason=reason,
        message=message,
        circumstances=_circumstances(
            plan, decided_by(plan.release.tag) if isinstance(plan, RefusedPlan) else policies(plan.kubelet.settings)
        ),
    )


def _circumstances(plan: AnyPlan, rules: str) -> str:
    """Return the node archive, where the plan is about one, and by what rules it was decided."""
    return " · ".join(part for part in (archive_of(plan.findings), rules) if part)


def _claims_involved(plan: Plan, place: int) -> ClaimsInvolved:
    """Return what is to be told of claims to a pod, which is given as the place of its answer."""
    answer = plan.answers[place]
    # An admission changes no claim.
    held = claims_of(answer.decided.cpu)
    by_name = {(claim.namespace, claim.name): claim for claim in held.values()}
    own = [by_name.get((answer.pod.namespace, name)) for name in answer.pod.claims]
    nowhere = tuple(name for name, claim in zip(answer.pod.claims, own, strict=True) if claim is None)
    gone: list[HeldClaim] = []
    if held and not answer.admitted:
        # The kubelet that gave the answer, as it was then; CPUs go offline after the pods that ran already.
        before = next(islice(plan.kubelets(), place, None))
        offline = plan.kubelet.node.cpu.offline & ~before.node.cpu.offline
        before = before.offline(offline)[0] if offline and not answer.running else before
        gone = list(held.values()) if _is_admitted(answer, before, held.values()) else []
        # Small claims are the first that are left where they are, so that few large ones remain.
        for claim in sorted(gone, key=lambda one: (one.cpus.bit_count(), one.namespace, one.name, one.uid)):
            rest = [one for one in gone if one is not claim]
            gone = rest if _is_admitted(answer, before, rest) else gone
    return ClaimsInvolved(
        own=tuple(claim for claim in own if claim is not None),
        nowhere=nowhere,
        in_the_way=tuple(sorted(gone, key=lambda one: (one.namespace, one.name, one.uid))),
        held=sum(claim.cpus.bit_count() for claim in held.values()),
    )


def _is_admitted(answer: Answer, before: Kubelet, without: Iterable[HeldClaim]) -> bool:
    for claim in without:
        before = before.release(claim.uid)
    return admit(before, answer.pod, AdmitMode.TRIAL, running=answer.running)[1].admitted


def explanation_document(
    story: Story,
    machine: str,
    topology: Topology | None,
    nearest: Sequence[parts.ProposalPart] = (),
    release: Release = NEWEST,
) -> parts.ExplanationDocument:
    """Return the document of a story.

    Args:
        story: of the pod.
        machine: name of the machine.
        topology: of the node; None when the kubelet would not start.
        nearest: changes that would admit the pod.
        release: of the kubelet that decided.
    """
    document = parts.ExplanationDocument(
        kubelet=release.tag,
        machine=machine,
        uid=story.pod.uid,
        namespace=story.pod.namespace,
        name=story.pod.name,
        container=story.container,
        verdict=story.verdict,
        running=story.running,
        code=story.why.code,
        why=story.why.sentence,
        remedy=story.why.remedy,
        reason=story.reason,
        message=story.message,
        proposals=list(nearest),
        remarks=[parts.RemarkPart(remark.code, remark.sentence, remark.remedy) for remark in story.remarks],
        story=[_line(line) for line in lines.story_lines(story, topology)],
        claims=parts.StoryClaimsPart(
            own=[_claim(claim) for claim in story.claims.own],
            in_the_way=[_claim(claim) for claim in story.claims.in_the_way],
        ),
        facts=[facts.fact_members(fact) for fact in story.facts],
    )
    document.circumstances = story.circumstances
    return document


def _claim(claim: HeldClaim) -> parts.ClaimPart:
    return parts.ClaimPart(claim.uid, claim.namespace, claim.name, list_text(claim.cpus))


def _line(line: Line) -> parts.StoryLinePart:
    return parts.StoryLinePart(line.text, line.mark, line.detail, [_line(child) for child in line.children])
