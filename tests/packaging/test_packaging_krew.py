"""krew's manifest of the kubectl plugin, by the rules of krew's developer guide."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mooring import __version__

ADDRESS = "https://example.org/mooring/releases/download/v1"


def archive(folder: Path, *, link: bool = False) -> Path:
    file = folder / f"kubectl-mooring-{__version__}-linux-arm64.tar.gz"
    # As `make krew` packs it: without a name and a time in gzip's header.
    with (
        file.open("wb") as packed,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as out,
    ):
        for name in ("./mooring", "./LICENSE"):
            out.addfile(tarfile.TarInfo(name), io.BytesIO())
        if link:
            member = tarfile.TarInfo("./lib")
            member.type = tarfile.SYMTYPE
            out.addfile(member)
    return file


@pytest.fixture
def made(krew: ModuleType, tmp_path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = krew.manifest(ADDRESS, [archive(tmp_path)])
    return manifest


def test_the_manifest_names_version_platform_and_digest_of_the_archive(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    file = archive(tmp_path)  # built again at another time, it has the same bytes
    assert made["spec"]["version"] == f"v{__version__}"
    assert made["spec"]["homepage"] == "https://example.org/mooring"
    assert made["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
            "uri": f"{ADDRESS}/{file.name}",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "bin": "mooring",
        }
    ]


def test_the_manifest_is_one_that_krew_takes(krew: ModuleType, tmp_path: Path) -> None:
    assert krew.main(ADDRESS, [archive(tmp_path)]) == 0
    written = yaml.safe_load((tmp_path / "mooring.yaml").read_text(encoding="utf-8"))
    assert krew.faults(written, "mooring.yaml") == []


def test_no_manifest_is_written_for_an_archive_that_krew_cannot_unpack(krew: ModuleType, tmp_path: Path) -> None:
    assert krew.main(ADDRESS, [archive(tmp_path, link=True)]) == 1
    assert not (tmp_path / "mooring.yaml").exists()


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("apiVersion",), "krew.googlecontainertools.github.com/v1alpha1", "apiVersion"),
        (("kind",), "Plugins", "kind"),
        (("metadata", "name"), "moor ing", "metadata.name"),
        (("spec", "version"), "0.1.0", "spec.version"),
        (("spec", "shortDescription"), "two\nlines", "spec.shortDescription"),
        (("spec", "description"), "", "spec.description"),
        (("spec", "platforms"), [], "spec.platforms"),
        (("spec", "platforms", 0, "uri"), "https://example.org/mooring.tar", "spec.platforms[0].uri"),
        (("spec", "platforms", 0, "sha256"), "ABC", "spec.platforms[0].sha256"),
        (("spec", "platforms", 0, "bin"), "", "spec.platforms[0].bin"),
        (("spec", "platforms", 0, "files"), [], "spec.platforms[0].files"),
        (("spec", "platforms", 0, "selector", "matchLabels"), {"libc": "musl"}, "spec.platforms[0].selector"),
    ],
)
def test_what_krew_refuses_is_found(
    krew: ModuleType, made: dict[str, Any], path: tuple[str | int, ...], value: object, fault: str
) -> None:
    wrong: Any = copy.deepcopy(made)
    part = wrong
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    assert fault in krew.faults(wrong, "mooring.yaml")
