"""A document of a vendor while it is read: its fields, their places, and what is to be reported.

What vendors reserve: by formulas that they publish, and what is assumed where none is known.

A formula does not say how the vendor rounds: ``reservedMemory`` decides between amounts that are less than 1 MiB apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mooring.engine.core.config import GivenFlag
from mooring.engine.core.decision import Fault
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import Release
from mooring.engine.node.reservation import reserve
from mooring.engine.releases.config_fields import KNOWN_FLAGS, LASTING_FLAGS
from mooring.inputs.configuration.kubelet_config import config_of_fields
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.configuration.layers import Computed, FieldPlace, Layer, Tier, merged_layers
from mooring.inputs.configuration.sources import ConfigurationSource
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD, unknown_fields, unknown_findings
from mooring.inputs.decoding.fields import Report, as_mapping, mapping_at, nearest, within
from mooring.lazy import dataclass, replace

VENDOR_DECIDES: Final = "MOOR-514"
"""Code of what a vendor's file does not tell."""
RESERVATION_UNKNOWN: Final = "MOOR-527"
"""Code of a reservation that a vendor computes on the node, that decides, and that is not known here."""


@dataclass(frozen=True, slots=True)
class VendorField:
    """A field of a vendor that is one of a KubeletConfiguration."""

    path: str
    """Of the vendor, such as ``topologyManager.policy``."""
    field: str
    """Of the KubeletConfiguration."""
    values: tuple[str, ...] = ()
    """What the vendor takes; empty if it takes what the kubelet takes."""


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """The version of a kubelet that a vendor's file names."""

    version: str
    place: FieldPlace


