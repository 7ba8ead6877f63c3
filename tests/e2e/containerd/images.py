"""Container images in tar files (OCI layout): busybox, or one program, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

APPLETS = (
    *("sh", "sleep", "cat", "nproc", "grep", "taskset", "true", "false", "dd", "yes", "env"),
    *("cp", "gzip", "mkdir", "mktemp", "tar", "tr", "uname", "xargs"),
)
PAUSE = "localhost/mooring/pause:1"
BUSYBOX = "localhost/mooring/busybox:1"


def write_image(path: Path, name: str, busybox: Path) -> None:
    """Write an image that sleeps when it is not told to do something else.

    Args:
        path: the tar file.
        name: of the image, with its tag.
        busybox: a statically linked busybox.
    """
    run = {"Entrypoint": ["/bin/busybox"], "Cmd": ["sleep", "2000000000"], "Env": ["PATH=/bin"]}
    _write(path, name, _layer(busybox), run)


def write_program_image(path: Path, name: str, program: Path) -> None:
    """Write an image that has a statically linked program on its path, and runs what it is told to."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        _add(tar, f"bin/{program.name}", program.read_bytes(), mode=0o755)
    _write(path, name, held.getvalue(), {"Env": ["PATH=/bin"]})


def _write(path: Path, name: str, layer: bytes, run: Mapping[str, Any]) -> None:
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(gzip.compress(layer, 1, mtime=0), "layer.v1.tar+gzip")],
    }
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "manifests": [entry]}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(index).encode())
        for digest, content in blobs.items():
            _add(tar, f"blobs/sha256/{digest}", content)


def _layer(busybox: Path) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "run"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return held.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))
