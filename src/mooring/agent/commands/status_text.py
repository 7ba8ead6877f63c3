"""``mooring status``: what the agent says of itself, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.explain.phrases import plural
from mooring.views.console import STYLES, Breaking, new_table

_INTERRUPT_COLUMNS = ("interrupt", "device", "CPUs", "", "")
_DEFAULT_INTERRUPT = -1
"""The row of the default CPUs of new interrupts."""
_SHORT_ID = 12
_LISTS = {
    "Exclusive CPUs": "exclusive",
    "Shared pool": "shared",
    "Reserved CPUs": "reserved",
    "Available CPUs": "free",
    "Offline CPUs": "offline",
    "Overlapping CPUs": "overlap",
}
"""Heading -> member of the document."""


def status_text(document: Mapping[str, Any], to: str = "", *, wide: bool = False) -> str:
    """Return the text for a terminal of the present width, or for the file ``to``.

    Args:
        document: the agent's status.
        to: the destination.
        wide: whether containers that share the pool are listed too, and what runtime and kernel say of each.
    """
    parts: list[RenderableType] = [_heading(document), Text(""), _facts(document)]
    rows = [*(_wide_rows(document) if wide else _rows(document))]
    if rows:
        parts += [Text(""), _table(_WIDE_COLUMNS if wide else _COLUMNS, rows)]
    if devices := [*_device_rows(document["pods"])]:
        parts += [Text(""), _table(_DEVICE_COLUMNS, devices)]
    if document.get("claims"):
        parts += [Text(""), _table(_CLAIM_COLUMNS, [*_claim_rows(document["claims"])])]
    if wide and "interrupts" in document and (moves := [*_interrupt_rows(document["interrupts"])]):
        parts += [Text(""), _table(_INTERRUPT_COLUMNS, moves)]
    if document["held"]:
        parts += [Text(""), *_held(document["held"])]
    return text_for(Group(*parts), to)


def _heading(document: Mapping[str, Any]) -> RenderableType:
    name = clean(document["node"] or document["machine"])
    verdict = "ready" if document["ready"] else "not ready"
    reasons = [Padding(Text(clean(reason)), (0, 0, 0, 2)) for reason in document["reasons"]]
    return Group(Text.assemble((f"{name}: ", ""), (verdict, STYLES["title"])), *reasons)


def _facts(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _fact_rows(document):
        # A list of CPUs breaks after commas, a sentence between words.
        shown = Breaking(value) if name in _LISTS else Text(clean(value))
        table.add_row(Text(name, STYLES["quiet"]), shown)
    return table


def _fact_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    started = f", since {_time(document['started'])}" if document["started"] else ""
    yield "Agent", f"mooring {document['mooring']}, decisions of kubelet {document['kubelet']}{started}"
    yield "Runtime", _runtime(document["runtime"])
    if document["policies"]:
        yield "Policies", document["policies"]
    configuration = document["configuration"]
    since = f", in force since {_time(configuration['since'])}" if configuration["since"] else ""
    yield "Configuration", f"{', '.join(configuration['files']) or 'defaults'}{since}"
    if configuration["refusal"]:
        yield "", f"The files as they are now are not in force: {configuration['refusal']}"
    if document["policies"]:
        for name, member in _LISTS.items():
            cpus = CPUSet.parse(document["cpus"].get(member, ""))
            if cpus or member not in ("offline", "overlap"):
                yield name, f"{len(cpus)}: {cpus}" if cpus else "none"
    if "interrupts" in document:
        yield "Interrupts", _interrupts_sentence(document["interrupts"])
        for finding in document["interrupts"]["findings"]:
            yield "", finding["message"]
    for plugin in document.get("plugins", ()):
        yield "Plugin", _plugin(plugin)
    yield "Pods", _pods(document)
    yield "Counts", _counts(document["counts"])


def _runtime(runtime: Mapping[str, Any]) -> str:
    name = f"{runtime['name']} {runtime['version']}".strip()
    state = "connected" if runtime["connected"] else "not connected"
    since = f" since {_time(runtime['since'])}" if runtime["since"] else ""
    return f"{name}, {state}{since}" if name else f"{state}{since}"


def _plugin(plugin: Mapping[str, Any]) -> str:
    """Return what one CPU plugin is doing, and how it failed last."""
    where = "" if plugin["placement"] == "cpu-manager" else " (hint provider)"
    if not plugin["failures"]:
        return f"{plugin['name']}{where}"
    times = plural(plugin["failures"], "answer")
    last = plugin["lastFailure"]
    return f"{plugin['name']}{where}: {times} left out, the last at {last['point']}: {last['why']}"


def _pods(document: Mapping[str, Any]) -> str:
    pods = document["pods"]
    own = sum(any(one["cpus"] for one in (pod, *pod["containers"])) for pod in pods)
    return f"{plural(len(pods), 'pod')}, {own} with CPUs of their own, {len(document['held'])} held back"


def _counts(counts: Mapping[str, Any]) -> str:
    replies = plural(counts["replies"], "reply", "replies")
    others = (
        ("rejections", "rejection"),
        ("evictions", "eviction"),
        ("repairs", "repair"),
        ("reconnects", "reconnection"),
        ("stateWriteFailures", "failed write"),
    )
    words = (plural(counts[name], noun) for name, noun in others)
    return ", ".join((f"{replies} of {counts['meanReplyMilliseconds']:g} ms on average", *words))


_OWN = ("cpus", "mems", "claimed", "devices")
"""Members of a container that say that it has something for itself."""
_COLUMNS = ("pod", "container", "CPUs", "memory", "")
_DEVICE_COLUMNS = ("pod", "container", "device", "id", "NUMA", "")
_CLAIM_COLUMNS = ("claim", "request", "device", "CPUs", "")
_WIDE_COLUMNS = ("pod", "container", "id", "phase", "decided", "runtime", "kernel", "")


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = new_table(*columns)
    for row in rows:
        name, *cells = (clean(cell) for cell in row)
        table.add_row(Breaking(name, "/"), *(Breaking(cell) for cell in cells))
    return table


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the containers that have exclusive CPUs or memory."""
    for pod in document["pods"]:
        name = f"{pod['namespace']}/{pod['name']}"
        if pod["cpus"] or pod["mems"]:
            yield name, "(the pod as a whole)", pod["cpus"] or "–", pod["mems"] or "–", ""
        for container in pod["containers"]:
            if container["sharing"] != "host" or any(container.get(name) for name in _OWN):
                own = (_own(container) or "shared", container["mems"] or "–")
                yield name, container["name"], *own, _remark(container)


