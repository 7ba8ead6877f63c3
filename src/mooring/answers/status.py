"""``mooring status``: the status of the agent of this node, or the counts of a shadow of its kubelet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import click
from msgspec import UNSET, UnsetType

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit, emit_document, json_text, needs_extra
from mooring.documents import status
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, clean
from mooring.explanations.phrases import plural
from mooring.lazy import lazily

with lazily():
    import rich.console as rich_console
    import rich.table as rich_table
    import rich.text as rich_text

    from mooring.cli import terminal
    from mooring.monitoring.shadow import judge, reports
    from mooring.service import agent_status
    from mooring.views import console


EPILOG = """\b
Examples:
  mooring status
  mooring status -o wide
  mooring status --socket /run/mooring/status.sock -o json
  mooring status --shadow /var/lib/mooring-shadow
"""


@click.command("status", cls=Verb, epilog=EPILOG)
@options.agent_socket
@options.text("--shadow", "DIR", "Show instead what mooring shadow --folder DIR has counted.", variable="folder")
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(socket: str, folder: str, form: str, to: str) -> int:
    """Show what the agent of this node does, and which container has which CPUs.

    Exit code 1 when the agent is not ready, or with --shadow when a decision differs.
    """
    if folder:
        if socket:
            raise click.UsageError("give --socket or --shadow, not both")
        with needs_extra("kube", source="mooring status --shadow"):
            found = judge.read_counts(Path(folder))
        if found is None:
            remedy = "name the folder that mooring shadow --folder writes"
            raise InputError(f"there is no {judge.COUNTS}", source=folder, remedy=remedy)
        if form == "json":
            emit_document(json_text(found), to)
        else:
            emit(reports.shadow_text(found, to), to)
        return NO if found.differs else YES
    answer = agent_status.ask_status(socket or agent_status.STATUS_SOCKET)
    if form == "json":
        emit_document(json_text(answer), to)
    else:
        emit(status_text(agent_status.read_status(answer), to, wide=form == "wide"), to)
    return YES if answer["ready"] else NO


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


_Interrupt: TypeAlias = status.PendingInterruptPart | status.MovedInterruptPart | status.ForeignInterruptPart


def status_text(document: status.StatusDocument, to: str = "", *, wide: bool = False) -> str:
    """Return the text for a terminal of the present width, or for the file ``to``.

    Args:
        document: the agent's status.
        to: the destination.
        wide: whether containers that share the pool are listed too, and what runtime and kernel say of each.
    """
    table = rich_table.Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _fact_rows(document):
        # A list of CPUs breaks after commas, a sentence between words.
        shown = console.Breaking(value) if name in _LISTS else rich_text.Text(clean(value))
        table.add_row(rich_text.Text(name, console.STYLES["quiet"]), shown)
    verdict = ("ready" if document.ready else "not ready", console.STYLES["title"])
    heading = rich_text.Text.assemble(f"{clean(document.node or document.machine)}: ", verdict)
    reasons = [console.indented(clean(reason)) for reason in document.reasons]
    parts: list[rich_console.RenderableType] = [heading, *reasons, rich_text.Text(""), table]
    rows = [*(_wide_rows(document) if wide else _rows(document))]
    if rows:
        parts += [rich_text.Text(""), _table(_WIDE_COLUMNS if wide else _COLUMNS, rows)]
    if devices := [*_device_rows(document.pods)]:
        parts += [rich_text.Text(""), _table(_DEVICE_COLUMNS, devices)]
    if document.claims is not UNSET and document.claims:
        parts += [rich_text.Text(""), _table(_CLAIM_COLUMNS, [*_claim_rows(document.claims)])]
    if wide and document.interrupts is not UNSET and (moves := [*_interrupt_rows(document.interrupts)]):
        parts += [rich_text.Text(""), _table(_INTERRUPT_COLUMNS, moves)]
    if document.held:
        parts += [rich_text.Text(""), rich_text.Text("Held back", console.STYLES["title"])]
    for pod in document.held:
        words = [(2, f"{pod.namespace}/{pod.name}: {pod.reason}"), (4, pod.message)]
        if names := ", ".join(one.name for one in pod.running):
            words.append((4, f"runs in the shared pool meanwhile: {names}"))
        parts += [console.indented(clean(text), by=left) for left, text in words]
    return terminal.text_for(rich_console.Group(*parts), to)


def _fact_rows(document: status.StatusDocument) -> Iterator[tuple[str, str]]:
    started = f",{_since(document.started)}" if document.started else ""
    yield "Agent", f"mooring {document.mooring}, decisions of kubelet {document.kubelet}{started}"
    runtime = document.runtime
    connected = f"{'' if runtime.connected else 'not '}connected{_since(runtime.since)}"
    yield "Runtime", ", ".join(filter(None, (f"{runtime.name} {runtime.version}".strip(), connected)))
    if document.policies:
        yield "Policies", document.policies
    configuration = document.configuration
    since = f", in force{_since(configuration.since)}" if configuration.since else ""
    yield "Configuration", f"{', '.join(configuration.files) or 'defaults'}{since}"
    if configuration.refusal:
        yield "", f"The files as they are now are not in force: {configuration.refusal}"
    if document.policies:
        for name, member in _LISTS.items():
            cpus = CPUSet.parse(_text(getattr(document.cpus, member)))
            if cpus or member not in ("offline", "overlap"):
                yield name, f"{len(cpus)}: {cpus}" if cpus else "none"
    if document.interrupts is not UNSET:
        yield "Interrupts", _interrupts_sentence(document.interrupts)
        for finding in document.interrupts.findings:
            yield "", finding.message
    for plugin in () if document.plugins is UNSET else document.plugins:
        yield "Plugin", _plugin(plugin)
    pods = document.pods
    own = sum(bool(pod.cpus) or any(one.cpus for one in pod.containers) for pod in pods)
    yield "Pods", f"{plural(len(pods), 'pod')}, {own} with CPUs of their own, {len(document.held)} held back"
    replies = plural(document.counts.replies, "reply", "replies")
    others = (
        ("rejections", "rejection"),
        ("evictions", "eviction"),
        ("repairs", "repair"),
        ("reconnects", "reconnection"),
        ("state_write_failures", "failed write"),
    )
    words = (plural(getattr(document.counts, name), noun) for name, noun in others)
    yield "Counts", ", ".join((f"{replies} of {document.counts.mean_reply_milliseconds:g} ms on average", *words))


def _plugin(plugin: status.AgentPluginPart) -> str:
    """Return what one CPU plugin is doing, and how it failed last."""
    where = "" if plugin.placement == "cpu-manager" else " (hint provider)"
    if not plugin.failures:
        return f"{plugin.name}{where}"
    times = plural(plugin.failures, "answer")
    last = plugin.last_failure
    how = "" if last is UNSET else f", the last at {last.point}: {last.why}"
    return f"{plugin.name}{where}: {times} left out{how}"


_OWN = ("cpus", "mems", "claimed", "devices")
"""Members of a container that say that it has something for itself."""
_COLUMNS = ("pod", "container", "CPUs", "memory", "")
_DEVICE_COLUMNS = ("pod", "container", "device", "id", "NUMA", "")
_CLAIM_COLUMNS = ("claim", "request", "device", "CPUs", "")
_WIDE_COLUMNS = ("pod", "container", "id", "phase", "decided", "runtime", "kernel", "")


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> rich_table.Table:
    table = console.new_table(*columns)
    for row in rows:
        name, *cells = (clean(cell) for cell in row)
        table.add_row(console.Breaking(name, "/"), *(console.Breaking(cell) for cell in cells))
    return table


def _rows(document: status.StatusDocument) -> Iterator[tuple[str, ...]]:
    """Yield the containers that have exclusive CPUs or memory."""
    for pod in document.pods:
        name = f"{pod.namespace}/{pod.name}"
        if pod.cpus or pod.mems:
            yield name, "(the pod as a whole)", pod.cpus or "–", pod.mems or "–", ""
        for container in pod.containers:
            if container.sharing != "host" or any(getattr(container, name) for name in _OWN):
                own = (_own(container) or "shared", container.mems or "–")
                yield name, container.name, *own, _remark(container)


def _wide_rows(document: status.StatusDocument) -> Iterator[tuple[str, ...]]:
    """Yield every container with what was decided, what the runtime has on record, and what the kernel says."""
    for pod in document.pods:
        for container in pod.containers:
            # CPUs and NUMA nodes with a word for what is shared
            cpus = container.cpus
            words = {"container": cpus, "pod": f"{cpus} (pod pool)", "host": "shared"}[container.sharing]
            if container.claimed is not UNSET:
                words = f"{_own(container)} (claim)"
            if container.mixed is not UNSET:
                words = f"{words} + shared"
            yield (
                f"{pod.namespace}/{pod.name}",
                container.name,
                _text(container.id)[:_SHORT_ID] or "–",
                _text(container.phase) or "–",
                f"{words}/{container.mems}" if container.mems else words,
                _both(container.told),
                _both(container.effective),
                _remark(container),
            )


def _own(container: status.AgentContainerPart) -> str:
    """Return the CPUs that a container has itself and by claims."""
    return str(CPUSet.parse(container.cpus) | CPUSet.parse(_text(container.claimed)))


def _claim_rows(claims: list[status.AgentClaimPart]) -> Iterator[tuple[str, ...]]:
    """Yield what claims hold, and for how many pods."""
    for claim in claims:
        for number, share in enumerate(claim.shares):
            name = f"{claim.namespace}/{claim.name}" if number == 0 else ""
            pods = plural(len(claim.pods), "pod") if number == 0 else ""
            yield name, share.request, share.device, share.cpus, pods


def _both(placement: status.CPUsAndNodesPart | UnsetType) -> str:
    """Return CPUs and, after a slash, NUMA nodes."""
    if placement is UNSET or not (placement.cpus or placement.mems):
        return "–"
    return f"{placement.cpus}/{placement.mems}" if placement.mems else placement.cpus


def _remark(container: status.AgentContainerPart) -> str:
    pending, resize = container.pending, container.resize
    release = ""
    if pending is not UNSET:
        left = f"in {pending.seconds_left:.1f} s" if pending.seconds_left else "now"
        release = f"{pending.releases} released {left}"
    near = {"elsewhere": "not near its devices", "unknown": "devices unknown"}.get(_text(container.alignment), "")
    remarks = (
        f"overlaps on {_text(container.overlap)}" if _text(container.overlap) else "",
        "" if container.claimed is UNSET else f"{container.claimed} by claims",
        near,
        "" if container.lost is UNSET else f"{container.lost} offline",
        "" if container.original is UNSET else f"in place of {container.original}",
        "" if container.mixed is UNSET else "mixed: runs in the shared pool too",
        "" if container.baseline is UNSET else f"baseline {container.baseline}",
        release,
        "" if resize is UNSET else f"resize {resize.reason.lower()}",
    )
    return "; ".join(filter(None, remarks))


def _device_rows(pods: list[status.AgentPodPart]) -> Iterator[tuple[str, ...]]:
    """Yield the devices of containers with their NUMA nodes.

    >>> gpu = status.AgentDevicePart("nvidia.com/gpu", "gpu1", [1], True)
    >>> main = status.AgentContainerPart(
    ...     name="main", sharing="host", cpus="", mems="", devices=[gpu], alignment="elsewhere"
    ... )
    >>> [*_device_rows([status.AgentPodPart("shop", "web", "u", "", "", [main])])]
    [('shop/web', 'main', 'nvidia.com/gpu', 'gpu1', '1', 'not near its CPUs and memory')]
    """
    for pod in pods:
        for container in pod.containers:
            first = f"{pod.namespace}/{pod.name}", container.name
            says = {"elsewhere": "not near its CPUs and memory", "unknown": "not all are known"}
            verdict = says.get(_text(container.alignment), "")
            for one in () if container.devices is UNSET else container.devices:
                near = ",".join(map(str, one.numa_nodes)) or "–"
                remark = "; ".join(part for part in (verdict, "" if one.healthy else "not healthy") if part)
                yield *first, one.resource, one.id, near, remark
                first, verdict = ("", ""), ""


def _since(time: str) -> str:
    """Return since when something is so, as people write it; nothing where that is not known."""
    return f" since {time.replace('T', ' ').replace('Z', ' UTC')}" if time else ""


def _interrupts_sentence(interrupts: status.InterruptsPart) -> str:
    """Return the interrupts of a status document in one line.

    >>> row = status.PendingInterruptPart(24, "eth0", "0-7", "0-1,4-7", "kept-away")
    >>> _interrupts_sentence(status.InterruptsPart("dry-run", 9, 2, 0, [], [row], [], []))
    '9, dry run: 1 would move; 2 placed by the kernel'
    """
    dry = interrupts.mode == "dry-run"
    moved, pending = _numbered(interrupts.moved), _numbered(interrupts.pending)
    alone = _numbered(interrupts.left_alone)
    parts = [f"{pending} would move" if dry else f"{moved} moved"]
    if pending and not dry:
        parts.append(f"{pending} could not be moved")
    if interrupts.managed:
        parts.append(f"{interrupts.managed} placed by the kernel")
    if interrupts.no_room:
        parts.append(f"{interrupts.no_room} without another CPU")
    if alone:
        parts.append(f"{alone} moved by another program and left alone")
    return f"{interrupts.total}, {'dry run: ' if dry else ''}{'; '.join(parts)}"


def _interrupt_rows(interrupts: status.InterruptsPart) -> Iterator[tuple[str, ...]]:
    """Yield a row for each interrupt that is not, or would not be, where it was."""
    would = "would become" if interrupts.mode == "dry-run" else "could not become"
    yield from ((*_named(row), f"{would} {row.wanted}", row.why) for row in interrupts.pending)
    yield from ((*_named(row), f"was {row.original}", row.why) for row in interrupts.moved)
    yield from ((*_named(row), "left alone", "moved by another program") for row in interrupts.left_alone)


def _named(row: _Interrupt) -> tuple[str, str, str]:
    return "new ones" if row.number == _DEFAULT_INTERRUPT else str(row.number), row.name, row.cpus


def _numbered(rows: Sequence[_Interrupt]) -> int:
    """Return how many interrupts there are among rows; where new ones begin is none."""
    return sum(row.number != _DEFAULT_INTERRUPT for row in rows)


def _text(value: str | UnsetType) -> str:
    """Return a member of the document; empty where it is absent."""
    return "" if value is UNSET else value
