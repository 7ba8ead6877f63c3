"""A node as objects and files about it tell it: a NodeResourceTopology, dumps of the PodResources API, state files.

A NodeResourceTopology has policy and scope, devices, and what containers hold in each zone.

The object counts amounts. So the devices of a zone are numbered, and one pod a zone holds what is not available there:
the highest CPUs that are not reserved, memory, and the first devices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mooring.answers.base.inputs.checks import check_folder
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.checkpoint.store import read_state_file
from mooring.engine.core.bits import CPUMask, mask_of, members
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Container, Pod, PodLevelGates, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text, memory_text
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.state import Block, MemoryState, charge
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.explanations.phrases import joined, size
from mooring.inputs.configuration.devices import ResourcesDump, listed_resources
from mooring.inputs.decoding.fields import Document, within

if TYPE_CHECKING:
    from mooring.answers.base.plan import Question

PUBLISHED: Final = "MOOR-528"
"""Code of what a NodeResourceTopology says and another source says otherwise."""
_MEMBERS: Final = {
    "topologyManagerPolicy": "topology_manager_policy",
    "topologyManagerScope": "topology_manager_scope",
    "cpuManagerPolicy": "cpu_manager_policy",
    "memoryManagerPolicy": "memory_manager_policy",
    "reservedSystemCPUs": "reserved_system_cpus",
}
_TAKEN_OVER: Final = ("topologyManagerPolicy", "topologyManagerScope")
"""Fields that need no other field with them."""
_HOLDER: Final = "held"
"""Name of the container that holds what is not available in a zone."""


def read_state(state: str) -> StateTexts:
    """Read the state files of a kubelet root directory, or one of them; they are never written.

    Raises:
        InputError: there is nothing, it is no state file, or it cannot be read.
    """
    if not state:
        return StateTexts()
    if not Path(state).is_file():
        check_folder(state, "--state")
    return StateTexts(state_text(state, CPU_FILE), state_text(state, MEMORY_FILE))


def state_text(state: str, name: str) -> str | None:
    """Return the text of a file of the kubelet's root directory; None where it is not there, or another is given."""
    path = Path(state)
    if not path.is_file():
        return read_state_file(path / name)
    head, brace, body = (read_state_file(path) or "").partition("{")
    # What a terminal shows before the file's text.
    text = f"{brace}{body}" if "_manager_state" in head or "checkpoint" in head else f"{head}{brace}{body}"
    marks = {CPU_FILE: '"defaultCpuSet"', MEMORY_FILE: '"machineState"', DEVICE_FILE: '"PodDeviceEntries"'}
    known = [file for file, mark in marks.items() if mark in text]
    known = known or [file for file in marks if Path(file).name in path.name]
    if not known:
        remedy = f"give {CPU_FILE}, {MEMORY_FILE}, or the directory that has them"
        raise InputError("is no state file of a kubelet", source=state, field="--state", remedy=remedy)
    return text if name in known else None


def listed_resources_in(documents: Sequence[Document]) -> tuple[list[Document], list[ResourcesDump]]:
    """Return the documents of ``--active`` with pods, and what dumps of the PodResources API among them say.

    Raises:
        InputError: such a dump cannot be understood.
    """
    others, resources = [], []
    for one in documents:
        with within(source=one.source):
            found = listed_resources(one.content)
        if found is None:
            others.append(one)
        else:
            resources.append(found)
    return others, resources


def with_listed(question: Question, listed: Iterable[ResourcesDump]) -> Question:
    """Return a question with the holders that dumps of the PodResources API list: pods with CPUs, memory and devices.

    A pod that is known otherwise keeps what it requests. State files that are given win over the dumps.
    """
    found = [(key, containers) for one in listed for key, containers in one.pods.items()]
    if not found:
        return question
    known = {(pod.namespace, pod.name): pod for pod in question.active}
    pods, held = list(question.active), dict(question.held)
    start = start_on(question.machine, question.config, question.mooring, StateTexts())
    started = None if isinstance(start, NotStarted) or question.files != StateTexts() else start
    cpu, memory = (started.node.cpu, started.node.memory) if started else (None, None)
    for (namespace, name), containers in found:
        made, is_spread = [], False
        for container, one in containers.items():
            amounts = {resource: len(ids) for resource, ids in one.devices.items()}
            amounts |= {"cpu": len(one.cpus)} if one.cpus else {}
            near = {node for _, _, listed_ in one.memory for node in listed_}
            for kind, amount, _ in one.memory:
                amounts[kind] = amounts.get(kind, 0) + amount
            requests = {resource: Quantity.parse(str(amount)) for resource, amount in amounts.items()}
            made.append(Container(container, requests=requests, limits=requests))
            if started and started.settings.cpu is not None:
                near |= {node for node, mask in started.settings.cpu.topology.numa.items() if mask & one.cpus.mask}
            for resource, ids in one.devices.items():
                held_here = (device for device in question.devices.get(resource, ()) if device.id in ids)
                near |= {node for device in held_here for node in device.numa or ()}
            is_spread = is_spread or len(near) > 1
        qos = QoS.GUARANTEED if any(one.cpus for one in containers.values()) else QoS.BURSTABLE
        listed_pod = Pod(f"{namespace}/{name}", name, namespace, tuple(made), qos)
        pod = known.get((namespace, name)) or listed_pod
        if started and is_spread:
            # A kubelet that starts would reject it; it runs, and holds what it holds.
            pod = replace(pod, containers=tuple(Container(one) for one in containers), qos=QoS.BEST_EFFORT)
        pods += [] if (namespace, name) in known else [pod]
        held[pod.uid] = {container: dict(one.devices) for container, one in containers.items()}
        if cpu is not None and started and started.settings.cpu is not None:
            masks = {container: one.cpus.mask for container, one in containers.items() if one.cpus}
            free = cpu.default & ~mask_of(number for one in containers.values() for number in one.cpus)
            assignments = {**cpu.assignments, pod.uid: masks} if masks else cpu.assignments
            cpu = replace(cpu, default=CPUMask(free), assignments=assignments)
        if memory is not None and started and started.settings.memory is not None:
            blocks = {
                container: tuple(Block(nodes, kind, size) for kind, size, nodes in one.memory)
                for container, one in containers.items()
                if one.memory
            }
            memory = _charged(memory, pod.uid, blocks)
    files = question.files
    if started and cpu is not None and memory is not None:
        files = StateTexts(cpu_text(started.settings, cpu), memory_text(started.settings, memory))
    return replace(question, active=tuple(pods), held=held, files=files)