def _wide_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield every container with what was decided, what the runtime has on record, and what the kernel says."""
    for pod in document["pods"]:
        for container in pod["containers"]:
            yield (
                f"{pod['namespace']}/{pod['name']}",
                container["name"],
                container.get("id", "")[:_SHORT_ID] or "–",
                container.get("phase", "–"),
                _decided(container),
                _both(container.get("told")),
                _both(container.get("effective")),
                _remark(container),
            )


def _own(container: Mapping[str, Any]) -> str:
    """Return the CPUs that a container has itself and by claims."""
    return str(CPUSet.parse(container["cpus"]) | CPUSet.parse(container.get("claimed", "")))


def _claim_rows(claims: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield what claims hold, and for how many pods."""
    for claim in claims:
        for number, share in enumerate(claim["shares"]):
            name = f"{claim['namespace']}/{claim['name']}" if number == 0 else ""
            pods = plural(len(claim["pods"]), "pod") if number == 0 else ""
            yield name, share["request"], share["device"], share["cpus"], pods


def _decided(container: Mapping[str, Any]) -> str:
    """Return CPUs and NUMA nodes with a word for what is shared."""
    cpus = container["cpus"]
    words = {"container": cpus, "pod": f"{cpus} (pod pool)", "host": "shared"}[container["sharing"]]
    if "claimed" in container:
        words = f"{_own(container)} (claim)"
    if "mixed" in container:
        words = f"{words} + shared"
    return f"{words}/{container['mems']}" if container["mems"] else words


def _both(placement: Mapping[str, str] | None) -> str:
    """Return CPUs and, after a slash, NUMA nodes."""
    if not placement or not (placement["cpus"] or placement["mems"]):
        return "–"
    return f"{placement['cpus']}/{placement['mems']}" if placement["mems"] else placement["cpus"]


