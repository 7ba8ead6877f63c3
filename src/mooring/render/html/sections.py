"""What the templates show beside the values of the report itself: sums, signs, shades and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mooring.core.machine import Finding
from mooring.explain.phrases import plural
from mooring.render.html.style import HEATS
from mooring.render.palette import use_style
from mooring.render.report import ContainerView, ReportDistances, ReportPod, ReportView
from mooring.render.view import CPUUse
from mooring.render.wording import MARKS, meaning, numbers

_MOST_NODES = 64
"""NUMA nodes up to which distances are shown: more rows than that nobody reads."""


def pods_sentence(report: ReportView) -> str:
    """Return what became of the pods in one line."""
    admitted = sum(pod.admitted for pod in report.pods)
    unasked = sum(pod.step is None for pod in report.pods)
    words = [f"{plural(admitted, 'pod')} admitted", f"{len(report.pods) - admitted - unasked} rejected"]
    words += [f"{unasked} not asked"] if unasked else []
    free = next((entry.count for entry in report.node.legend if entry.use is CPUUse.FREE), 0)
    return f"{', '.join(words)}; {plural(free, 'CPU')} still free for exclusive use."


@dataclass(frozen=True, slots=True)
class LegendRow:
    """What the cells of one use mean, and how many there are after the last step."""

    name: str
    style: str
    swatch: str
    """The style of the cell beside it: exclusive CPUs have a colour for each owner, so theirs has none."""
    sign: str
    count: int
    meaning: str


def legend_rows(report: ReportView) -> Iterator[LegendRow]:
    """Yield a row for every use that some step has."""
    final = {entry.use: entry for entry in report.node.legend}
    seen = {change.state.use for step in report.steps for change in step.cpus} | set(final)
    marks = [owner.mark for owner in report.node.owners]
    for use in (use for use in CPUUse if use in seen):
        yield LegendRow(
            use.value,
            use_style(use),
            "free" if use is CPUUse.EXCLUSIVE else use_style(use),
            MARKS.get(use) or "–".join(dict.fromkeys((marks[0], marks[-1])) if marks else ()),
            final[use].count if use in final else 0,
            final[use].meaning if use in final else meaning(use, strict=False),
        )


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod with the exclusive CPUs of all its containers and the NUMA nodes that these lie on."""

    pod: ReportPod
    cpus: int
    nodes: tuple[int, ...]


def pod_rows(pods: tuple[ReportPod, ...]) -> Iterator[PodRow]:
    """Yield the rows of the table of pods."""
    for pod in pods:
        cpus = {cpu for container in pod.containers for cpu in container.cpus}
        yield PodRow(pod, len(cpus), tuple(sorted({node for one in pod.containers for node in one.cpu_nodes})))


def verdicts(pods: tuple[ReportPod, ...]) -> tuple[str, ...]:
    """Return the verdicts by which the pods can be filtered."""
    usual = ("admitted", "rejected")
    return (*usual, *sorted({pod.verdict for pod in pods} - {*usual}))


def container_text(container: ContainerView) -> str:
    """Return what a container got."""
    words = [container.verdict]
    if container.cpus:
        words.append(f"{plural(len(container.cpus), 'CPU')} {container.cpus}")
        words.append(f"on NUMA {numbers(container.cpu_nodes)}")
    if container.memory_nodes:
        words.append(f"memory on NUMA {numbers(container.memory_nodes)}")
    if container.alignment:
        words.append(container.alignment)
    return " · ".join(words)


def heats(distances: ReportDistances | None) -> Mapping[int, int]:
    """Return a shade for each distance, farther is darker; nothing where there is nothing to compare."""
    if distances is None or not 1 < len(distances.nodes) <= _MOST_NODES:
        return {}
    known = sorted({value for row in distances.rows for value in row})
    return {value: min(HEATS - 1, position * HEATS // len(known)) for position, value in enumerate(known)}


def finding_text(finding: Finding) -> str:
    """Return the message with its subject; most messages name their subject themselves."""
    told = finding.subject.lower() in finding.message.lower()
    return finding.message if told else f"{finding.subject}: {finding.message}"
