"""The table of the pods: what became of each, what it got, and why."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.cpuset import CPUSet
from mooring.render.html.elements import element, text_element
from mooring.render.report import ContainerView, ReportPod
from mooring.render.wording import numbers, plural

_COLUMNS = (("Step", "number"), ("Pod", "text"), ("Verdict", "text"), ("CPUs", "number"), ("NUMA", "number"))
"""Columns that can be sorted, and how."""


def pods_html(pods: tuple[ReportPod, ...]) -> str:
    """Return the section of the pods; nothing when there are none."""
    if not pods:
        return ""
    verdicts = sorted({pod.verdict for pod in pods if pod.verdict not in ("admitted", "rejected")})
    options = [text_element("option", "all pods", value="")]
    options += [text_element("option", word, value=word) for word in ("admitted", "rejected", *verdicts)]
    tools = element(
        "div",
        element("label", "Show ", element("select", *options, id="pod-filter")),
        element("label", "Search ", element("input", type="search", id="pod-search", autocomplete="off")),
        element("output", plural(len(pods), "pod"), id="pod-count", for_="pod-filter pod-search"),
        element("button", "Mark none", type="button", id="pod-none", hidden=True),
        class_="tools script",
    )
    heads = [_head(name, kind) for name, kind in _COLUMNS]
    heads.append(element("th", "What it got, or why not", scope="col"))
    table = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *(f"{_row(index, pod)}\n" for index, pod in enumerate(pods))),
        id="pods",
    )
    wide = element("div", table, class_="pods", tabindex=0, role="region", aria_label="Table of pods")
    return element("section", element("h2", "Pods", id="pods-title"), tools, wide, aria_labelledby="pods-title")


def _head(name: str, kind: str) -> str:
    button = element("button", name, element("span", "", class_="arrow", aria_hidden="true"), type="button")
    return element("th", button, scope="col", data_kind=kind)


def _row(index: int, pod: ReportPod) -> str:
    count = len({cpu for container in pod.containers for cpu in container.cpus})
    nodes = sorted({node for container in pod.containers for node in container.cpu_nodes})
    step = "" if pod.step is None else str(pod.step)
    return element(
        "tr",
        element("td", _step_button(step) if step else "–", data_sort=step, class_="figure"),
        element("th", _pod_button(index, pod.name), scope="row", data_sort=pod.name),
        element("td", verdict_html(pod), data_sort=pod.verdict),
        element("td", str(count or "–"), data_sort=str(count), class_="figure"),
        element("td", numbers(nodes), data_sort=str(nodes[0]) if nodes else "", class_="figure"),
        element("td", *_story(pod)),
        data_pod=index,
        data_verdict=pod.verdict,
        data_admitted="yes" if pod.admitted else "no",
    )


def _step_button(step: str) -> str:
    return element("button", step, type="button", class_="link", data_step=step, aria_label=f"Go to step {step}")


def _pod_button(index: int, name: str) -> str:
    return text_element("button", name, type="button", class_="link", data_mark=index, aria_pressed="false")


def verdict_html(pod: ReportPod) -> str:
    """Return the verdict with a sign, so that colour is not needed."""
    sign = "✓" if pod.admitted else "✕" if pod.step is not None else "–"
    look = "yes" if pod.admitted else "no" if pod.step is not None else "none"
    return element("span", element("span", sign, aria_hidden="true"), f" {pod.verdict}", class_=f"verdict {look}")


def _story(pod: ReportPod) -> Iterator[str]:
    if pod.reason:
        yield text_element("strong", pod.reason)
        yield " "
    if pod.code:
        yield text_element("span", pod.code, class_="code")
        yield " "
    if pod.why:
        yield text_element("span", pod.why)
    if pod.remedy:
        yield " "
        yield element("span", element("b", "What to do:"), " ", text_element("span", pod.remedy), class_="remedy")
    if pod.message:
        yield text_element("q", pod.message, class_="message")
    if pod.containers:
        yield element("ul", *(_container(container) for container in pod.containers), class_="containers")


def _container(container: ContainerView) -> str:
    words = [container.verdict]
    if container.cpus:
        words.append(_cpus(container.cpus))
        words.append(f"on NUMA {numbers(container.cpu_nodes)}")
    if container.memory_nodes:
        words.append(f"memory on NUMA {numbers(container.memory_nodes)}")
    if container.alignment:
        words.append(container.alignment)
    return element("li", text_element("b", container.name), " ", text_element("span", " · ".join(words)))


def _cpus(cpus: CPUSet) -> str:
    return f"{plural(len(cpus), 'CPU')} {cpus}"
