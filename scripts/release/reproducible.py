"""Build wheel and source distribution of this commit in three places and compare them byte for byte.

Two are clones in folders of other lengths, with another umask and time zone; the third is the unpacked source
distribution, without git. All use the locked packages of this environment. Exit code 1: something differs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path, target: str, umask: int, zone: str) -> dict[str, str]:
    """Run a target of the Makefile in a folder, and return file name -> SHA-256 of what is in its ``dist``."""
    environment = {name: value for name, value in os.environ.items() if name not in {"SOURCE_DATE_EPOCH", "MAKEFLAGS"}}
    # A stamp that is newer than everything: this environment is used there, and nothing is installed into it.
    (folder / ".installed").touch()
    command = ["make", "--no-print-directory", target, f"BIN={Path(sys.executable).parent}", "STAMP=.installed"]
    subprocess.run(  # noqa: S603 - a fixed command
        command,
        cwd=folder,
        umask=umask,
        check=True,
        capture_output=True,
        env=environment | {"TZ": zone},
    )
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((folder / "dist").iterdir())}


def main() -> int:
    """Build, compare and report."""
    with tempfile.TemporaryDirectory() as temporary:
        first, second = Path(temporary, "a"), Path(temporary, "another", "folder")
        for folder in (first, second):
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)  # noqa: S603, S607
        builds = [build(first, "dist", 0o022, "UTC"), build(second, "dist", 0o077, "Asia/Kathmandu")]
        archive = next(name for name in builds[0] if name.endswith(".tar.gz"))
        with tarfile.open(first / "dist" / archive) as files:
            files.extraction_filter = getattr(tarfile, "tar_filter", None)  # Pythons before 3.11.4 have none
            files.extractall(temporary)  # noqa: S202 - with that filter
        builds.append(build(Path(temporary, archive.removesuffix(".tar.gz")), "wheel", 0o022, "UTC"))
    same = True
    for name, digest in builds[0].items():
        found = [other[name] for other in builds if name in other]
        verdict = "the same bytes" if set(found) == {digest} else "DIFFERENT"
        same = same and set(found) == {digest}
        print(f"{name}: {len(found)} builds, {verdict}, sha256 {digest}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
