"""The configuration of a node, from one or several files of one or several formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Fault
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.devicemanager.state import Preference
from mooring.engine.node.reservation import reserve
from mooring.inputs.configuration import devices as declared
from mooring.inputs.configuration import kubelet_config as kubelet
from mooring.inputs.configuration import mooring_config as mooring
from mooring.inputs.configuration.devices import Declared
from mooring.inputs.configuration.kubelet_config import EffectiveField, FieldPlace, Layer, Tier, merged_layers
from mooring.inputs.configuration.kubelet_flags import merged_configuration
from mooring.inputs.configuration.sources import ConfigurationSource, load_sources, sources_of
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD, UNKNOWN_VALUE, value_problems
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import Document, Report, ignore, kind_of, text_at, within
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    from mooring.inputs.configuration import distributions, embedded, vendors

if TYPE_CHECKING:
    from mooring.inputs.configuration.vendors import ConfigurationFormat, NamedVersion, VendorPart


RESERVATION_UNKNOWN: Final = "MOOR-527"
"""Code of a reservation that a vendor computes on the node, that decides, and that is not known here."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """Everything that was said about one node."""

    kubelet: KubeletConfig
    mooring: MooringConfig
    devices: Declared = field(default_factory=dict)
    """Resources of device plugins, listed or to be chosen from the machine's PCI devices."""
    findings: tuple[Finding, ...] = ()
    """What was odd in the files, such as fields that the kubelet does not know."""
    fields: frozenset[str] = frozenset()
    """Names of the fields that the files set for the kubelet; none of ``/configz``, which shows defaults too."""
    layers: tuple[Layer, ...] = field(default=(), compare=False)
    """What each file, and each vendor, says about the kubelet."""
    has_file: bool = True
    """Whether the kubelet runs with ``--config``."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""

    @property
    def merged(self) -> dict[str, Any]:
        """The fields of a KubeletConfiguration that are in force."""
        return merged_layers(self.layers, has_file=self.has_file, release=self.mooring.release)

    def effective(self) -> tuple[EffectiveField, ...]:
        """Return what decides of the fields in force, each with its origin."""
        return kubelet.effective_fields(self.layers, has_file=self.has_file, release=self.mooring.release)


def load_config(*paths: str | os.PathLike[str]) -> NodeConfiguration:
    """Read what configures a kubelet, Mooring's own document and declared devices, from one file or several.

    What is missing has its defaults: the kubelet's as of v1.37.1, and nothing switched on for Mooring.

    Raises:
        InputError: a file cannot be used, holds something else, or a configuration appears twice.
    """
    return configuration_of(source for path in paths for source in load_sources(path))


def configuration_of(
    given: Iterable[ConfigurationSource | Document],
    release: Release = NEWEST,
    machine: MachineInfo | None = None,
    *,
    refused: Report = ignore,
) -> NodeConfiguration:
    """Return what documents say about one node; see :func:`load_config`.

    Args:
        given: documents of one node.
        release: of the kubelet.
        machine: by whose size some vendors reserve; None when it is not known.
        refused: receives what was odd up to an error; without one it is in the result.

    Raises:
        InputError: one of them is something else, or a configuration appears twice.
    """
    findings: list[Finding] = []
    try:
        found, layers, has_file = _gathered(given, release, machine, findings)
    except InputError:
        for finding in findings:
            refused(finding)
        raise
    mooring_part = MooringConfig(release=release)
    if own := found.get(mooring.KIND):
        content, document = own
        with located(document):
            mooring_part = replace(mooring.mooring_config(content, source=document.source), release=release)
    devices: Declared = {}
    preferences: Mapping[str, Preference] = {}
    if own := found.get(declared.KIND):
        content, document = own
        with located(document):
            devices, preferences = declared.declared_devices(content, source=document.source)
            if machine is not None:
                declared.check_nodes(devices, machine, source=document.source)
    # The files that flags name and that were not given.
    tiers = {layer.tier for layer in layers if not layer.built_in}
    unread = ((layer.vendor, path) for layer in layers for tier, path in layer.reads.items() if tier not in tiers)
    for vendor, path in unread:
        message = f"the kubelet also reads {path}: give that with --config too"
        findings.append(Finding("info", vendor, message, vendors.VENDOR_DECIDES))
    has_file = has_file or not layers or any(Tier.FILE in layer.reads for layer in layers)
    if any(layer.computed for layer in layers):
        layers, told = _with_computed(layers, machine, has_file=has_file, release=release)
        findings += told
    merged = merged_layers(layers, has_file=has_file, release=release)
    shows_defaults = kubelet.KIND in found and kubelet.CONFIGZ in found[kubelet.KIND][0]
    fields = (name for layer in layers if not layer.built_in for name in layer.fields)
    config = kubelet.config_of_fields(merged) if layers else KubeletConfig()
    if flags := tuple(flag for layer in layers for flag in layer.flags):
        config = replace(config, checked=replace(config.checked, flags=flags))
    return NodeConfiguration(
        config,
        mooring_part,
        devices,
        tuple(findings),
        frozenset() if shows_defaults else frozenset(fields),
        tuple(layers),
        has_file,
        preferences,
    )


def named_versions(given: Iterable[ConfigurationSource]) -> Iterator[NamedVersion]:
    """Yield the versions of the kubelet that vendors' documents name, in their order.

    Raises:
        InputError: a version is no string.
    """
    for source in given:
        content = source.document.content
        if source.drop_in or not isinstance(content, dict) or (form := _vendor_format(content)) is None:
            continue
        document = vendors.VendorPart(form.name, content, source, ignore)
        with document.located():
            named = form.version(document)
        if named is not None:
            yield named


_Documents: TypeAlias = Mapping[str, tuple[dict[str, Any], Document]]
"""Name under which a document is unique -> the content and the document, of several the first."""


def _gathered(
    given: Iterable[ConfigurationSource | Document],
    release: Release,
    machine: MachineInfo | None,
    findings: list[Finding],
) -> tuple[_Documents, list[Layer], bool]:
    """Return the documents, what they say about the kubelet, and whether it runs with a file; findings are added.

    Raises:
        InputError: a document cannot be used, or not beside the others.
    """
    found: dict[str, tuple[dict[str, Any], Document]] = {}
    layers: list[Layer] = []
    file: Document | None = None
    has_file = False
    sources = ([one] if isinstance(one, ConfigurationSource) else sources_of([one]) for one in given)
    for source in chain.from_iterable(sources):
        document = source.document
        name, content, form = _named(source)
        if name in found and not (form and form.several):
            raise _second(name, document, found[name][1].source, form.remedy if form else "")
        found.setdefault(name, (content, document))
        findings += _found_inside(source) if source.found else ()
        said: list[Layer] = []
        if form is not None:
            part = vendors.VendorPart(form.name, content, source, findings.append, machine)
            said = _vendor_layers(part, form, release)
            if form.replaces(content):
                layers = [one for one in layers if one.tier is not Tier.FLAGS or one.vendor != form.name]
            has_file = has_file or form.has_file or bool(source.found)
        elif name == kubelet.KIND:
            said = [_own_layer(content, source, findings, release)]
            has_file = True
        if any(one.tier is Tier.FILE for one in said):
            if file is not None:
                raise _second("configuration of the kubelet", document, file.source)
            file = document
        layers += said
    return found, layers, has_file


def _named(source: ConfigurationSource) -> tuple[str, dict[str, Any], ConfigurationFormat | None]:
    """Return the name under which a document is unique, its content, and the vendor's format, if it is one's."""
    content = source.document.content
    form = None
    if isinstance(content, dict):
        form = vendors.DROP_IN if source.drop_in else _vendor_format(content)
    if form is None or not isinstance(content, dict):
        return *recognised(source.document), None
    return form.one_of or form.name, content, form


def _found_inside(source: ConfigurationSource) -> Iterator[Finding]:
    """Yield what is to be known of a part of another tool's document."""
    place = source.places([""])[""]
    message = f"{place}: this part of the file is read as the kubelet's configuration"
    yield Finding("info", source.found, message, vendors.VENDOR_DECIDES)
    if source.refused:
        message = (
            f"{place}: {source.api} has no {', '.join(source.refused)}: the API server refuses or drops it, and no "
            "kubelet gets it; set it in spec.userData (a NodeConfig, or settings of Bottlerocket) or in the image"
        )
        yield Finding("warning", source.found, message, UNKNOWN_CONFIGURATION_FIELD, place)


