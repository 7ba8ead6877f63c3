"""Reconciling the interrupts of a node with the pinning (extension irq-affinity), in a thread that no answer waits for.

Where an interrupt belongs is decided in :mod:`mooring.engine.extensions.interrupts`. Which devices pods hold comes from
the node's kubelet: the agent has no device manager of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Lock

from msgspec import UNSET

from mooring.agent.executor import WorkQueue
from mooring.agent.interrupts.files import (
    InterruptJournal,
    InterruptTrouble,
    InterruptWriter,
    IRQFiles,
    restored_interrupts,
)
from mooring.agent.metrics import AgentMetrics
from mooring.agent.state import AgentState
from mooring.agent.state_holder import StateHolder
from mooring.documents.plan import finding_parts
from mooring.documents.status import ForeignInterruptPart, InterruptsPart, MovedInterruptPart, PendingInterruptPart
from mooring.engine.core.config import IRQ_AFFINITY
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.extensions import interrupts
from mooring.engine.extensions.owners import AddressesByPod, pci_address
from mooring.engine.kubelet.kubelet import reserved_cpus
from mooring.service.agent_options import AgentOptions, IRQAffinity
from mooring.service.logs import Log
from mooring.service.podresources import PodResourcesClient, PodResourcesError, pods_in

LOOKING = 10.0
"""Seconds between two checks while no CPUs change hands: devices appear and disappear."""
BALANCING = 60.0
"""Seconds between two checks for irqbalance, each of which reads every process."""
READ_ONLY = Finding(
    "warning",
    "proc/irq",
    "The agent may not write to /proc/irq; in its unit, ProtectKernelTunables=yes prevents it.",
    "MOOR-620",
)


class InterruptReconciler:
    """Keeps interrupts where they belong; writes nothing unless the configuration says ``on``."""

    def __init__(
        self,
        root: str,
        folder: Path,
        holder: StateHolder,
        metrics: AgentMetrics,
        log: Log,
        address: Callable[[str, str], str] | None = None,
    ) -> None:
        """Learn from the journal what an agent before has moved.

        Args:
            root: folder that stands for ``/``.
            folder: of the agent's state.
            holder: has the state, and publishes what is seen.
            metrics: count.
            log: of the agent.
            address: returns the PCI address of a driver's device, by driver and id; empty when it is not known. None
                without the extension device-alignment, where no slices are followed.
        """
        self._holder, self._metrics, self._log, self._address = holder, metrics, log, address
        self._files = IRQFiles(root)
        self._journal = InterruptJournal(folder, self._files.boot())
        self._memory = self._journal.read()
        self._writer = InterruptWriter(self._files, self._journal, self._report)
        self._worker = WorkQueue(lambda error: log.error("internal error", exc_info=error), 2)
        self._is_working = False
        self._lock = Lock()
        self._looked = self._balanced = -LOOKING - BALANCING
        self._basis: tuple[object, ...] = ()
        self._spared: CPUSet | None = None
        self._devices: AddressesByPod = {}
        self._said: set[tuple[str, str]] = set()

    def reconcile(self, options: AgentOptions) -> None:
        """Have interrupts checked when it is time to, or when a container's CPUs have changed; waits for nothing."""
        state, now = self._holder.state, time.monotonic()
        mode = _mode(state, options)
        node = state.kubelet.node
        basis = (mode, node.cpu, tuple(node.active), options.kubelet_pod_resources)
        if mode is IRQAffinity.OFF and not self._memory.kept and (not self._basis or self._basis[0] is mode):
            self._basis = basis
            return
        if now - self._looked < LOOKING and basis == self._basis:
            return
        if not self._is_working:
            self._is_working = True
            self._worker.start()
        if self._worker.put(partial(self.check, options)):
            self._looked, self._basis = now, basis

    def check(self, options: AgentOptions) -> None:
        """Look at all interrupts and put them where they belong, or say where that is."""
        with self._lock:
            state = self._holder.state
            mode = _mode(state, options)
            if mode is not IRQAffinity.ON and self._memory.kept:
                self._memory, left = restored_interrupts(self._files, self._writer, self._memory)
                for problem in left:
                    self._once("interrupts", problem)
            if mode is IRQAffinity.OFF:
                self._holder.show(interrupts=UNSET)
                return
            pods = {**state.remembered, **state.kubelet.node.active}
            problems = self._learn_devices(options.kubelet_pod_resources, pods)
            owners = interrupts.owners_of(state.kubelet.node.cpu, pods, self._devices, state.claim_users)
            found, online = self._files.read(), self._files.online()
            room = interrupts.InterruptCPUs(online, reserved_cpus(state.kubelet))
            steps, memory = interrupts.steer(self._writer.known(found), self._memory, owners, room)
            for number, name in memory.alone.items():
                if number not in self._memory.alone:
                    self._once(f"interrupt {number} ({name})", "another program has moved it; it is left alone")
            if mode is IRQAffinity.ON:
                steps, self._memory = self._writer.carry_out(steps, memory)
            problems += [*annotation_findings(pods.values()), *self._in_the_way(online, owners)]
            # What is in the way, and in a dry run what would be written, is logged once.
            for finding in problems:
                self._once(finding.subject, finding.message)
            for step in steps:
                one = step.interrupt
                if step.why is interrupts.Why.NO_ROOM:
                    self._once(f"interrupt {one.number}", "every CPU is exclusive; it stays where it is")
                if mode is IRQAffinity.DRY_RUN and step.write is not None:
                    words = f"dry run: CPUs {one.allowed} would become {step.write}"
                    self._once(f"interrupt {one.number} ({one.name})", words)
            self._holder.show(interrupts=_part(mode, steps, problems))

    def close(self, patience: float) -> None:
        """End the work; interrupts stay where they are, for the next agent."""
        if self._is_working:
            self._worker.finish(patience)

    def _learn_devices(self, socket: str, pods: Mapping[str, Pod]) -> list[Finding]:
        """Ask the kubelet for devices where a pod wants its interrupts; its last answer counts meanwhile."""
        cpu = self._holder.state.kubelet.node.cpu
        if all(one.wish is not interrupts.Wish.OWN for one in interrupts.owners_of(cpu, pods, {})):
            self._devices = {}
            return []
        try:
            self._devices = held_devices(socket, pods, self._address) if socket else {}
        except PodResourcesError as error:
            return [
                Finding("warning", socket, f"The kubelet does not report which devices pods hold: {error}", "MOOR-619")
            ]
        return [
            Finding(
                "info",
                owner.label,
                f"{owner.label} wants the interrupts of its devices, and none of them is known by a PCI address.",
                "MOOR-619",
            )
            for owner in interrupts.owners_of(cpu, pods, self._devices)
            if owner.wish is interrupts.Wish.OWN and not owner.devices
        ]

    def _in_the_way(self, online: CPUSet, owners: tuple[interrupts.Owner, ...]) -> Iterator[Finding]:
        now = time.monotonic()
        if now - self._balanced >= BALANCING:
            self._balanced, self._spared = now, self._files.spared(online)
        if self._spared is not None and (
            finding := interrupts.balance_finding(self._spared, interrupts.closed_to_others(owners))
        ):
            yield finding
        if self._writer.unwritable:
            yield READ_ONLY
        if self._journal.problem:
            yield Finding("warning", "interrupts", self._journal.problem, "MOOR-621")

    def _report(self, step: interrupts.Step, trouble: InterruptTrouble | None) -> None:
        """Count and log a write."""
        one, wanted = step.interrupt, step.write
        if trouble is not None:
            self._metrics.interrupts_refused.labels(trouble.value).inc()
            self._once(f"interrupt {one.number} ({one.name})", f"it is not moved to CPUs {wanted}: {trouble.value}")
            return
        counter = self._metrics.interrupts_restored if wanted == step.original else self._metrics.interrupts_moved
        counter.inc()
        self._log.info(
            "interrupt moved", interrupt=one.number, name=one.name, before=str(one.allowed), after=str(wanted)
        )

    def _once(self, about: str, problem: str) -> None:
        if (about, problem) not in self._said:
            if len(self._said) > 4000:
                self._said.clear()
            self._said.add((about, problem))
            self._log.warning(problem, about=about)


