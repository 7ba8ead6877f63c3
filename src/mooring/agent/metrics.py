"""What the agent answers over HTTP: ``/status``, ``/machine``, ``/healthz``, ``/readyz``, and its metrics.

Alive is an agent whose main thread runs; a dead one must be restarted. Ready is one that places containers: the engine
runs, the runtime is connected and has synchronized, the state can be written, and no container overlaps or may do so
unseen. :mod:`mooring.service.agent_status` asks for status and machine.
"""

from __future__ import annotations

import json
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from http import HTTPStatus
from operator import or_
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from mooring.agent.effects import AgentReport, Effect, ReportKind, ResizeAnswered
from mooring.agent.reactor.devices import devices_of, follows_devices, places_of
from mooring.agent.state import LIVE, AgentState, claimed_cpus
from mooring.agent.status import Published, Snapshot, exclusive_cpus, status_document, unready
from mooring.documents.status import AgentCountsPart
from mooring.engine.extensions.offline import broken_sets
from mooring.engine.node.metric_names import exposition
from mooring.explanations.alignment import with_devices
from mooring.explanations.phrases import nodes_of
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.service.agent_status import MACHINE, STATUS
from mooring.service.daemon import Heartbeat, present_moment
from mooring.service.http import JSON, PROMETHEUS, Page, Pages, ProgramMetrics

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

ALL = "all"
"""In place of a resource: CPUs, memory and devices together, of containers that have devices."""

REPLY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds; a runtime waits for two by default."""


_REPAIRS = {ReportKind.DEVIATION: "cpuset", ReportKind.QUOTA_DEVIATION: "quota", ReportKind.CPUSET_DIFFERED: "record"}
"""Reports of corrections -> what was corrected: the kernel's cpuset, its quota, or the runtime's record."""


class AgentMetrics(ProgramMetrics):
    """Counters of one agent, and the page on which they stand."""

    def __init__(self, provider: Published, *, per_container: bool = False) -> None:
        """Begin at zero.

        Args:
            provider: tells what is not counted but seen.
            per_container: whether containers with exclusive CPUs have series of their own.
        """
        super().__init__("mooring_agent")
        self._provider = provider
        self.beside: Callable[[], str] = str
        """Further metrics for the page, in the same format; none by default."""
        says = "Time from a request of the runtime to the agent's reply."
        self.reply_seconds = self.seconds_of("reply_seconds", says, "event", REPLY_BUCKETS)
        self.rejections = self.counter("rejections", "Refused containers, by reason.", "reason")
        self.evictions = self.counter("evictions", "Rejected pods with an eviction that the API server accepted.")
        self.repairs = self.counter("repairs", "Cgroups that were not as decided and were corrected, by kind.", "kind")
        self.reconnects = self.counter("reconnects", "Connections to the runtime after the first.")
        self.state_write_failures = self.counter("state_write_failures", "Writes of the state folder that failed.")
        self.reloads = self.counter("configuration_reloads", "Configuration changes, by result.", "result")
        self.reports = self.counter("reports", "Reports of what differed from the decisions, by kind.", "kind")
        self.resizes = self.counter("resizes", "Resize decisions, by result.", "result")
        self.plugin_failures = self.counter(
            "plugin_failures",
            "Answers of CPU plugins that were ignored, by plugin and extension point.",
            "plugin",
            "point",
        )
        self.interrupts_moved = self.counter("interrupts_moved", "Interrupts moved to other CPUs.")
        self.interrupts_restored = self.counter("interrupts_restored", "Interrupts restored to their original CPUs.")
        self.interrupts_refused = self.counter(
            "interrupts_refused", "Interrupts that were not moved, by reason.", "why"
        )
        self.per_container = per_container
        for kind in _REPAIRS.values():
            self.repairs.labels(kind)
        for result in ("taken", "refused"):
            self.reloads.labels(result)
        for result in ("accepted", "infeasible", "deferred"):
            self.resizes.labels(result)

    def count(self, effect: Effect) -> None:
        """Count what an effect stands for, if it stands for anything."""
        if isinstance(effect, ResizeAnswered):
            self.resizes.labels(effect.result).inc()
        if not isinstance(effect, AgentReport):
            return
        self.reports.labels(effect.finding.value).inc()
        if effect.finding in (ReportKind.REJECTED, ReportKind.START_REFUSED):
            self.rejections.labels(effect.reason or "unknown").inc()
        elif effect.finding is ReportKind.STATE_UNWRITABLE:
            self.state_write_failures.inc()
        elif effect.finding in _REPAIRS:
            self.repairs.labels(_REPAIRS[effect.finding]).inc()

    def counts(self) -> AgentCountsPart:
        """Return the numbers for the status document."""
        replies = int(_total(self.reply_seconds, "_count"))
        seconds = _total(self.reply_seconds, "_sum")
        names = ("rejections", "evictions", "repairs", "reconnects", "state_write_failures")
        totals = (int(_total(getattr(self, name), "_total")) for name in names)
        return AgentCountsPart(replies, round(1000 * seconds / replies, 3) if replies else 0.0, *totals)

    def seen(self) -> Iterator[Metric]:
        """Yield what the newest snapshot shows; of devices nothing without the extension device-alignment."""
        snapshot = self._provider.snapshot()
        yield from _of_snapshot(snapshot)
        if follows_devices(snapshot.state):
            yield from device_gauges(snapshot.state)
        if self.per_container:
            yield _of_containers(snapshot.state)

    def text(self) -> str:
        """Return everything in the text format of Prometheus, the kubelet's metrics first."""
        metrics = self._provider.snapshot().metrics
        return (exposition(metrics) if metrics is not None else "") + self.numbers().decode() + self.beside()

    def page(self) -> Page:
        """Return the page ``/metrics``."""
        return Page(self.text().encode(), PROMETHEUS)


