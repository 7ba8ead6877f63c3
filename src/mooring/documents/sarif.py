"""A check as SARIF 2.1.0, for code scanning: the parts of the format that a check fills.

Source: OASIS, Static Analysis Results Interchange Format Version 2.1.0. Members are named as there.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

Level: TypeAlias = Literal["error", "warning"]
"""How grave a result is (section 3.27.10)."""


class SarifPart(Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An object of the format."""


class SarifText(SarifPart):
    """A message (3.11), or a multiformatMessageString (3.12)."""

    text: str
    markdown: str | UnsetType = UNSET


class SarifConfiguration(SarifPart):
    """A reportingConfiguration (3.50)."""

    level: Level


class SarifRule(SarifPart):
    """A reportingDescriptor (3.49): a code with its page."""

    id: str
    short_description: SarifText
    full_description: SarifText
    help: SarifText
    default_configuration: SarifConfiguration


class SarifDriver(SarifPart):
    """A toolComponent (3.19)."""

    name: str
    version: str
    rules: list[SarifRule]


class SarifTool(SarifPart):
    """A tool (3.18)."""

    driver: SarifDriver


class SarifArtifact(SarifPart):
    """An artifactLocation (3.4); the URI is relative to the root of the repository."""

    uri: str


class SarifRegion(SarifPart):
    """A region (3.30), counted from 1."""

    start_line: int
    start_column: int


class SarifPhysicalLocation(SarifPart):
    """A physicalLocation (3.29)."""

    artifact_location: SarifArtifact
    region: SarifRegion


class SarifLogicalLocation(SarifPart):
    """A logicalLocation (3.33): a pod, or a field."""

    fully_qualified_name: str
    kind: str


class SarifLocation(SarifPart):
    """A location (3.28)."""

    physical_location: SarifPhysicalLocation | UnsetType = UNSET
    logical_locations: list[SarifLogicalLocation] | UnsetType = UNSET


class SarifResult(SarifPart):
    """A result (3.27)."""

    rule_id: str
    rule_index: int
    level: Level
    message: SarifText
    locations: list[SarifLocation]
    partial_fingerprints: dict[str, str]
    properties: dict[str, list[str]]


class SarifInvocation(SarifPart):
    """An invocation (3.20)."""

    execution_successful: bool


class SarifRun(SarifPart):
    """A run (3.14)."""

    tool: SarifTool
    invocations: list[SarifInvocation]
    column_kind: Literal["unicodeCodePoints"]
    results: list[SarifResult]


class SarifDocument(SarifPart, kw_only=True):
    """What ``-o sarif`` prints: a sarifLog (3.13)."""

    schema: str = field(name="$schema", default="https://json.schemastore.org/sarif-2.1.0.json")
    version: Literal["2.1.0"] = "2.1.0"
    runs: list[SarifRun]