def _vendor_format(content: dict[str, Any]) -> ConfigurationFormat | None:
    # Most documents are none of a vendor's: then nothing of vendors is loaded.
    known = content.get("kind") in (kubelet.KIND, mooring.KIND, declared.KIND)
    return None if known else distributions.format_of(content)


def _own_layer(
    content: dict[str, Any], source: ConfigurationSource, findings: list[Finding], release: Release
) -> Layer:
    """Return the layer of a KubeletConfiguration; its findings are added."""
    document = source.document
    within = f"{kubelet.CONFIGZ}." if set(content) == {kubelet.CONFIGZ} else ""
    above = f"{source.found}." if source.found else ""

    def place(field: str) -> FieldPlace:
        return FieldPlace(source.places([within + field])[within + field], above + within + field)

    try:
        kubelet.kubelet_config(
            content, source=document.place, report=findings.append, release=release, places=source.places
        )
    except InputError as error:
        there = source.places([error.field])[error.field]
        raise InputError(error.problem, source=str(there), field=above + error.field, remedy=error.remedy) from None
    shown = content[kubelet.CONFIGZ] if within else content
    defaults = kubelet.SHOWN_DEFAULTS if within else {}
    fields = {name: value for name, value in shown.items() if name not in defaults or defaults[name] != value}
    return Layer(Tier.FILE, fields, place)


