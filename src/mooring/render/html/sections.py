"""The parts of the page that no step changes: heading, legend, distances, findings, configuration."""

from __future__ import annotations

from mooring.core.machine import Finding
from mooring.render.html.elements import element, text_element
from mooring.render.html.style import HEATS
from mooring.render.palette import use_style
from mooring.render.report import ReportDistances, ReportView
from mooring.render.view import CPUUse
from mooring.render.wording import MARKS, meaning, plural

MOST_NODES = 64
"""NUMA nodes up to which distances are shown: more rows than that nobody reads."""


def heading_html(report: ReportView) -> str:
    """Return name, figures and policies of the node, and the choice of colours."""
    view = report.node
    themes = (("", "as the system"), ("light", "light"), ("dark", "dark"))
    theme = element("select", *(text_element("option", word, value=value) for value, word in themes), id="theme")
    return element(
        "header",
        element("div", element("label", "Colours ", theme), class_="theme script"),
        text_element("h1", view.name or "Node"),
        text_element("p", view.title),
        text_element("p", view.subtitle, class_="quiet-text") if view.subtitle else "",
        _answer(report),
    )


def _answer(report: ReportView) -> str:
    """Return the answer of the whole report in one line."""
    if report.refusal:
        code = text_element("span", report.refusal_code, class_="code") + " " if report.refusal_code else ""
        told = element("strong", "The kubelet would not start. ")
        return element("p", told, code, text_element("span", report.refusal), class_="refusal")
    if not report.pods:
        return ""
    admitted = sum(pod.admitted for pod in report.pods)
    unasked = sum(pod.step is None for pod in report.pods)
    words = [f"{plural(admitted, 'pod')} admitted", f"{len(report.pods) - admitted - unasked} rejected"]
    words += [f"{unasked} not asked"] if unasked else []
    free = next((entry.count for entry in report.node.legend if entry.use is CPUUse.FREE), 0)
    return text_element("p", f"{', '.join(words)}; {plural(free, 'CPU')} still free for exclusive use.", class_="sum")


def legend_html(report: ReportView) -> str:
    """Return what the cells of the map mean, for every use that some step has."""
    final = {entry.use: entry for entry in report.node.legend}
    seen = {change.state.use for step in report.steps for change in step.cpus} | set(final)
    marks = [owner.mark for owner in report.node.owners]
    rows = []
    for use in CPUUse:
        if use not in seen:
            continue
        sign = MARKS.get(use) or "–".join(dict.fromkeys((marks[0], marks[-1])) if marks else ())
        told = final[use].meaning if use in final else meaning(use, strict=False)
        count = final[use].count if use in final else 0
        style = "free" if use is CPUUse.EXCLUSIVE else use_style(use)
        rows.append(
            element(
                "li",
                _swatch(style, sign),
                text_element("b", use.value),
                text_element("span", plural(count, "CPU"), class_="count", data_use=use_style(use)),
                text_element("span", told, class_="quiet-text"),
            )
        )
    return element("ul", *rows, class_="legend", aria_label="What the cells mean")


def _swatch(style: str, sign: str) -> str:
    cell = element("rect", class_=style, x="0.5", y="0.5", width=47, height=17, rx=2)
    mark = text_element("text", sign, class_=f"mark on-{style}", x=24, y=13, text_anchor="middle")
    return element("svg", cell, mark, class_="mooring swatch", width=48, height=18, aria_hidden="true")


def distances_html(distances: ReportDistances | None) -> str:
    """Return the matrix of distances, farther is darker; nothing where there is nothing to compare."""
    if distances is None or not 1 < len(distances.nodes) <= MOST_NODES:
        return ""
    known = sorted({value for row in distances.rows for value in row})
    shades = {value: min(HEATS - 1, position * HEATS // len(known)) for position, value in enumerate(known)}
    heads = [element("th", element("span", "to node", class_="quiet-text"), scope="col")]
    heads += [element("th", str(node), scope="col") for node in distances.nodes]
    rows = [
        element(
            "tr",
            element("th", f"from node {node}" if position == 0 else str(node), scope="row"),
            *(element("td", str(value), class_=f"heat-{shades[value]}") for value in row),
        )
        for position, (node, row) in enumerate(zip(distances.nodes, distances.rows, strict=True))
    ]
    note = text_element(
        "p", "As the firmware says: 10 is a node's own memory, 20 costs twice as much to reach.", class_="quiet-text"
    )
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_="distances")
    scroll = element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table of distances")
    title = element("h2", "ReportDistances between NUMA nodes", id="distances-title")
    return element("section", title, note, scroll, aria_labelledby="distances-title")


def findings_html(findings: tuple[Finding, ...]) -> str:
    """Return what was odd in the input and about the machine; nothing when nothing was."""
    if not findings:
        return ""
    items = (
        element(
            "li",
            element("strong", finding.severity, class_=f"severity {finding.severity}"),
            " ",
            text_element("span", finding.code, class_="code") + " " if finding.code else "",
            text_element("span", _finding_text(finding)),
        )
        for finding in findings
    )
    title = element("h2", "Findings", id="findings-title")
    return element("section", title, element("ul", *items, class_="findings"), aria_labelledby="findings-title")


def _finding_text(finding: Finding) -> str:
    # Most messages name their subject themselves.
    told = finding.subject.lower() in finding.message.lower()
    return finding.message if told else f"{finding.subject}: {finding.message}"


def facts_html(facts: tuple[tuple[str, str], ...]) -> str:
    """Return what the kubelet was told."""
    if not facts:
        return ""
    rows = (element("div", text_element("dt", name), text_element("dd", value)) for name, value in facts)
    title = element("h2", "Configuration", id="facts-title")
    return element("section", title, element("dl", *rows, class_="facts"), aria_labelledby="facts-title")