def _total(metric: Counter | Histogram, suffix: str) -> float:
    """Return the sum over all series of a metric."""
    return sum(sample.value for family in metric.collect() for sample in family.samples if sample.name.endswith(suffix))


def device_gauges(state: AgentState) -> Iterator[Metric]:
    """Yield how many containers of placed pods have what on how many NUMA nodes: CPUs, memory and devices."""
    counts, holding = {True: Counts[str](), False: Counts[str]()}, 0
    topology, policy = state.kubelet.settings.topology, state.kubelet.settings.topology_policy
    for pod in state.kubelet.node.active.values():
        for name, place in places_of(state, pod).items():
            devices = devices_of(state.kubelet, pod.uid, name)
            holding += bool(devices)
            held = {resource: its for resource, its in devices.items() if any(one.numa for one in its)}
            cpus = set() if topology is None else {*nodes_of(topology, place.cpus.mask)}
            memory = {*place.mems}
            extents = {kind: len(where) for kind, where in (("cpu", cpus), ("memory", memory)) if where}
            extents |= {resource: len(with_devices(cpus | memory, its)) for resource, its in held.items()}
            if held and (cpus or memory):
                extents[ALL] = len(with_devices(cpus | memory, (one for its in held.values() for one in its)))
            for resource, extent in extents.items():
                counts[extent == 1][resource] += 1
    aligned = (
        "mooring_agent_aligned_containers",
        "Containers that have it on one NUMA node, devices with their CPUs and memory; all: CPUs, memory and devices.",
    )
    unaligned = "mooring_agent_unaligned_containers", "Containers that have it on several NUMA nodes."
    for (name, says), found in zip((aligned, unaligned), counts.values(), strict=True):
        family = GaugeMetricFamily(name, says, labels=["policy", "resource"])
        for resource, count in sorted(found.items()):
            family.add_metric([policy, resource], count)
        yield family
    yield GaugeMetricFamily("mooring_agent_device_containers", "Containers with devices.", value=holding)
    yield GaugeMetricFamily(
        "mooring_agent_unknown_device_pods",
        "Pods that were decided about before all of their devices were known.",
        value=len(state.without_devices),
    )


