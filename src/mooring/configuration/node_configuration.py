"""The configuration of a node, from one or several files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mooring.configuration import devices as declared
from mooring.configuration import kubelet_config as kubelet
from mooring.configuration import mooring_config as mooring
from mooring.configuration.devices import Declared
from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.release import NEWEST, Release
from mooring.decoding.documents import load_documents, located, places_of
from mooring.decoding.fields import Document, kind_of, text_at


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
    """Names of the fields that the KubeletConfiguration sets; none of ``/configz``, which shows defaults too."""


def load_config(*paths: str | os.PathLike[str]) -> NodeConfiguration:
    """Read a kubelet's configuration, Mooring's own and declared devices, each at most once, in one file or in several.

    What is missing has its defaults: the kubelet's as of v1.37.1, and nothing switched on for Mooring.

    Raises:
        InputError: a file cannot be used, holds something else, or a configuration appears twice.
    """
    return configuration_of(document for path in paths for document in load_documents(path))


def configuration_of(documents: Iterable[Document], release: Release = NEWEST) -> NodeConfiguration:
    """Return what documents say about one node; see :func:`load_config`.

    Args:
        documents: of one node.
        release: of the kubelet.

    Raises:
        InputError: one of them is something else, or a configuration appears twice.
    """
    found = by_kind(documents, recognised)
    findings: list[Finding] = []
    kubelet_part, mooring_part = KubeletConfig(), MooringConfig(release=release)
    if part := found.get(kubelet.KIND):
        with located(part.document):
            kubelet_part = kubelet.kubelet_config(
                part.content,
                source=part.source,
                report=findings.append,
                release=release,
                places=partial(places_of, part.document),
            )
    if part := found.get(mooring.KIND):
        with located(part.document):
            mooring_part = replace(mooring.mooring_config(part.content, source=part.source), release=release)
    devices: Declared = {}
    if part := found.get(declared.KIND):
        with located(part.document):
            devices = declared.declared_devices(part.content, source=part.source)
    fields = frozenset(found[kubelet.KIND].content) - {kubelet.CONFIGZ} if kubelet.KIND in found else frozenset()
    return NodeConfiguration(kubelet_part, mooring_part, devices, tuple(findings), fields)


@dataclass(frozen=True, slots=True)
class ConfigurationDocument:
    """A document of a configuration whose kind is known."""

    content: dict[str, Any]
    document: Document

    @property
    def source(self) -> str:
        """The place for messages."""
        return self.document.source


def by_kind(
    documents: Iterable[Document], kind_of_document: Callable[[Document], tuple[str, dict[str, Any]]]
) -> dict[str, ConfigurationDocument]:
    """Return documents by their kind.

    Args:
        documents: of one configuration.
        kind_of_document: returns kind and content, as :func:`recognised` does.

    Raises:
        InputError: a kind appears twice.
    """
    found: dict[str, ConfigurationDocument] = {}
    for document in documents:
        kind, content = kind_of_document(document)
        if kind in found:
            problem = f"a second {kind}; the first is in {found[kind].source}"
            raise InputError(problem, source=document.source, remedy="keep one of them")
        found[kind] = ConfigurationDocument(content, document)
    return found


def recognised(document: Document) -> tuple[str, dict[str, Any]]:
    """Return the kind of a configuration and its content.

    Raises:
        InputError: it is none.
    """
    content = document.content
    if not isinstance(content, dict):
        raise InputError(f"a configuration must be a mapping, not {kind_of(content)}", source=document.source)
    try:
        kind = text_at(content, "kind")
    except InputError as error:
        raise error.at(document.source) from None
    if kind in (mooring.KIND, declared.KIND):
        return kind, content
    if kubelet.is_kubelet_config(content):
        return kubelet.KIND, content
    raise InputError(
        f"{kind!r:.60} is not a configuration" if kind else "no field of a configuration in it",
        source=document.source,
        remedy=f"write kind: {kubelet.KIND}, {mooring.KIND} or {declared.KIND}",
    )
