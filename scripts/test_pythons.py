"""Run the tests on every supported Python that is found; name the ones that are not.

Each gets an environment of its own under .venvs. The interpreter of .venv itself is covered by `make test`, so it is
left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return a working interpreter of this version, or None."""
    found = shutil.which(f"python{version}")
    candidates = [found] if found else []
    # pyenv keeps versions that are not on the path.
    candidates += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"))]
    for candidate in candidates:
        asked = subprocess.run(  # noqa: S603 - interpreters found on this machine
            [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return candidate
    return None


def run(python: str, version: str) -> int:
    """Make the environment and run the tests in it."""
    folder = ROOT / ".venvs" / version
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = (
        [python, "-m", "venv", str(folder)],
        [*pip, "--require-hashes", "-r", "requirements.lock"],
        [*pip, "--no-deps", "--no-build-isolation", "-e", "."],
        [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"],
    )
    for command in commands:
        code = subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - fixed commands
        if code:
            return code
    return 0


def main() -> int:
    """Test each version; the worst exit code is the answer."""
    worst = 0
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in VERSIONS:
        if version == here:
            continue
        python = interpreter(version)
        if python is None:
            print(f"skipped: Python {version}: no interpreter was found", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        worst = max(worst, run(python, version))
    return worst


if __name__ == "__main__":
    sys.exit(main())