def _of_snapshot(snapshot: Snapshot) -> Iterator[Metric]:
    state, interrupts, runtime = snapshot.state, snapshot.interrupts, snapshot.runtime
    node, claimed = state.kubelet.node, claimed_cpus(state)
    live = [one for one in state.containers.values() if one.phase in LIVE]
    pending = moved = alone = 0
    if interrupts is not UNSET:
        pending, moved, alone = len(interrupts.pending), len(interrupts.moved), len(interrupts.left_alone)
    for name, says, value in (
        ("ready", "1 when the agent is ready.", not unready(snapshot)),
        ("connected", "1 when the runtime is connected.", runtime.connected),
        (
            "runtime_silent",
            "1 when the runtime takes connections and does not answer: it may be locked up.",
            snapshot.is_silent,
        ),
        (
            "overlap_cpus",
            "Exclusive CPUs on which another container may run. Always 0 unless something is wrong.",
            reduce(or_, (cpus.mask for _, _, cpus in snapshot.overlaps()), 0).bit_count(),
        ),
        ("pods", "Pods with a placement decision.", len(node.active)),
        ("held_pods", "Pods that were rejected and wait.", len(state.held)),
        ("containers", "Containers that have not exited.", len(live)),
        (
            "pinned_containers",
            "Containers with exclusive CPUs.",
            sum(bool(exclusive_cpus(state, one, claimed)) for one in live),
        ),
        ("start_time_seconds", "Start time of the agent in seconds since 1970.", snapshot.started),
        (
            "configuration_generation",
            "Number of configurations in force since the start.",
            snapshot.configuration.generation,
        ),
        ("offline_cpus", "CPUs that are offline; 0 without the extension cpu-hotplug.", node.cpu.offline.bit_count()),
        ("broken_sets", "Exclusive CPU sets with offline CPUs that are not replaced.", len(broken_sets(node.cpu))),
        ("interrupts_pending", "Interrupts that are not on their CPUs; in a dry run all that would be moved.", pending),
        ("interrupts_elsewhere", "Interrupts that are not on their original CPUs.", moved),
        ("interrupts_left_alone", "Interrupts that another program has moved since.", alone),
    ):
        yield GaugeMetricFamily(f"mooring_agent_{name}", says, value=float(value))


def _of_containers(state: AgentState) -> Metric:
    """Return the exclusive CPUs of each container. The others share a pool whose list would change with every pod."""
    family = GaugeMetricFamily(
        "mooring_agent_container_cpus",
        "Exclusive CPUs of a container.",
        labels=["namespace", "pod", "container", "cpus"],
    )
    claimed = claimed_cpus(state)
    # A container whose creation was interrupted stays listed beside its replacement: both would have these labels.
    live = {(one.uid, one.name): one for one in state.containers.values() if one.phase in LIVE}
    for one in live.values():
        pod, own = state.kubelet.node.active.get(one.uid), exclusive_cpus(state, one, claimed)
        if pod is not None and own:
            family.add_metric([pod.namespace, pod.name, one.name, str(own)], len(own))
    return family


def status_pages(provider: Published, counts: Callable[[], AgentCountsPart]) -> Pages:
    """Return the pages of the socket."""

    def status() -> Page:
        return _json(to_builtins(status_document(provider.snapshot(), counts(), present_moment())))

    def machine() -> Page:
        found = provider.snapshot().machine
        info = machine_info_document(found.info, info_error=found.info_error)
        return _json({"name": found.name, "note": "", "info": info})

    return {STATUS: status, MACHINE: machine}


def _json(document: dict[str, Any]) -> Page:
    return Page(f"{json.dumps(document)}\n".encode(), JSON)


LONGEST_PAUSE = 30.0
"""Seconds without a heartbeat after which the agent counts as dead; a reconciliation takes two at most."""


def dead(heartbeat: Heartbeat) -> tuple[str, ...]:
    """Return why the agent does not live, or nothing."""
    age = heartbeat.age()
    return (f"no heartbeat for {age:.0f} seconds",) if age > LONGEST_PAUSE else ()


def health_pages(provider: Published, heartbeat: Heartbeat) -> Pages:
    """Return the pages ``/healthz`` and ``/readyz``."""
    return {
        "/healthz": lambda: _verdict(dead(heartbeat)),
        "/readyz": lambda: _verdict(unready(provider.snapshot())),
    }


def _verdict(reasons: Sequence[str]) -> Page:
    """Return ``ok``, or one line a reason with 503."""
    if not reasons:
        return Page(b"ok\n")
    return Page("".join(f"{reason}\n" for reason in reasons).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