def with_published(question: Question, sets: Callable[[str], bool], running: Collection[str] = frozenset()) -> Question:
    """Return a question with what the object says about the node, where nothing else says it.

    Args:
        question: about a machine that may be read from such an object.
        sets: tells whether the given configuration sets a field.
        running: uids of pods of which the cluster says that they run, also where they are asked about.
    """
    published = question.machine.published
    if published is None:
        return question
    config, findings = question.config, list(question.findings)
    for field, value in published.fields.items():
        own = getattr(config, _MEMBERS[field])
        if field in _TAKEN_OVER and not sets(field):
            config = replace(config, **{_MEMBERS[field]: value})  # type: ignore[arg-type]
        elif own != value:
            message = f"the NodeResourceTopology says {value}, the configuration {own}, which counts"
            findings.append(Finding("warning", field, message, PUBLISHED))
    given = [*question.active, *(pod for pod in question.pods if pod.uid in running)]
    known = question.files != StateTexts() or bool(given)
    if published.taken:
        held = joined(
            [
                f"{amount if name == 'cpu' else size(amount) if is_memory(name) else amount} "
                f"{'CPUs' if name == 'cpu' else name} of NUMA node {node}"
                for node, amounts in sorted(published.taken.items())
                for name, amount in amounts.items()
            ]
        )
        message = f"the NodeResourceTopology says that containers hold {held}"
        cpus = sum(amounts.get("cpu", 0) for amounts in published.taken.values())
        pinned = sum(exclusive_cpus(pod, one, PodLevelGates()) for pod in given for one in pod.containers)
        if not known:
            findings.append(Finding("info", "machine", f"{message}: a pod of each node stands for them", PUBLISHED))
        elif given and pinned != cpus:
            message += f"; the running pods that are given, which hold {pinned} CPUs, count alone: give all, or none"
            findings.append(Finding("warning", "machine", message, PUBLISHED))
        else:
            message += "; the running pods that are given count in their place"
            findings.append(Finding("info", "machine", message, PUBLISHED))
    found = replace(question, config=config, findings=tuple(findings))
    return found if known or not published.taken else _with_holders(found, published.taken)


def _with_holders(question: Question, taken: Mapping[int, Mapping[str, int]]) -> Question:
    """Return the question with a running pod for each zone in which something is not available."""
    start = start_on(question.machine, question.config, question.mooring, StateTexts())
    if isinstance(start, NotStarted):
        return question
    settings, cpu, memory = start.settings, start.node.cpu, start.node.memory
    pods, held = [], dict(question.held)
    for node, amounts in sorted(taken.items()):
        uid, asked = f"held-on-node-{node}", dict(amounts)
        # The highest CPUs that can be exclusive; none without the static policy.
        count, policy = asked.pop("cpu", 0), settings.cpu
        usable = policy and list(members(cpu.default & policy.topology.numa.get(node, 0) & ~policy.reserved))
        if usable and (cpus := CPUMask(mask_of(usable[max(len(usable) - count, 0) :]))):
            cpu = replace(cpu, default=cpu.default & ~cpus, assignments={**cpu.assignments, uid: {_HOLDER: cpus}})
            asked["cpu"] = cpus.bit_count()
        blocks = []
        for resource in sorted(filter(is_memory, asked)) if settings.memory is not None else ():
            table = memory.nodes[node].memory.get(resource)
            asked[resource] = min(asked[resource], table.free if table else 0)
            blocks.append(Block((node,), resource, asked[resource]))
        memory = _charged(memory, uid, {_HOLDER: tuple(blocks)} if blocks else {})
        ids = {
            resource: frozenset([one.id for one in question.devices[resource] if one.numa == (node,)][:count])
            for resource, count in asked.items()
            if resource in question.devices
        }
        held[uid] = {_HOLDER: ids}
        requests = {
            name: Quantity.of_bytes(amount) if is_memory(name) else Quantity.parse(str(amount))
            for name, amount in asked.items()
        }
        container = Container(_HOLDER, requests=requests, limits=requests)
        pods.append(Pod(uid, f"node-{node}", "NodeResourceTopology", (container,), QoS.GUARANTEED))
    files = StateTexts(cpu_text(settings, cpu), memory_text(settings, memory))
    return replace(question, active=tuple(pods), held=held, files=files)


def _charged(memory: MemoryState, uid: str, blocks: Mapping[str, tuple[Block, ...]]) -> MemoryState:
    """Return the state in which a pod's containers hold memory too."""
    nodes = memory.nodes
    for block in chain(*blocks.values()):
        if any(node not in nodes or block.type not in nodes[node].memory for node in block.numa):
            where = f"{block.type!r:.40} of NUMA nodes {', '.join(map(str, block.numa))}"
            raise InputError(f"{uid:.80} holds {where}, which this machine does not have", remedy="give its own list")
        nodes = charge(nodes, block.numa, block.type, block.size)
    return replace(memory, nodes=nodes, assignments={**memory.assignments, **({uid: blocks} if blocks else {})})
