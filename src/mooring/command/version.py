"""``mooring version``: what is installed, what it decides as, and which documents it writes."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version
from platform import libc_ver, machine, python_implementation, python_version
from typing import Annotated, Literal

import click

from mooring import DISTRIBUTION, KUBELET_VERSION, __version__
from mooring.cli import options
from mooring.cli.output import YES, Verb, emit, emit_document, json_text
from mooring.documents.plan import API_VERSION, APIVersion, DocumentPart, KubeletRelease, told
from mooring.documents.schemas import kinds
from mooring.engine.releases.catalog import TAGS

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra == ["']([a-z]+)["']""")


class PythonPart(DocumentPart):
    """The interpreter that runs Mooring."""

    version: str
    implementation: str
    libc: Annotated[str, told("Such as glibc 2.36; empty where the interpreter cannot name it.")]
    machine: Annotated[str, told("Such as x86_64.")]


class VersionDocument(DocumentPart):
    """What mooring version prints: what is installed."""

    api_version: APIVersion
    kind: Literal["Version"]
    mooring: str
    kubelet: KubeletRelease
    kubelet_releases: Annotated[
        dict[str, str], told("Minor releases by which it decides, each with the patch that was recorded.")
    ]
    documents: Annotated[dict[str, list[str]], told("apiVersion -> kinds of documents.")]
    python: PythonPart
    dependencies: Annotated[
        dict[str, str | None], told("Direct dependencies with their versions; null if not installed.")
    ]
    extras: Annotated[dict[str, bool], told("Whether all packages of each extra are installed.")]


def version_document() -> VersionDocument:
    """Return what is installed; dependencies and extras are empty where Mooring runs from its source alone."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        lines = []
    # The names of the direct dependencies, each with its extra; empty for what is always needed
    parts = ((line, _NAME.match(line), _EXTRA.search(line)) for line in lines)
    needed = [(name[0] if name else line, extra[1] if extra else "") for line, name, extra in parts]
    found = {name: _version(name) for name in sorted({name for name, _ in needed})}
    extras = sorted({extra for _, extra in needed if extra})
    return VersionDocument(
        api_version=API_VERSION,
        kind="Version",
        mooring=__version__,
        kubelet=KUBELET_VERSION,
        kubelet_releases=dict(TAGS),
        documents={API_VERSION: list(kinds())},
        python=PythonPart(python_version(), python_implementation(), " ".join(libc_ver()).strip(), machine()),
        dependencies=found,
        extras={extra: all(found[name] is not None for name, one in needed if one == extra) for extra in extras},
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


EPILOG = """\b
Examples:
  mooring version
  mooring version -o json
"""


@click.command("version", cls=Verb, epilog=EPILOG)
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str) -> int:
    """Show the versions of Mooring, of the kubelets that it knows, of its documents, of Python and of its packages."""
    document = version_document()
    if form == "json":
        emit_document(json_text(document), to)
    else:
        python, releases = document.python, list(document.kubelet_releases.values())
        extras = ", ".join(f"{name}: {'yes' if there else 'no'}" for name, there in document.extras.items())
        installed = ", ".join(f"{name} {found}" for name, found in document.dependencies.items() if found is not None)
        lines = {
            "mooring": f"{document.mooring} (decisions of kubelet {document.kubelet})",
            "kubelets": ", ".join(releases),
            "documents": ", ".join(document.documents),
            "python": f"{python.version} ({python.implementation}), {python.machine}, {python.libc or 'unknown libc'}",
            "packages": installed or "unknown: Mooring runs from its source",
            "extras": extras or "unknown",
        }
        emit("\n".join([f"{name:11}{text}" for name, text in lines.items()]), to)
    return YES
