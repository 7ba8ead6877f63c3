"""A machine from whatever the user names: this computer, a snapshot, a description, a shipped shape, a line of text.

A machine as its kubelet would read it if some CPUs were offline when it starts.

Source: cAdvisor 0.60.5, which leaves CPUs out that are offline (``machine.GetTopology``, ``sysinfo.GetNodesInfo``);
their NUMA nodes stay with their memory.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from typing import Final

from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Hardware, Machine, MachineOrigin
from mooring.engine.core.machineinfo import HIGHEST_NODE, MachineInfo
from mooring.lazy import lazily, replace

with lazily():
    from mooring.inputs.decoding import files
    from mooring.inputs.machines import compact, composition, interrupts, machineinfo_json, shipped
    from mooring.inputs.machines import differences as compared
    from mooring.inputs.machines import kubelet_view as cadvisor_machine
    from mooring.inputs.machines import tree as trees
    from mooring.inputs.machines.formats import description, recognition
    from mooring.inputs.machines.hardware import machine as found_hardware

LIVE: Final = "live"
"""Names this computer; an empty source does as well."""
MAX_DESCRIPTION_BYTES: Final = 64 * 2**20
"""Largest JSON file that is read; a machine of 65536 CPUs has about 30 MiB."""

STANDARD_INPUT: Final = "-"
UNTOLD: Final = "MOOR-463"
"""Code of the finding that lists what the format of a file does not report."""

_FORMS: Final = "name a folder or file with a machine, FILE.jsonl#NAME, a shipped machine, or write sockets=2 cores=16"


def load_machine(source: str) -> Machine:
    """Return the machine that ``source`` names.

    Lines complete each other, and amounts may follow (:mod:`mooring.inputs.machines.composition`). Of what remains
    the form decides, in this order:

    1. empty or ``live``: this computer;
    2. the name of a shipped machine (write ``./NAME`` for a file of that name);
    3. a folder or tar archive with ``sys`` in it, or a file whose content decides: a MachineInfo, or what another tool
       wrote (:mod:`mooring.inputs.machines.formats`); ``-`` is a file on standard input;
    4. ``FILE.jsonl#NAME``: one of several descriptions;
    5. text with ``=``: compact text (:mod:`mooring.inputs.machines.compact`).

    Where both views are known, ``findings`` tells how they differ.

    Raises:
        InputError: there is no such machine, or it cannot be understood.
    """
    if _is_source(source):
        return _of_source(source)
    sources, amounts = composition.parts_of(source, _is_source)
    machine = composition.completed([_of_source(one) for one in sources])
    if amounts:
        machine = composition.with_amounts(machine, amounts)
    others = [finding for finding in machine.findings if finding.code != UNTOLD]
    if len(others) < len(machine.findings) and machine.origin.unknown:
        others = [*_unknown_parts(machine.origin), *others]
    return replace(machine, findings=tuple(others))


def _is_source(text: str) -> bool:
    """Tell whether a text is the whole name of a machine, apart from compact text."""
    path, hash_sign, _ = text.rpartition("#")
    is_known = text in ("", LIVE, STANDARD_INPUT) or text in shipped.SHIPPED
    return is_known or _exists(text) or bool(hash_sign and path.endswith(".jsonl") and _exists(path))


def _of_source(source: str) -> Machine:
    if source in ("", LIVE):
        return _from_tree("/")
    if source in shipped.SHIPPED:
        return shipped.shipped_machine(source)
    if source == STANDARD_INPUT:
        return machine_in(files.read_standard_input(), files.STANDARD_INPUT)
    if _exists(source):
        if os.path.isdir(source) or source.endswith(_ARCHIVE_SUFFIXES):  # noqa: PTH112 - a str in hand
            return _from_tree(source)
        if source.endswith(".jsonl"):
            return _from_lines(source, "")
        data = _read(source)
        return _from_tree(source) if recognition.is_archive(data[:512]) else machine_in(data, source)
    path, hash_sign, name = source.rpartition("#")
    if hash_sign and path.endswith(".jsonl"):
        return _from_lines(path, name)
    if "=" in source and not _looks_like_path(source):
        return compact.parse_compact(source)
    raise _unknown(source)


def machine_in(data: bytes, source: str) -> Machine:
    """Return the machine that the bytes of a file describe; their content decides the format.

    Raises:
        InputError: another format, which is named, or one that cannot be understood.
    """
    found = recognition.described(data, source)
    if found is not None:
        name = found.name or _base_name(source)
        read = machine_of(description.tree_of(found, source), name)
        return replace(
            read,
            origin=found.origin,
            published=found.published,
            findings=(*_unknown_parts(found.origin), *read.findings),
        )
    if machineinfo_json.is_lines(data):
        document = machineinfo_json.parse_machine_lines(data, source, "")
    else:
        document = machineinfo_json.parse_machine_info(data, source)
    return _of_description(document, document.name or _base_name(source))


def _unknown_parts(origin: MachineOrigin) -> Iterator[Finding]:
    assumed = f"; assumed: {', '.join(origin.assumed)}" if origin.assumed else ""
    message = f"{origin.format} does not report {', '.join(origin.unknown)}{assumed}"
    yield Finding("warning", "machine", message, UNTOLD)


def _of_description(document: machineinfo_json.DescribedMachine, name: str) -> Machine:
    origin = MachineOrigin("MachineInfo", ("what the hardware is beyond the kubelet's view", "PCI devices"))
    return Machine(name=name, info=document.info, origin=origin, findings=document.findings)


def _from_lines(path: str, name: str) -> Machine:
    document = machineinfo_json.parse_machine_lines(_read(path), path, name)
    return _of_description(document, document.name)


def _from_tree(path: str) -> Machine:
    return machine_of(trees.open_tree(path), LIVE if path == "/" else _base_name(path))


def machine_of(tree: trees.Tree, name: str = "") -> Machine:
    """Return the machine of a tree, under a name; without one that of its folder or archive.

    Raises:
        InputError: the tree holds no machine that can be understood.
    """
    hardware = found_hardware.read_hardware(tree)
    answer = cadvisor_machine.read_machine_info(tree)
    # Sets of CPUs and nodes are bit masks, as long as their highest member: no kernel gives such ids.
    for node in answer.info.topology:
        highest = max((max(core.thread_ids) for core in node.cores), default=0)
        if highest > HIGHEST_CPU or node.node_id > HIGHEST_NODE:
            problem = f"names CPU {highest}" if highest > HIGHEST_CPU else f"names NUMA node {node.node_id}"
            raise InputError(problem, source=tree.name, remedy="no kernel has such a number: check the snapshot")
    odd = found_hardware.hardware_findings(tree, hardware)
    found = (*_refusals(answer), *odd, *compared.differences(answer.info, hardware))
    return Machine(
        name=name or _base_name(tree.name),
        info=replace(answer.info, facts=hardware.facts),
        hardware=hardware,
        info_error=answer.info_error,
        pci=interrupts.read_pci_devices(tree),
        findings=found,
    )


def _refusals(answer: cadvisor_machine.CadvisorAnswer) -> Iterator[Finding]:
    if answer.info_error:
        message = f"cAdvisor cannot describe the machine, so a kubelet does not start: {answer.info_error}"
        yield Finding("warning", "machine", message, "MOOR-461")
    if answer.topology_error:
        message = f"cAdvisor cannot read the topology: {answer.topology_error}"
        yield Finding("warning", "topology", message, "MOOR-462")


def _read(path: str) -> bytes:
    """Return the bytes of a description.

    Raises:
        InputError: the file cannot be read or is too large.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above; a named pipe would be waited for
            remedy = "name a file with a machine, or pass it on standard input: --machine -"
            raise InputError("is not a file", source=path, remedy=remedy)
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            data = file.read(MAX_DESCRIPTION_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = f"cannot be read: {problem}"
        raise InputError(problem, source=path, remedy="check the path and its permissions") from None
    if len(data) > MAX_DESCRIPTION_BYTES:
        problem = f"is larger than {MAX_DESCRIPTION_BYTES} bytes"
        raise InputError(problem, source=path, remedy="is it a machine description?")
    return data


def _exists(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - pathlib raises for some of what a user may type
    except (OSError, ValueError):
        return False
    return True


_ARCHIVE_SUFFIXES: Final = (".tar", ".tgz", ".gz", ".bz2", ".xz")


def _looks_like_path(source: str) -> bool:
    return "/" in source or source.endswith((".json", ".jsonl", ".xml", ".yaml", ".yml", ".txt", *_ARCHIVE_SUFFIXES))


def _base_name(path: str) -> str:
    name = os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - names only, nothing is looked up
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tar", ".json", ".xml", ".yaml", ".yml", ".txt"):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def _unknown(source: str) -> InputError:
    known = tuple(shipped.SHIPPED)
    shown = source if source.isprintable() else ascii(source)
    if len(shown) > 80:
        shown = f"{shown[:80]}..."
    if _looks_like_path(source):
        return InputError("no such file or folder", source=shown, remedy=_FORMS)
    near = [name for name in known if source.lower() in name]
    near = near or difflib.get_close_matches(source.lower()[:80], known, n=3, cutoff=0.4)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"{_FORMS}; shipped are {', '.join(known)}"
    return InputError("unknown machine", source=shown, remedy=remedy)


CODE = "MOOR-517"


def without_cpus(machine: Machine, cpus: CPUSet) -> Machine:
    """Return a machine with some of its CPUs offline.

    Raises:
        InputError: it does not have them, or no CPU would be left.
    """
    known = CPUSet.from_ids(cpu for node in machine.info.topology for core in node.cores for cpu in core.thread_ids)
    if cpus - known:
        raise InputError(f"the machine has no CPU {cpus - known}", field="--offline", remedy=f"it has {known}")
    if not known - cpus:
        raise InputError("no CPU would be left", field="--offline", remedy="leave one online")
    message = "offline before the kubelet starts; for CPUs that go offline later use the extension cpu-hotplug"
    finding = Finding("info", f"CPU{'' if len(cpus) == 1 else 's'} {cpus}", message, CODE)
    hardware = None if machine.hardware is None else _hardware(machine.hardware, cpus)
    return replace(machine, info=_info(machine.info, cpus), hardware=hardware, findings=(*machine.findings, finding))


def _info(info: MachineInfo, cpus: CPUSet) -> MachineInfo:
    topology = []
    for node in info.topology:
        left = (replace(one, thread_ids=tuple(cpu for cpu in one.thread_ids if cpu not in cpus)) for one in node.cores)
        topology.append(replace(node, cores=tuple(core for core in left if core.thread_ids)))
    cores = [core for node in topology for core in node.cores]
    return replace(
        info,
        num_cores=sum(len(core.thread_ids) for core in cores),
        num_sockets=len({core.socket_id for core in cores}),
        topology=tuple(topology),
    )


def _hardware(hardware: Hardware, cpus: CPUSet) -> Hardware:
    nodes = tuple(replace(node, local_cpus=node.local_cpus - cpus) for node in hardware.nodes)
    left = tuple(cpu for cpu in hardware.cpus if cpu.id not in cpus)
    return replace(
        hardware,
        cpus=left,
        online=hardware.online - cpus,
        offline=hardware.offline | cpus,
        nodes=nodes,
        num_cores=len({cpu.core for cpu in left}),
        num_packages=len({cpu.package_first_cpu for cpu in left}),
    )