def _vendor_layers(part: VendorPart, form: ConfigurationFormat, release: Release) -> list[Layer]:
    """Return the layers of a vendor's document; what is odd in it is reported.

    Raises:
        InputError: the vendor, or the kubelet, does not take what it says.
    """
    with part.located():
        if form.type:
            part.report_unknown(form.type, part.content)
        layers = list(form.read(part))
    for layer in layers:
        try:
            # Null removes a field and has no type.
            kubelet.config_of_fields(merged_configuration({}, layer.fields))
        except InputError as error:
            place = layer.place(error.field)
            raise InputError(error.problem, source=str(place.source), field=place.field, remedy=error.remedy) from None
        kubelet.report_later(layer.fields, part.source.document.place, part.report, release)
        for name, problem in value_problems(layer.fields):
            place = layer.place(name)
            part.report(Finding("warning", place.field, f"{place.source}: {problem}", UNKNOWN_VALUE, place.source))
    return layers


def _second(kind: str, document: Document, first: str, remedy: str = "") -> InputError:
    problem = f"a second {kind}; the first is in {first}"
    return InputError(problem, source=document.source, remedy=remedy or "keep one of them")


def by_kind(
    documents: Iterable[Document], kind_of_document: Callable[[Document], tuple[str, dict[str, Any]]]
) -> dict[str, tuple[dict[str, Any], Document]]:
    """Return the contents of documents, and the documents, by their kind.

    Args:
        documents: of one configuration.
        kind_of_document: returns kind and content, as :func:`recognised` does.

    Raises:
        InputError: a kind appears twice.
    """
    found: dict[str, tuple[dict[str, Any], Document]] = {}
    for document in documents:
        kind, content = kind_of_document(document)
        if kind in found:
            raise _second(kind, document, found[kind][1].source)
        found[kind] = content, document
    return found


def recognised(document: Document) -> tuple[str, dict[str, Any]]:
    """Return the kind of a configuration and its content.

    Raises:
        InputError: it is none.
    """
    content = document.content
    if not isinstance(content, dict):
        raise InputError(f"a configuration must be a mapping, not {kind_of(content)}", source=document.source)
    with within(source=document.source):
        kind = text_at(content, "kind")
    if kind in (mooring.KIND, declared.KIND):
        return kind, content
    if kubelet.is_kubelet_config(content):
        return kubelet.KIND, content
    raise InputError(
        f"{kind!r:.60} is not a configuration" if kind else "no field of a configuration in it",
        source=document.source,
        remedy=f"write kind: {kubelet.KIND}, {mooring.KIND} or {declared.KIND}, or give a vendor's file"
        + embedded.advice(kind),
    )


_MIB: Final = 1024**2
_RESERVED_MEMORY: Final = "reservedMemory"


def _with_computed(
    layers: Iterable[Layer], machine: MachineInfo | None, *, has_file: bool, release: Release
) -> tuple[list[Layer], list[Finding]]:
    """Return the layers with those of what vendors compute and no layer sets, and what to report of it.

    Without a formula, ``reservedMemory`` of policy Static tells what the node reserves: on a healthy node it adds up.
    """
    found = list(layers)
    findings: dict[str, Finding] = {}
    for layer in tuple(found):
        for path, (noted, formula) in layer.computed.items():
            if path in findings or any(one.sets(path) for one in found):
                continue
            fields = merged_layers(found, has_file=has_file, release=release)
            computed, is_exact = formula(fields)
            finding, amount, origin = noted, computed if is_exact else None, "by its formula"
            if fields.get("memoryManagerPolicy") == "Static":
                told = _told(path, fields, machine, release)
                if not is_exact:
                    is_told = told is not None and told >= computed
                    amount, origin = (told, "assumed") if is_told else (computed or None, "at least")
                    finding = replace(noted, severity="warning", code=RESERVATION_UNKNOWN)
                elif told is not None and abs(told - computed) < _MIB:
                    amount = told
            words = "" if amount is None else f"; {path} is {Quantity.of_bytes(amount)} ({origin})"
            findings[path] = replace(finding, message=f"{finding.message}{words}")
            if amount is not None:
                found.append(_layer(path, amount, FieldPlace(SourcePlace(f"{layer.vendor}, {origin}"), ""), machine))
    return found, list(findings.values())


def _told(path: str, fields: Mapping[str, Any], machine: MachineInfo | None, release: Release) -> int | None:
    """Return the bytes with which ``reservedMemory`` adds up; None where no amount makes it add up."""
    config = kubelet.config_of_fields(fields)
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
