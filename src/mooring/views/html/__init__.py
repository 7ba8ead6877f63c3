"""The report as one HTML page that needs nothing else: no network, no other file.

The templates in reading order are filled with the report, its styles, its data and its scripts: text and tables are
written here, what changes from step to step is drawn by the scripts in ``assets`` from the data that the page carries.
The map uses the layout, the colours and the patterns of the SVG.

The templates escape every text. The policy in the page's head lets the browser run and apply only what has the digests
of our own script and styles: a name that slipped through the escaping could still do nothing. Colours are the palette
of the pictures, as CSS variables for light and dark: the reader's system decides which of the two is shown, until the
reader does.

Bars that compare are a page too: the picture, and the same figures as a table. It has no script.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from mooring.documents.plan import PlacementPart
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding
from mooring.explanations.phrases import cpus_text, nodes, plural
from mooring.views.report import ReportPod, ReportView, data_text, map_drawings
from mooring.views.svg import elements as svg
from mooring.views.svg.plot import Plot, plot_svg
from mooring.views.view import OWNER_COLOURS, CPUUse, OwnerView, PlacementRow, mixed, owner_style, text_on, use_style
from mooring.views.wording import MARKS, meaning, numbers

SCRIPTS = (
    "theme.js",
    "state.js",
    "words.js",
    "nodemap.js",
    "outlines.js",
    "focus.js",
    "holdings.js",
    "tables.js",
    "pods.js",
    "differences.js",
    "steps.js",
    "main.js",
)
"""The parts of the script, in their order; together they are one module."""


def html_text(report: ReportView) -> str:
    """Return the report as an HTML document; the same report gives the same bytes."""
    # What became of the pods in one line
    admitted = sum(pod.admitted for pod in report.pods)
    unasked = sum(pod.step is None for pod in report.pods)
    words = [f"{plural(admitted, 'pod')} admitted", f"{len(report.pods) - admitted - unasked} rejected"]
    words += [f"{unasked} not asked"] if unasked else []
    free = len(report.node.legend[CPUUse.FREE][0]) if CPUUse.FREE in report.node.legend else 0
    # A shade for each distance, farther is darker; nothing where there is nothing to compare
    far = report.distances if 1 < len(report.distances) <= _MOST_NODES else {}
    known = sorted({value for row in far.values() for value in row})
    # The verdicts by which the pods can be filtered
    usual = ("admitted", "rejected")
    return page_text(
        "report.html",
        f"\n{script_text(SCRIPTS)}",
        report=report,
        node=report.node,
        data=data_text(report),
        patterns=svg.PATTERNS,
        maps=map_drawings(report),
        positions={(device.resource, device.id): place for place, device in enumerate(report.node.devices)},
        legend=_legend_rows(report),
        pods_sentence=f"{', '.join(words)}; {plural(free, 'CPU')} still free for exclusive use.",
        rows=_pod_rows(report.pods, report.node.owners),
        verdicts=(*usual, *sorted({pod.verdict for pod in report.pods} - {*usual})),
        heats={value: min(HEATS - 1, place * HEATS // len(known)) for place, value in enumerate(known)},
    )


def page_text(template: str, script: str = "", **values: object) -> str:
    """Return a template filled with values, the styles, the script, and a policy that allows nothing besides these."""
    styles = f"\n{style_text()}"
    allowed = f"script-src '{_digest(script)}'; " if script else ""
    policy = f"default-src 'none'; {allowed}style-src '{_digest(styles)}'; base-uri 'none'; form-action 'none'"
    return _environment().get_template(template).render(policy=policy, styles=styles, script=script, **values)


def part_text(template: str, **values: object) -> str:
    """Return a template filled with values, for a page whose server sends styles, script and policy apart."""
    return _environment().get_template(template).render(**values)


def script_text(names: Iterable[str]) -> str:
    """Return parts of a script as one."""
    folder = files("mooring.views.html") / "assets"
    return "".join(f"{(folder / name).read_text(encoding='utf-8')}\n" for name in names)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mooring.views.html"),
        autoescape=True,
        # Escaping lets control characters and lone surrogates pass. What is marked as HTML is of a class of its own.
        finalize=lambda value: clean(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"container_text": _container_text, "finding_text": _finding_text, "numbers": numbers, "plural": plural}
    filters["owner_style"] = owner_style
    environment.filters.update(filters, placement_text=_placement_text)
    environment.filters["moment"] = lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return environment


_MOST_NODES = 64
"""NUMA nodes up to which distances are shown: more rows than that are not readable."""


def _legend_rows(report: ReportView) -> Iterator[dict[str, object]]:
    """Yield for every use that some step has what its cells mean, and how many there are after the last step."""
    final = report.node.legend
    seen = {one.use for step in report.steps for views in step.cpus for one in views} | set(final)
    marks = [owner.mark for owner in report.node.owners]
    for use in (use for use in CPUUse if use in seen):
        sign = MARKS.get(use) or "–".join(dict.fromkeys((marks[0], marks[-1])) if marks else ())
        cpus, told = final[use] if use in final else (CPUSet(), meaning(use, strict=False))
        # Exclusive CPUs have a colour for each owner, so the cell beside theirs has none.
        swatch = "free" if use is CPUUse.EXCLUSIVE else use_style(use)
        named = {"name": use.value, "style": use_style(use), "swatch": swatch}
        yield {**named, "sign": sign, "count": len(cpus), "meaning": told}


def _pod_rows(pods: tuple[ReportPod, ...], owners: tuple[OwnerView, ...]) -> Iterator[dict[str, object]]:
    """Yield pods with the exclusive CPUs of all their containers, the NUMA nodes of these, and their owners on the map.

    Owners are by container; the empty name is the pod as a whole.
    """
    for pod in pods:
        own = {owner.label[len(pod.name) + 1 :]: owner for owner in owners if owner.uid == pod.uid}
        cpus = {cpu for container in pod.containers for cpu in container.cpus}
        nodes_of_pod = sorted({node for one in pod.containers for node in one.cpu_nodes})
        yield {"pod": pod, "cpus": len(cpus), "nodes": nodes_of_pod, "owners": own}


def _container_text(row: PlacementRow) -> str:
    """Return what a container got."""
    words = [row.verdict]
    if row.cpus:
        words.append(f"{plural(len(row.cpus), 'CPU')} {row.cpus}")
        words.append(f"on NUMA {numbers(row.cpu_nodes)}")
    if row.memory_nodes:
        words.append(f"memory on NUMA {numbers(row.memory_nodes)}")
    if row.alignment:
        words.append(row.alignment)
    return " · ".join(words)


def _placement_text(placement: PlacementPart) -> str:
    """Return the exclusive CPUs and the memory of a container or pod."""
    words = [cpus_text(CPUSet.parse(placement.cpus))] if placement.cpus else []
    words += [f"memory of {nodes(map(int, placement.mems.split(',')))}"] if placement.mems else []
    return ", ".join(words)


def _finding_text(finding: Finding) -> str:
    """Return the message with its subject; most messages name their subject themselves."""
    told = finding.subject.lower() in finding.message.lower()
    return finding.message if told else f"{finding.subject}: {finding.message}"


HEATS = 5
"""Shades of the distance matrix; the first is the ground of the page."""

_BLUE, _SKY = OWNER_COLOURS[0], OWNER_COLOURS[4]


def style_text() -> str:
    """Return the content of the page's style element."""
    dark = _variables(svg.DARK, _SKY)
    names = {name: f"var(--{name})" for name in svg.LIGHT}
    own = (files("mooring.views.html") / "assets" / "report.css").read_text(encoding="utf-8")
    return "".join(
        (
            f":root{{color-scheme:light;--font:{svg.FONT};--mono:{svg.MONO_FONT};{_variables(svg.LIGHT, _BLUE)}}}\n",
            f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n",
            f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n",
            f"{svg.common_rules()}\n{svg.colour_rules(names)}\n",
            *(
                f".heat-{shade}{{background:var(--heat-{shade});color:var(--on-heat-{shade})}}"
                for shade in range(HEATS)
            ),
            f"\n{own}",
        )
    )


def _variables(ground: Mapping[str, str], accent: str) -> str:
    told = [f"--{name}:{colour}" for name, colour in ground.items()]
    told.append(f"--accent:{accent}")
    told.append(f"--on-accent:{text_on(accent)}")
    for shade in range(HEATS):
        colour = mixed(ground["page"], accent, shade / (HEATS - 1) * 0.85)
        told += [f"--heat-{shade}:{colour}", f"--on-heat-{shade}:{text_on(colour)}"]
    return ";".join(told)


def plot_page_text(plot: Plot) -> str:
    """Return the page."""
    # The styles of the page have the rules of the picture, and the policy allows no other style element.
    return page_text("plot.html", title=plot.title, plot=plot, picture=plot_svg(plot).replace(svg.style_sheet(), ""))
