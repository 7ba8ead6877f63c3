"""``mooring replay``: recorded scenarios through the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mooring.answers.base.inputs.checks import STANDARD_INPUT, check_open
from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit, emit_document, tell
from mooring.explanations.phrases import cpus_text, plural
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import agreement as replay_files
    from mooring.answers.base import plan_document
    from mooring.cli import terminal
    from mooring.engine.kubelet import events
    from mooring.inputs.pods import scenario as scenarios


if TYPE_CHECKING:
    from collections.abc import Mapping

    from mooring.answers.base.agreement import ReplayOutcome
    from mooring.inputs.pods.scenario import Scenario

EPILOG = """\b
Examples:
  mooring replay tests/corpora/admission-cpu-packed.jsonl.gz --check
  mooring replay scenario.yaml --machines machines.jsonl -o jsonl
  mooring replay recordings --check

\b
A scenario names its machine: one of the machine descriptions, a shipped
machine, or compact text (machine: sockets=2 numa=4 cores=16 ...).
"""

_SHOWN_DIFFERENCES = 5
"""Differences printed for one scenario; the rest is counted."""

_LONGEST_VALUE = 200
"""Characters of a value that are printed in a difference."""


@click.command("replay", cls=Verb, epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.texts(
    "--machines",
    "FILE",
    "Machine descriptions, one a line; repeatable. Default: every *machines.jsonl beside FILE.",
)
@options.flag("--check", "Compare with the recorded answers.")
@options.output(("text", "jsonl"), "text")
def command(files: tuple[str, ...], machines: tuple[str, ...], form: str, *, check: bool) -> int:
    """Run scenario files (JSON lines, gzip, or YAML), or all recordings of a folder, and print or compare the answers.

    Exit code 1 when an answer differs from its recording or a scenario is not supported.
    """
    check_open([file for file in files if file == STANDARD_INPUT])
    is_yes = True
    for file in [one for given in files for one in scenarios.recording_files(given)]:
        tally = Counter[str]()
        # Answers that run over the screen one by one are progress enough.
        watched = terminal.Watched(
            Path(file).name, partial(replay_files.count_lines, file), on_screen=form == "text" and check
        )
        for outcome in watched.items(replay_files.replay_file(file, machines, compare=check)):
            tally[outcome.standing] += 1
            if form == "jsonl":
                emit_document(msgspec.json.encode(outcome.answer).decode())
            lines = [*_lines(outcome, answers=form == "text" and not check)]
            if lines:
                with watched.aside():
                    (tell if form == "jsonl" else emit)("\n".join(lines))
        if form == "text":
            # The counts of one file in words
            # With its folder where it is one of a folder, because all nodes' files are alike
            shown = Path(file).name if file in files else "/".join(Path(file).parts[-2:])
            shown = "standard input" if file == STANDARD_INPUT else shown
            parts = [f"{shown}: {plural(tally.total(), 'scenario')}"]
            if check:
                parts.append(f"{tally['agree']} agree, {tally['differ']} differ")
                parts += [f"{tally['unknown']} have no recorded answer"] if tally["unknown"] else []
            emit(", ".join([*parts, f"{tally['unsupported']} not supported"]))
        is_yes = is_yes and not (tally["differ"] or tally["unsupported"])
    return YES if is_yes else NO


def _lines(outcome: ReplayOutcome, *, answers: bool) -> Iterator[str]:
    """Yield what people should know: the answer if wanted, differences, and why a scenario is not supported."""
    case, answer = outcome.case, outcome.answer
    if answers and isinstance(case, scenarios.MergeCase):
        result = answer["result"]
        nodes = "no mask" if result["numa"] is None else f"NUMA nodes {','.join(map(str, result['numa']))}"
        preferred = "preferred" if result["preferred"] else "not preferred"
        yield f"{case.id}: {nodes}, {preferred}, {'admitted' if result['admitted'] else 'not admitted'}"
    elif answers and not isinstance(case, scenarios.MergeCase) and "expect" in answer:
        yield from _scenario_lines(case, answer["expect"])
    if outcome.standing == "unsupported":
        yield f"{outcome.id}: not supported: {outcome.answer['unsupported']}"
    for field, recorded, answered in outcome.differences[:_SHOWN_DIFFERENCES]:
        yield f"{outcome.id}: {field}: recorded {_short(recorded)}, answered {_short(answered)}"
    if len(outcome.differences) > _SHOWN_DIFFERENCES:
        yield f"{outcome.id}: and {len(outcome.differences) - _SHOWN_DIFFERENCES} more differences"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _scenario_lines(case: Scenario, expect: Mapping[str, Any]) -> Iterator[str]:
    if "startError" in expect:
        yield f"{case.id}: the kubelet would not start: {expect['startError']}"
        return
    start = expect["start"]
    yield f"{case.id}: started, shared pool {start['sharedPool'] or 'empty'}"
    for back in start.get("readmitted", ()):
        yield f"  running {back['uid']}: {_verdict(back)}"
    results = expect.get("steps", [])
    for step, result in zip(case.steps, results, strict=False):
        waited = "".join(f"; {uid}: {_resize_words(one)}" for uid, one in result.get("retried", {}).items())
        yield f"  {_step_words(step)}: {_result_words(step, result)}{waited}"
    if expect.get("endless"):
        named = _step_words(case.steps[len(results)]) if len(results) < len(case.steps) else "the last step"
        yield f"  {named}: the kubelet would never return"


def _step_words(step: events.Step) -> str:
    match step:
        case events.Admit():
            return f"admit {step.pod.namespace}/{step.pod.name}"
        case events.Remove():
            return f"remove {step.uid}"
        case events.Resizing():
            return f"resize {step.uid}"
        case events.Advance():
            return f"{plan_document.span_text(step.nanoseconds)} later"
        case events.Offline() | events.Online():
            return f"{cpus_text(step.cpus.mask)} {'offline' if isinstance(step, events.Offline) else 'online'}"
        case events.Reboot():
            return "reboot"
        case _:
            return "restart"


def _result_words(step: events.Step, result: Mapping[str, Any]) -> str:
    if isinstance(step, events.Offline | events.Online):
        parts = [f"shared pool {result['usablePool'] or 'empty'}", *_standing_words(result)]
        for pod, sets in result["restored"].items():
            parts += [f"{_place(pod, name)} {one['cpus']} again" for name, one in sets.items()]
        return "; ".join(parts)
    if isinstance(step, events.Admit):
        return _verdict(result)
    if isinstance(step, events.Resizing):
        return _resize_words(result)
    if isinstance(step, events.Advance):
        changing = [f"{uid}: {_resize_words(one)}" for uid, one in result["pods"].items() if one["resize"]["condition"]]
        return "; ".join([f"shared pool {result['sharedPool'] or 'empty'}", *changing])
    if "startError" in result:
        return f"the kubelet would not start: {result['startError']}"
    if isinstance(step, events.Remove):
        return "; ".join([f"shared pool {result['sharedPool'] or 'empty'}", *_standing_words(result)])
    refused = [back for back in result["readmitted"] if not back["admitted"]]
    kept = len(result["readmitted"]) - len(refused)
    words = "".join(f"; {back['uid']} refused: {back['reason']}: {back['message']}" for back in refused)
    return f"{plural(kept, 'pod')} admitted again{words}"


def _standing_words(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield whose sets are not what they were, after whatever step."""
    for pod, sets in result.get("displaced", {}).items():
        for name, one in sets.items():
            yield f"{_place(pod, name)} {one['cpus']} instead of {one['original']}"
    for pod, sets in result.get("broken", {}).items():
        for name, one in sets.items():
            why = result.get("refused", {}).get(pod, {}).get(name, "")
            yield f"{_place(pod, name)} {one['cpus']} broken: {one['lost']} offline{f' ({why})' if why else ''}"


def _place(pod: str, container: str) -> str:
    return f"{pod}/{container}" if container else pod


def _resize_words(result: Mapping[str, Any]) -> str:
    """Say what a pod holds, what it releases, and why it does not get what it wants."""
    wanting = result["resize"]
    parts = [f"{wanting['reason']}: {wanting['message']}"] if wanting["reason"] else []
    for name, held in result["containers"].items():
        pending = result["pending"].get(name)
        then = f" ({pending['cpus']} after {pending['after']})" if pending else ""
        parts.append(f"{name} {held['cpus'] or 'shared'}{then}")
    return ", ".join(parts)


def _verdict(result: Mapping[str, Any]) -> str:
    if not result["admitted"]:
        return f"{result['reason']}: {result['message']}"
    parts = []
    for name, held in result["containers"].items():
        mems = f" memory {held['mems']}" if held["mems"] else ""
        parts.append(f"{name} {held['cpus'] or 'shared'}{mems}")
    return f"admitted; {', '.join(parts)}"