def _remark(container: Mapping[str, Any]) -> str:
    overlap = container.get("overlap", "")
    remarks = [f"overlaps on {overlap}"] if overlap else []
    if "claimed" in container:
        remarks.append(f"{container['claimed']} by claims")
    if container.get("alignment") == "elsewhere":
        remarks.append("not near its devices")
    elif container.get("alignment") == "unknown":
        remarks.append("devices unknown")
    pending, resize = container.get("pending"), container.get("resize")
    if "lost" in container:
        remarks.append(f"{container['lost']} offline")
    if "original" in container:
        remarks.append(f"in place of {container['original']}")
    if "mixed" in container:
        remarks.append("mixed: runs in the shared pool too")
    if "baseline" in container:
        remarks.append(f"baseline {container['baseline']}")
    if pending:
        left = f"in {pending['secondsLeft']:.1f} s" if pending["secondsLeft"] else "now"
        remarks.append(f"{pending['releases']} released {left}")
    if resize:
        remarks.append(f"resize {resize['reason'].lower()}")
    return "; ".join(remarks)


def _device_rows(pods: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the devices of containers with their NUMA nodes.

    >>> gpu = {"resource": "nvidia.com/gpu", "id": "gpu1", "numaNodes": [1], "healthy": True}
    >>> main = {"name": "main", "devices": [gpu], "alignment": "elsewhere"}
    >>> [*_device_rows([{"namespace": "shop", "name": "web", "containers": [main]}])]
    [('shop/web', 'main', 'nvidia.com/gpu', 'gpu1', '1', 'not near its CPUs and memory')]
    """
    for pod in pods:
        for container in pod["containers"]:
            first = f"{pod['namespace']}/{pod['name']}", container["name"]
            says = {"elsewhere": "not near its CPUs and memory", "unknown": "not all are known"}
            verdict = says.get(container.get("alignment", ""), "")
            for one in container.get("devices", ()):
                near = ",".join(map(str, one["numaNodes"])) or "–"
                remark = "; ".join(part for part in (verdict, "" if one["healthy"] else "not healthy") if part)
                yield *first, one["resource"], one["id"], near, remark
                first, verdict = ("", ""), ""


def _held(held: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    yield Text("Held back", STYLES["title"])
    for pod in held:
        yield Padding(Text(clean(f"{pod['namespace']}/{pod['name']}: {pod['reason']}")), (0, 0, 0, 2))
        yield Padding(Text(clean(pod["message"])), (0, 0, 0, 4))
        if names := ", ".join(clean(one["name"]) for one in pod["running"]):
            yield Padding(Text(f"runs in the shared pool meanwhile: {names}"), (0, 0, 0, 4))


def _time(text: str) -> str:
    """Return a time as people write it."""
    return text.replace("T", " ").replace("Z", " UTC")


def _interrupts_sentence(interrupts: Mapping[str, Any]) -> str:
    """Return the interrupts of a status document in one line.

    >>> row = {"number": 24, "name": "eth0", "cpus": "0-7", "wanted": "0-1,4-7", "why": "kept-away"}
    >>> told = {"mode": "dry-run", "total": 9, "managed": 2, "noRoom": 0, "moved": [], "pending": [row]}
    >>> _interrupts_sentence({**told, "leftAlone": []})
    '9, dry run: 1 would move; 2 placed by the kernel'
    """
    dry = interrupts["mode"] == "dry-run"
    moved, pending, alone = (_numbered(interrupts[name]) for name in ("moved", "pending", "leftAlone"))
    parts = [f"{pending} would move" if dry else f"{moved} moved"]
    if pending and not dry:
        parts.append(f"{pending} could not be moved")
    if interrupts["managed"]:
        parts.append(f"{interrupts['managed']} placed by the kernel")
    if interrupts["noRoom"]:
        parts.append(f"{interrupts['noRoom']} without another CPU")
    if alone:
        parts.append(f"{alone} moved by another program and left alone")
    return f"{interrupts['total']}, {'dry run: ' if dry else ''}{'; '.join(parts)}"


def _interrupt_rows(interrupts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each interrupt that is not, or would not be, where it was."""
    would = "would become" if interrupts["mode"] == "dry-run" else "could not become"
    for row in interrupts["pending"]:
        yield (*_named(row), f"{would} {row['wanted']}", row["why"])
    for row in interrupts["moved"]:
        yield (*_named(row), f"was {row['original']}", row["why"])
    for row in interrupts["leftAlone"]:
        yield (*_named(row), "left alone", "moved by another program")


def _named(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return "new ones" if row["number"] == _DEFAULT_INTERRUPT else str(row["number"]), row["name"], row["cpus"]


def _numbered(rows: list[Mapping[str, Any]]) -> int:
    """Return how many interrupts there are among rows; where new ones begin is none."""
    return sum(row["number"] != _DEFAULT_INTERRUPT for row in rows)