@dataclass(frozen=True, slots=True)
class VendorPart:
    """A document of a vendor."""

    vendor: str
    """Its name in messages."""
    content: dict[str, Any]
    source: ConfigurationSource
    report: Report
    machine: MachineInfo | None = None
    """By whose size some vendors reserve; None when it is not known."""

    def computed(
        self, message: str, formula: Callable[[Mapping[str, Any]], int | None] = lambda _: None, least: int = 0
    ) -> Computed:
        """Return a field that the vendor computes; the message says how, the others as in :class:`Computed`."""
        return Computed(self.finding("", message), formula, least)

    def place(self, path: str) -> FieldPlace:
        """Return where a field of the document is."""
        return FieldPlace(self.source.places([path])[path], path)

    def below(self, path: str, content: dict[str, Any]) -> VendorPart:
        """Return the part of the document at a path, whose fields have their places in the whole."""

        def places(fields: Iterable[str]) -> dict[str, SourcePlace]:
            known = {field: f"{path}.{field}" if field else path for field in fields}
            found = self.source.places(list(known.values()))
            return {field: found[whole] for field, whole in known.items()}

        return replace(self, content=content, source=replace(self.source, places=places))

    def mapping(self, path: str) -> dict[str, Any]:
        """Return the mapping at a path of names with dots between; absent ones are empty.

        Raises:
            InputError: something else is there.
        """
        found, above = self.content, ""
        for name in path.split(".") if path else ():
            with within(above):
                found = mapping_at(found, name)
            above = f"{above}.{name}" if above else name
        return found

    def layer(self, tier: Tier, path: str) -> Layer:
        """Return the fields of a KubeletConfiguration below a path."""
        prefix = f"{path}." if path else ""
        return Layer(tier, self.mapping(path), lambda field: self.place(prefix + field), self.vendor)

    def translated(self, tier: Tier, path: str, table: Sequence[VendorField]) -> Layer:
        """Return the vendor's fields below a path as those of a KubeletConfiguration.

        Raises:
            InputError: the vendor does not take a value.
        """
        fields: dict[str, Any] = {}
        places: dict[str, str] = {}
        for one in table:
            above, _, name = f"{path}.{one.path}".lstrip(".").rpartition(".")
            below = self.mapping(above)
            if below.get(name) is None:
                continue
            where = f"{above}.{name}" if above else name
            if one.values:
                self.check_value(where, below[name], one.values)
            fields[one.field], places[one.field] = below[name], where
        return Layer(tier, fields, lambda field: self.place(places.get(field.partition(".")[0], path)), self.vendor)

    def flags(self, arguments: Iterable[tuple[str, str]]) -> Layer:
        """Return the layer of flags; each argument comes with its path in the document."""
        given = list(arguments)
        flags = kubelet_flags([text for text, _ in given])
        places = {written: self.place(given[position][1]) for written, position in flags.leaving.items()}
        for written, place in places.items():
            name = written.partition("=")[0].lstrip("-").replace("_", "-")
            if name not in KNOWN_FLAGS:
                close = nearest(name, LASTING_FLAGS)
                hint = f"; did you mean --{close}?" if close else ""
                message = f"{place.source}: the kubelet has no flag --{name:.60}{hint}"
                self.report(Finding("warning", place.field, message, UNKNOWN_CONFIGURATION_FIELD, place.source))

        def place_of(field: str) -> FieldPlace:
            position = flags.positions.get(field.partition(".")[0], 0)
            return self.place(given[position][1]) if given else self.place("")

        named = {Tier.FILE: flags.config, Tier.DROP_IN: flags.config_dir}
        reads = {tier: path for tier, path in named.items() if path}
        leaving = tuple(GivenFlag(written, str(place)) for written, place in places.items())
        return Layer(Tier.FLAGS, flags.fields, place_of, self.vendor, reads=reads, flags=leaving)

    def documented(
        self, tier: Tier, fields: Mapping[str, Any], computed: Mapping[str, Computed] | None = None
    ) -> Layer:
        """Return what the vendor sets by itself, as it documents; ``computed`` as in a layer."""
        place = FieldPlace(SourcePlace(f"{self.vendor}'s default"), "")
        return Layer(tier, fields, lambda _: place, self.vendor, built_in=True, computed=computed or {})

    def note(self, path: str, message: str) -> None:
        """Report what the file does not tell."""
        self.report(self.finding(path, message))

    def finding(self, path: str, message: str) -> Finding:
        """Return what the file does not tell, to be reported."""
        return Finding("info", path or self.vendor, f"{self.place(path).source}: {message}", VENDOR_DECIDES)

    def report_unknown(self, kind: str, content: object, path: str = "") -> None:
        """Report the fields of content that its type does not have.

        Args:
            kind: the type in the table of fields.
            content: what is checked.
            path: where it is in the document.
        """
        unknown = unknown_fields([(kind, content, path)])
        document = self.source.document
        for finding in unknown_findings(unknown, UNKNOWN_CONFIGURATION_FIELD, document.place, self.source.places):
            self.report(finding)

    def refusal(self, path: str, problem: str, remedy: str = "") -> InputError:
        """Return the error for something that the vendor refuses."""
        return InputError(problem, source=str(self.place(path).source), field=path, remedy=remedy)

    def check_value(self, path: str, value: object, values: Sequence[str]) -> None:
        """Refuse what the vendor refuses.

        Raises:
            InputError: naming the values that it takes.
        """
        if value not in values:
            close = nearest(str(value), frozenset(values))
            shown = f"'{value:.60}'" if isinstance(value, str) else str(value)
            remedy = f"did you mean {close}?" if close else f"write {', '.join(values)}"
            raise self.refusal(path, f"{self.vendor} does not take {shown}", remedy)

    def refuse_fields(self, path: str, names: Iterable[str], instead: str = "remove it") -> None:
        """Refuse fields that the vendor reserves for itself.

        Raises:
            InputError: one of them is there.
        """
        present = self.mapping(path)
        for name in names:
            if present.get(name) not in (None, "", [], {}):
                raise self.refusal(f"{path}.{name}", f"{self.vendor} does not let this field be set", instead)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Name file and line in an error that names a field alone."""
        try:
            yield
        except InputError as error:
            if error.source:
                raise
            place = str(self.place(error.field).source)
            raise InputError(error.problem, source=place, field=error.field, remedy=error.remedy) from None


def strings_of(values: object, field: str) -> list[tuple[str, str]]:
    """Return strings with their paths: of one string, or of a list.

    Raises:
        InputError: something else is among them.
    """
    listed = values if isinstance(values, list) else [] if values is None else [values]
    found = []
    for index, value in enumerate(listed):
        path = f"{field}[{index}]" if isinstance(values, list) else field
        if not isinstance(value, str):
            raise InputError("must be a string", field=path, remedy="put it in quotes")
        found.append((value, path))
    return found


def pairs_of(values: object, field: str) -> list[tuple[str, str]]:
    """Return a mapping of flags, each ``--name=value``, with their paths; a value may be a list.

    Raises:
        InputError: something else is there.
    """
    with within(field):
        given = as_mapping(values) if values is not None else {}
    return [
        (f"--{name.lstrip('-')}={value}", path)
        for name, inner in given.items()
        for value, path in strings_of(inner, f"{field}.{name}")
    ]


_GIB: Final = 1024**3
_MIB: Final = 1024**2

_MILLI_RANGES: Final = ((1000, 600), (1000, 100), (2000, 50))
"""Thousandths of CPUs, and how many of 10,000 parts are reserved; of all further CPUs 25."""


def milli_by_ranges(cpus: int) -> int:
    """Return the thousandths of a CPU that GKE and EKS reserve: 6 % of the first, 1 %, twice 0.5 %, then 0.25 % each.

    Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes;
    https://github.com/awslabs/amazon-eks-ami, get_cpu_millicores_to_reserve of bootstrap.sh

    >>> [milli_by_ranges(cpus) for cpus in (1, 2, 4, 8, 96)]
    [60, 70, 80, 90, 310]
    """
    return _by_ranges(cpus * 1000, _MILLI_RANGES, 25, 10_000)


def _by_ranges(amount: int, ranges: Iterable[tuple[int, int]], rest: int, whole: int) -> int:
    """Return the sum of the shares of a whole that are reserved in ranges, and in the rest of an amount."""
    total, left = 0, amount
    for width, share in ranges:
        total += min(width, left) * share // whole
        left -= min(width, left)
    return total + left * rest // whole


_GKE_MEMORY: Final = ((4 * _GIB, 25), (4 * _GIB, 20), (8 * _GIB, 10), (112 * _GIB, 6))
"""Bytes, and the percentage of them that is reserved; of all further memory 2 %."""


def gke_memory(memory: int) -> int:
    """Return the bytes that GKE reserves of a machine's memory, without the eviction threshold.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes

    >>> [gke_memory(gib * 1024**3) // 1024**2 for gib in (4, 8, 16, 128)]
    [1024, 1843, 2662, 9543]
    """
    if memory < _GIB:
        return 255 * _MIB
    return _by_ranges(memory, _GKE_MEMORY, 2, 100)


_AKS_MILLI: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""CPUs of a node, and the thousandths of a CPU that are reserved."""


def aks_milli(cpus: int) -> int:
    """Return the thousandths of a CPU that AKS reserves; the table's step below where it has no such size.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations

    >>> [aks_milli(cpus) for cpus in (2, 8, 20, 96)]
    [100, 180, 260, 740]
    """
    return next((milli for size, milli in reversed(_AKS_MILLI) if cpus >= size), _AKS_MILLI[0][1])


def eks_memory(pods: int) -> int:
    """Return the bytes that EKS reserves on a node that can have so many pods.

    Source: https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go
    (getMemoryMebibytesToReserve), read in November 2026

    >>> eks_memory(58) // 1024**2
    893
    """
    return (255 + 11 * pods) * _MIB


def aks_memory(pods: int, memory: int) -> int:
    """Return the bytes that AKS reserves from Kubernetes 1.29 on; no older kubelet is known here.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations, read in November 2026

    >>> [aks_memory(pods, gib * 1024**3) // 1024**2 for pods, gib in ((30, 8), (70, 4))]
    [650, 1024]
    """
    return min((50 + 20 * pods) * _MIB, memory * 25 // 100)


_RESERVED_MEMORY: Final = "reservedMemory"


def with_computed(
    layers: Iterable[Layer], machine: MachineInfo | None, *, has_file: bool, release: Release
) -> tuple[list[Layer], list[Finding]]:
    """Return the layers with those of what vendors compute and no layer sets, and what to report of it.

    Without a formula, ``reservedMemory`` of policy Static tells what the node reserves: on a healthy node it adds up.
    """
    found = list(layers)
    findings: dict[str, Finding] = {}
    for layer in tuple(found):
        for path, computed in layer.computed.items():
            if path in findings or any(one.sets(path) for one in found):
                continue
            fields = merged_layers(found, has_file=has_file, release=release)
            exact, finding, origin = computed.formula(fields), computed.finding, "by its formula"
            amount = exact
            if fields.get("memoryManagerPolicy") == "Static":
                told = _told(path, fields, machine, release)
                if exact is None:
                    is_told = told is not None and told >= computed.least
                    amount, origin = (told, "assumed") if is_told else (computed.least or None, "at least")
                    finding = replace(finding, severity="warning", code=RESERVATION_UNKNOWN)
                elif told is not None and abs(told - exact) < _MIB:
                    amount = told
            words = "" if amount is None else f"; {path} is {Quantity.of_bytes(amount)} ({origin})"
            findings[path] = replace(finding, message=f"{finding.message}{words}")
            if amount is not None:
                found.append(_layer(path, amount, FieldPlace(SourcePlace(f"{layer.vendor}, {origin}"), ""), machine))
    return found, list(findings.values())


def _told(path: str, fields: Mapping[str, Any], machine: MachineInfo | None, release: Release) -> int | None:
    """Return the bytes with which ``reservedMemory`` adds up; None where no amount makes it add up."""
    config = config_of_fields(fields)
    info = machine or MachineInfo(0, 0, 0, ())
    kept = reserve(replace(config, reserved_system_cpus=""), info, "", release.rules)
    if isinstance(kept, Fault) or not info.memory_capacity:
        return None
    known = kept.reserved["memory"].units if "memory" in kept.reserved else 0
    if path == _RESERVED_MEMORY:
        return known or None
    listed = sum(
        Quantity.parse(entry.limits["memory"]).units for entry in config.reserved_memory if "memory" in entry.limits
    )
    return listed - known if listed > known else None


def _layer(path: str, amount: int, place: FieldPlace, machine: MachineInfo | None) -> Layer:
    text = str(Quantity.of_bytes(amount))
    field, _, key = path.partition(".")
    node = min((one.node_id for one in machine.topology), default=0) if machine else 0
    value: Any = {key: text} if key else [{"numaNode": node, "limits": {"memory": text}}]
    return Layer(Tier.VENDOR_FILE, {field: value}, lambda _: place, built_in=True)
