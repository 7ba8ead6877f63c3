"""Make promtool and Prometheus, which check the rules and dashboards of ``deploy/observability``.

Both are built from Prometheus' Go module, whose checksum is known here, into the folder of ``e2e_parts.py``; what is
there is not made again. Each build is announced with the minutes that it takes; 2 GB go into Go's own cache.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from e2e_parts import UnavailableError, announce, cache_folder, last_line, locked, run

MODULE = "github.com/prometheus/prometheus"
VERSION = "v0.316.0"
CHECKSUM = "h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM="
"""As Go's checksum database has it."""
PROGRAMS = ("promtool", "prometheus")
ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def prometheus_program(name: str) -> Path:
    """Return one of the programs, built if it is not there.

    Raises:
        UnavailableError: there is no Go, or no module.
        RuntimeError: the build fails.
    """
    if shutil.which("go") is None:
        raise UnavailableError(f"no go: {name} cannot be built")
    compiler = run(["go", "env", "GOVERSION"], cwd=None, **ENVIRONMENT).stdout.strip()
    kept = cache_folder() / "prometheus"
    kept.mkdir(exist_ok=True)
    with locked(kept):
        folder = kept / f"{VERSION}-{compiler}"
        if not (folder / name).exists():
            _build(folder, name)
    return folder / name


def _build(folder: Path, name: str) -> None:
    fetched = run(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=folder.parent, **ENVIRONMENT)
    if fetched.returncode:
        raise UnavailableError(f"module {MODULE}@{VERSION}: {last_line(fetched)}")
    if json.loads(fetched.stdout)["Sum"] != CHECKSUM:
        raise RuntimeError(f"{MODULE}@{VERSION} has another checksum than {CHECKSUM}")
    announce(f"{name} {VERSION}", 3 if folder.exists() else 5)
    fresh = folder / "new"
    fresh.mkdir(parents=True, exist_ok=True)
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    words = [*nice, "go", "install", "-p", "2", "-trimpath", "-ldflags", "-s -w", f"{MODULE}/cmd/{name}@{VERSION}"]
    finished = run(words, cwd=fresh, **{**ENVIRONMENT, "GOBIN": str(fresh)})
    if finished.returncode:
        raise RuntimeError(f"building {name} {VERSION} failed: {finished.stderr[-2000:]}")
    (fresh / name).rename(folder / name)


def main() -> int:
    """Make both, and print where they are; exit code 2 if they are not available."""
    for name in PROGRAMS:
        try:
            print(f"{name}: {prometheus_program(name)}", flush=True)
        except UnavailableError as why:
            print(f"SKIPPED {name}: {why}")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
