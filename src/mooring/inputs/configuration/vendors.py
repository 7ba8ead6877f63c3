"""Documents of vendors: what a format of theirs is, and a document while it is read.

Such a document has fields, their places, and what is to be reported of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mooring.engine.core.config import GivenFlag
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.releases.config_fields import KNOWN_FLAGS, LASTING_FLAGS
from mooring.inputs.configuration.kubelet_config import API_VERSION, KIND, FieldPlace, Formula, Layer, Tier
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.configuration.sources import KUBELET_ARGUMENTS, ConfigurationSource
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD, unknown_fields, unknown_findings
from mooring.inputs.decoding.fields import Report, mapping_at, nearest, text_at, within
from mooring.lazy import dataclass, replace

VENDOR_DECIDES: Final = "MOOR-514"
"""Code of what a vendor's file does not tell."""


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

    def computed(self, message: str, formula: Formula = lambda _: (0, False)) -> tuple[Finding, Formula]:
        """Return a field of a layer that the vendor computes; the message says how."""
        return self.finding("", message), formula

    def place(self, path: str) -> FieldPlace:
        """Return where a field of the document is."""
        return FieldPlace(self.source.places([path])[path], path)

    def below(self, path: str, content: dict[str, Any]) -> VendorPart:
        """Return the part of the document at a path, whose fields have their places in the whole."""
        places = self.source.renamed(lambda field: f"{path}.{field}" if field else path)
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

    def text(self, path: str, default: str = "") -> str:
        """Return the text at a path; absent ones are the default.

        Raises:
            InputError: something else is there.
        """
        above, _, name = path.rpartition(".")
        with within(above):
            return text_at(self.mapping(above), name, default)

    def strings(self, path: str) -> list[tuple[str, str]]:
        """Return the strings at a path, one or a list, each with its own path.

        Raises:
            InputError: something else is among them.
        """
        above, _, name = path.rpartition(".")
        return _strings(self.mapping(above).get(name), path)

    def pairs(self, path: str) -> list[tuple[str, str]]:
        """Return the mapping of flags at a path, each ``--name=value`` with its path; a value may be a list.

        Raises:
            InputError: something else is there.
        """
        return [
            (f"--{name.lstrip('-')}={value}", where)
            for name, inner in self.mapping(path).items()
            for value, where in _strings(inner, f"{path}.{name}")
        ]

    def layer(self, tier: Tier, path: str) -> Layer:
        """Return the fields of a KubeletConfiguration below a path."""
        prefix = f"{path}." if path else ""
        return Layer(tier, self.mapping(path), lambda field: self.place(prefix + field), self.vendor)

    def translated(self, tier: Tier, path: str, table: Iterable[tuple[str, str, Sequence[str]]]) -> Layer:
        """Return the vendor's fields below a path as those of a KubeletConfiguration.

        Args:
            tier: of the layer.
            path: where the fields are.
            table: a field's path there, its name in a KubeletConfiguration, and the values that the vendor takes;
                without any it takes what the kubelet takes.

        Raises:
            InputError: the vendor does not take a value.
        """
        fields: dict[str, Any] = {}
        places: dict[str, str] = {}
        for inner, field, values in table:
            where = f"{path}.{inner}".lstrip(".")
            above, _, name = where.rpartition(".")
            value = self.mapping(above).get(name)
            if value is None:
                continue
            if values:
                self.check_value(where, value, values)
            fields[field], places[field] = value, where
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
        self, tier: Tier, fields: Mapping[str, Any], computed: Mapping[str, tuple[Finding, Formula]] | None = None
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

    def refuse_fields(self, path: str, names: Iterable[str]) -> None:
        """Refuse fields that the vendor reserves for itself.

        Raises:
            InputError: one of them is there.
        """
        present = self.mapping(path)
        for name in names:
            if present.get(name) not in (None, "", [], {}):
                raise self.refusal(f"{path}.{name}", f"{self.vendor} does not let this field be set", "remove it")

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


def _strings(values: object, field: str) -> list[tuple[str, str]]:
    listed = values if isinstance(values, list) else [] if values is None else [values]
    found = []
    for index, value in enumerate(listed):
        path = f"{field}[{index}]" if isinstance(values, list) else field
        if not isinstance(value, str):
            raise InputError("must be a string", field=path, remedy="put it in quotes")
        found.append((value, path))
    return found


@dataclass(frozen=True, slots=True)
class ConfigurationFormat:
    """One format of a vendor."""

    name: str
    """In messages."""
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[VendorPart], Iterator[Layer]] = lambda _: iter(())
    """Without one the document is not about the kubelet's configuration."""
    type: str = ""
    """In the table of fields (:mod:`mooring.inputs.decoding.fields`); empty where unknown fields are not
    reported."""
    several: bool = False
    """Whether a node may have more than one."""
    has_file: bool = True
    """Whether the kubelet then runs with ``--config``."""
    one_of: str = ""
    """Formats of one name exclude one another; empty for the format's own name."""
    remedy: str = ""
    """Where a second document is refused; empty for the usual one."""
    replaces: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Tells whether a document takes the place of the flags in earlier ones of the format."""
    version: Callable[[VendorPart], NamedVersion | None] = lambda _: None
    """Returns the kubelet's version that a document names, if it names one."""


def of_kind(group: str, *kinds: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return what tells objects of some kinds of an API group."""
    return lambda content: content.get("kind") in kinds and str(content.get("apiVersion", "")).startswith(group)


def without_kind(matches: Callable[[Any], bool]) -> Callable[[Mapping[str, Any]], bool]:
    """Return what tells documents without a kind."""
    return lambda content: "kind" not in content and matches(content)


def _drop_in(part: VendorPart) -> Iterator[Layer]:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if part.content.get(field) != wanted:
            raise part.refusal(field, f"the kubelet refuses a drop-in without {field}: {wanted}", "add it")
    yield part.layer(Tier.DROP_IN, "")


DROP_IN: Final = ConfigurationFormat(
    "file of --config-dir", lambda _: True, _drop_in, KIND, several=True, has_file=False
)
ARGUMENTS: Final = ConfigurationFormat(
    "flags of the kubelet",
    lambda content: set(content) == {KUBELET_ARGUMENTS},
    lambda part: iter([part.flags(part.strings(KUBELET_ARGUMENTS))]),
    several=True,
    has_file=False,
)
