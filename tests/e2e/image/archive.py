"""The OCI archive that ``make image`` writes, read without a container engine."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "image"
ARCHIVE = FOLDER / "mooring.tar"


@dataclass(frozen=True, slots=True)
class Image:
    """One image of an archive."""

    path: Path
    name: str
    digest: str
    config: dict[str, Any]
    layers: tuple[str, ...]
    """Digests."""

    def files(self) -> Iterator[tarfile.TarInfo]:
        """Yield the entries of all layers; they remove no files."""
        with tarfile.open(self.path) as archive:
            for digest in self.layers:
                blob = archive.extractfile(_blob(digest))
                assert blob is not None
                with tarfile.open(fileobj=blob, mode="r|*") as layer:
                    yield from layer

    def unpack(self, folder: Path) -> None:
        """Write the files of all layers into a folder."""
        with tarfile.open(self.path) as archive:
            for digest in self.layers:
                with tarfile.open(fileobj=archive.extractfile(_blob(digest)), mode="r|*") as layer:
                    layer.extractall(folder, filter="tar")


def read_image(path: Path = ARCHIVE) -> Image:
    """Return the image of an archive."""
    with tarfile.open(path) as archive:

        def document(name: str) -> Any:
            content = archive.extractfile(name)
            assert content is not None
            return json.load(content)

        (entry,) = document("index.json")["manifests"]
        manifest = document(_blob(entry["digest"]))
        config = document(_blob(manifest["config"]["digest"]))
        layers = tuple(layer["digest"] for layer in manifest["layers"])
        return Image(path, entry["annotations"]["io.containerd.image.name"], entry["digest"], config, layers)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
