"""Test the HTML report in a real browser: ``make test-browser``.

Chromium is the system's. On a Debian where this runs as root it is installed first; where there is none, and none can
be had, the target says so and is content. A browser that is there and does not start is a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOCK = ROOT / "requirements-browser.lock"
STAMP = Path(sys.prefix) / ".installed-browser"
"""Holds the digest of the lock file whose packages are in the environment."""


def found_browser() -> str | None:
    """Return the first Chromium on the path."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install_browser() -> str:
    """Install Debian's Chromium; return why that was not possible, or the empty text."""
    apt = shutil.which("apt-get")
    if apt is None:
        return "no apt-get"
    if os.geteuid() != 0:
        return "not root"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
    ):
        command = [apt, *arguments]
        finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
        if finished.returncode:
            lines = finished.stderr.strip().splitlines()
            return f"apt-get {arguments[0]} failed: {lines[-1] if lines else finished.returncode}"
    return ""


def install_packages() -> int:
    """Bring the packages of the tests into the environment, once for each lock file; return pip's exit code."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == digest:
        return 0
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    code = subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], cwd=ROOT, check=False).returncode  # noqa: S603 - a fixed command
    if code == 0:
        STAMP.write_text(digest, encoding="utf-8")
    return code


def main() -> int:
    """Run the tests; the exit code is pytest's."""
    reason = "" if found_browser() else install_browser()
    browser = found_browser()
    if browser is None:
        print(f"SKIPPED test-browser: no Chromium found (install chromium; {reason or 'the package has none'})")
        return 0
    code = install_packages()
    if code:
        return code
    print(f"test-browser: {browser}", flush=True)
    tests = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "tests/browser", *sys.argv[1:]]
    environment = {**os.environ, "MOORING_CHROMIUM": browser}
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603 - a fixed command


if __name__ == "__main__":
    sys.exit(main())