def _part(mode: IRQAffinity, steps: Iterable[interrupts.Step], findings: Iterable[Finding]) -> InterruptsPart:
    """Return interrupts as they are after a check, the last of its writes included, and what is in the way."""
    part = InterruptsPart(mode.value, 0, 0, 0, [], [], [], finding_parts(findings))
    for step in steps:
        one, why = step.interrupt, step.why
        shown = one.number, one.name, str(one.allowed)
        part.total += one.number != interrupts.NEW
        if why is None:
            part.left_alone.append(ForeignInterruptPart(*shown))
            continue
        part.managed += why is interrupts.Why.MANAGED
        part.no_room += why is interrupts.Why.NO_ROOM
        if one.allowed != step.original:
            part.moved.append(MovedInterruptPart(*shown, str(step.original), why.value))
        if step.write is not None:
            part.pending.append(PendingInterruptPart(*shown, str(step.write), why.value))
    return part


def _mode(state: AgentState, options: AgentOptions) -> IRQAffinity:
    return options.irq_affinity if IRQ_AFFINITY in state.kubelet.mooring.extensions else IRQAffinity.OFF


def held_devices(
    socket: str, pods: Mapping[str, Pod], address: Callable[[str, str], str] | None = None
) -> AddressesByPod:
    """Return the PCI addresses of what pods hold.

    Args:
        socket: of the kubelet's PodResources API.
        pods: by uid.
        address: of a driver's device, by driver and id; None where none is known.

    Raises:
        PodResourcesError: the kubelet does not tell.
    """
    with closing(PodResourcesClient(socket)) as client:
        listed = pods_in(client.listed())
    uids, held = {(pod.namespace, pod.name): uid for uid, pod in pods.items()}, dict[str, dict[str, frozenset[str]]]()
    for pod in listed:
        for container in pod.containers if (pod.namespace, pod.name) in uids else ():
            names = [device.id for _, device in container.devices]
            names += [(address(one.driver, one.id) if address else "") or one.name for _, one in container.dynamic]
            found = frozenset(filter(None, map(pci_address, names)))
            held.setdefault(uids[pod.namespace, pod.name], {})[container.name] = found
    return held


def annotation_findings(pods: Iterable[Pod]) -> Iterator[Finding]:
    """Report pods whose annotation about interrupts is invalid."""
    for pod in pods:
        if interrupts.wish_of(pod.annotations) is None:
            words, name = " or ".join(wish.value for wish in interrupts.Wish), interrupts.ANNOTATION
            says = f"has {name}: {pod.annotations[name]!r:.40}, which is not {words}; avoid applies."
            label = f"{pod.namespace}/{pod.name}"
            yield Finding("warning", label, f"{label} {says}", "MOOR-622")
