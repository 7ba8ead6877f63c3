"""What an image holds, as a CycloneDX document: Debian's packages, Python's packages, Mooring itself.

The document has no time and no random number: the same image has the same document. Format: CycloneDX 1.6, JSON.
"""

from __future__ import annotations

import email.parser
import hashlib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from debian_root import Package

_LONGEST_NAME = 60
"""A licence field longer than this is a text, not a name."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A Python package of the image, as its wheel describes it."""

    name: str
    version: str
    licence: str
    """SPDX expression or name; empty where the wheel has none that is short."""
    sha256: str
    file: str

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name.lower().replace('_', '-')}@{self.version}"


def read_wheel(path: Path) -> Wheel:
    """Return what a wheel says about itself."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA") and one.count("/") == 1)
        fields = email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))
    licence = fields.get("License-Expression") or fields.get("License") or ""
    if not licence or len(licence) > _LONGEST_NAME or "\n" in licence:
        found = [one.split(" :: ")[-1] for one in fields.get_all("Classifier", []) if one.startswith("License :: ")]
        licence = " AND ".join(found)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(str(fields["Name"]), str(fields["Version"]), licence, digest, path.name)


def deb_purl(package: Package) -> str:
    """Return the package URL of a Debian package."""
    version = quote(package.version, safe="")
    return f"pkg:deb/debian/{quote(package.name)}@{version}?arch={package.architecture}"


def bill_of_materials(
    image: str, digest: str, base: str, wheels: Iterable[Wheel], packages: Sequence[Package]
) -> dict[str, Any]:
    """Return the document.

    Args:
        image: name with tag.
        digest: of its manifest, ``sha256:...``.
        base: name of a base image, whose own parts are not listed; empty for the Debian root.
        wheels: Mooring's and the others'.
        packages: of the Debian root.
    """
    components = [_of_wheel(one) for one in wheels] + [_of_package(one) for one in packages]
    if base:
        components.append({"type": "container", "bom-ref": f"base:{base}", "name": base})
    components.sort(key=lambda one: str(one["bom-ref"]))
    name, _, version = image.rpartition(":")
    top = {
        "type": "container",
        "bom-ref": "image",
        "name": name,
        "version": version,
        "purl": f"pkg:oci/mooring@{quote(digest, safe='')}",
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": top},
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _of_wheel(wheel: Wheel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": wheel.purl,
        "name": wheel.name,
        "version": wheel.version,
        "purl": wheel.purl,
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
    }
    if wheel.licence:
        made["licenses"] = [{"license": {"name": wheel.licence}}]
    return made


def _of_package(package: Package) -> dict[str, Any]:
    purl = deb_purl(package)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        "properties": [{"name": "debian:source", "value": package.source}],
    }
