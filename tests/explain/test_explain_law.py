"""Every recorded pod can be explained, and no explanation contradicts the decision."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from msgspec import to_builtins
from tests.explain.situations import each_pod
from tests.planner.recordings import CORPORA, WHOLE, lines, machines, scenarios

from mooring.answers.base.answering import Answer, answered
from mooring.answers.base.pods import explanation_document, story_of
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.facts import ExistingCPUsKept, PodShareCut
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.facts import PodNotSupported, PodWithdrawn
from mooring.explanations.codes import all_codes
from mooring.explanations.story import PodVerdict, Story, Taking
from mooring.inputs.configuration.devices import device_table
from mooring.views.decision import decision_view
from mooring.views.svg.decision import decision_svg

EVERY = 100
"""Of the recorded scenarios every hundredth is looked at."""
FEW = 4 if WHOLE else 12
"""Of the small recordings every fourth or twelfth."""

CODES = frozenset(all_codes())


def ask(kubelet: Kubelet, pod: Pod, running: bool) -> tuple[Kubelet | None, tuple[Answer, Kubelet]]:
    after, answer = answered(kubelet, pod, running=running)
    return None if answer.never_returns else after, (answer, after)


def check(answer: Answer, kubelet: Kubelet) -> Story:
    """Fail unless the story of an answer can be told in every form and says what was decided."""
    story = story_of(answer)
    topology = kubelet.settings.topology
    document = to_builtins(explanation_document(story, "machine", topology))
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    nodes = sorted(node.node_id for node in kubelet.info.topology)
    if len(nodes) <= 8:
        assert decision_svg(decision_view(story, nodes, topology)).endswith("</svg>\n")
    assert story.why.code in CODES
    assert {remark.code for remark in story.remarks} <= CODES
    refused = [chapter for chapter in story.chapters if chapter.failed]
    withdrawn = any(isinstance(fact, PodWithdrawn | PodNotSupported) for fact in story.facts)
    match story.verdict:
        case "admitted":
            assert not refused
            assert not story.unreached or kubelet.settings.pod_scope or not told_of_cpus(kubelet)
            check_placements(story, answer)
        case "rejected":
            assert refused or withdrawn
            assert not withdrawn or not refused
            assert story.reason
        case _:
            assert story.verdict in (PodVerdict.ENDLESS, PodVerdict.CRASH)
    check_takings(story)
    check_merges(story)
    check_remedy(story)
    return story


def told_of_cpus(kubelet: Kubelet) -> bool:
    return kubelet.settings.cpu is not None


def check_placements(story: Story, answer: Answer) -> None:
    """What the steps gave a container is what it holds."""
    for chapter in story.chapters:
        given = [
            step.taken if isinstance(step, Taking) else step.cpus
            for step in chapter.steps
            if isinstance(step, Taking | ExistingCPUsKept | PodShareCut)
        ]
        if given and chapter.container:
            assert given[-1] == answer.decision.containers[chapter.container].cpus.mask
        if given and not chapter.container:
            assert given[-1] == answer.decision.pod.cpus.mask
    if any(placement.cpus for placement in answer.decision.containers.values()):
        assert story.why.code in ("MOOR-161", "MOOR-162")


def check_takings(story: Story) -> None:
    """What the rules gave adds up to what was taken, run by run."""
    for chapter in story.chapters:
        for step in chapter.steps:
            if isinstance(step, Taking) and not step.error:
                picked = 0
                for run in step.runs:
                    of_run = 0
                    for pick in run.picks:
                        of_run |= pick.cpus
                    assert of_run.bit_count() == run.need or of_run & ~run.candidates
                    picked |= of_run
                assert picked == step.taken
                assert step.taken.bit_count() == max(step.need, 0) or any(
                    pick.cpus & ~run.candidates for run in step.runs for pick in run.picks
                )


def check_merges(story: Story) -> None:
    """The result of a merge is among what could be reached, and a refused merge ends the story."""
    for chapter in story.chapters:
        merge = chapter.merge
        if merge is None:
            continue
        if merge.choices is not None and merge.result.mask is not None:
            assert merge.result.mask in merge.choices
        if not merge.admitted:
            assert story.verdict == PodVerdict.REJECTED
            assert not chapter.steps


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    [
        path.name
        for path in sorted(CORPORA.glob("*.gz"))
        if not path.name.startswith(("merge", "admission-config-errors", "admission-edges"))
    ],
)
def test_every_recorded_pod_is_explained_without_contradiction(name: str) -> None:
    checked: Counter[str] = Counter()
    for scenario in scenarios(name, EVERY if len(lines(name)) > 10 * EVERY else FEW):
        devices = DeviceState(device_table(scenario.devices))
        for answer, kubelet in each_pod(scenario, machines(), ask, devices):
            checked[check(answer, kubelet).verdict] += 1
    assert checked.total() > 5
    assert checked[PodVerdict.ADMITTED] or checked[PodVerdict.REJECTED]


def check_remedy(story: Story) -> None:
    """General advice was not tried, so that it names no amount: amounts come from the search for changes."""
    assert not any(character.isdigit() for character in story.why.remedy.replace("900m", ""))
