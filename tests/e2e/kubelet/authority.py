"""Certificates for tests: a self-made authority, by the program ``openssl``."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates; all files lie in one folder."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, *extensions: str) -> Certified:
        """Return a certificate with a fresh key."""
        made = Certified(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        signed = ["-CA", str(self.certificate), "-CAkey", str(self.folder / f"{self.name}.key")]
        _request(name, made, [*signed, *(word for one in extensions for word in ("-addext", one))])
        return made


def authority(folder: Path, name: str) -> Authority:
    """Return a fresh authority; the test is skipped where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificates")
    made = Authority(folder, name)
    _request(name, Certified(made.certificate, folder / f"{name}.key"), ["-addext", "keyUsage=critical,keyCertSign"])
    return made


def _request(name: str, made: Certified, more: list[str]) -> None:
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", str(made.key)]
    command = ["openssl", "req", "-x509", *new_key, "-out", str(made.certificate), "-days", "2", "-subj", f"/CN={name}"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
