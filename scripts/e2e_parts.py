"""Fetch the real parts that ``make e2e`` tests against, into a folder of the user: containerd twice, runc and busybox.

* ``debian``: containerd from Debian's testing suite, unpacked and not installed, with the machine's own suite for runc.
* ``built``: the newest containerd, built from its Go module; runc and busybox as above.

Everything comes through apt and Go's module proxy, both of which check what they bring. What is there is not fetched
again. The folder is ``$MOORING_E2E_CACHE``, else ``mooring-e2e`` in the user's cache folder; it can be removed at any
time. Run by hand, it prints where the parts are.

A part that cannot be had on this machine is an :class:`UnavailableError`, which skips a tier by name; whatever fails
beyond that is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MODULE = "github.com/containerd/containerd/v2"
MODULE_VERSION = "v2.4.2"
MODULE_SUM = "h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw="
CRIO_FOLDER = Path(os.environ.get("MOORING_E2E_CRIO") or Path(__file__).resolve().parents[2] / "shared" / "parts")
"""Where built programs of CRI-O are, beside the repository."""
CRIO_ARCHIVE = "crio-1.37.0-linux-amd64.xz"
CRIO_SHA256 = "395b2444413e99cd738a1f11d50a534fab373020b6f28a9032ea9c988672bccb"
PINNS = "pinns-1.37.0-linux-amd64"
TESTING = "forky"
"""Debian's suite with containerd 2; older suites have 1.7."""
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class UnavailableError(Exception):
    """A part that cannot be had here; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """One containerd with what it needs; all paths are absolute."""

    name: str
    version: str
    containerd: Path
    shim: Path
    ctr: Path
    runc: Path
    busybox: Path


def cache_folder() -> Path:
    """Return the folder of the parts; it is made when it is not there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("MOORING_E2E_CACHE") or Path(base) / "mooring-e2e").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def debian_parts() -> Parts:
    """Return the parts with containerd from Debian's testing suite.

    Raises:
        UnavailableError: when there is no apt or the mirror lacks a package.
        RuntimeError: when a package is there and cannot be unpacked.
    """
    with locked(cache_folder()) as cache:
        root = unpacked(cache, "containerd", TESTING)
        runc, busybox = _companions(cache)
        binary = root / "usr/bin"
        return _checked(
            Parts(
                "debian",
                _version(root),
                binary / "containerd",
                binary / "containerd-shim-runc-v2",
                binary / "ctr",
                runc,
                busybox,
            )
        )


def built_parts() -> Parts:
    """Return the parts with containerd built from its Go module.

    Raises:
        UnavailableError: when there is no Go, the module cannot be had, or as :func:`debian_parts` for runc.
        RuntimeError: when the build fails.
    """
    with locked(cache_folder()) as cache:
        binary = _built(cache)
        runc, busybox = _companions(cache)
        names = ("containerd", "containerd-shim-runc-v2", "ctr")
        containerd, shim, ctr = (binary / name for name in names)
        return _checked(Parts("built", MODULE_VERSION.removeprefix("v"), containerd, shim, ctr, runc, busybox))


@dataclass(frozen=True, slots=True)
class CRIOParts:
    """A CRI-O with what it needs; all paths are absolute."""

    crio: Path
    pinns: Path
    conmon: Path
    skopeo: Path
    libraries: Path
    """Folder of shared libraries that the machine may lack."""
    runc: Path
    busybox: Path


def crio_parts() -> CRIOParts:
    """Return the parts with CRI-O, whose program no package registry has: it comes from the folder of built parts.

    Raises:
        UnavailableError: when that folder or a package is missing.
        RuntimeError: when a part is not what it should be.
    """
    given = CRIO_FOLDER / CRIO_ARCHIVE
    pinns = CRIO_FOLDER / PINNS
    for path in (given, pinns):
        if not path.exists():
            raise UnavailableError(f"no {path.name} in ../shared/parts (or the folder that $MOORING_E2E_CRIO names)")
    with locked(cache_folder()) as cache:
        runc, busybox = _companions(cache)
        own = own_suite()
        conmon = unpacked(cache, "conmon", own) / "usr/bin/conmon"
        skopeo = unpacked(cache, "skopeo", own) / "usr/bin/skopeo"
        libraries = unpacked(cache, "libgpgme11", own) / "usr/lib" / f"{os.uname().machine}-linux-gnu"
        return CRIOParts(_crio(cache, given), pinns, conmon, skopeo, libraries, runc, busybox)


def _crio(cache: Path, given: Path) -> Path:
    """Return CRI-O's program, unpacked and checked."""
    folder = cache / "built" / given.name.removesuffix(".xz")
    program = folder / "crio"
    if program.exists():
        return program
    digest = hashlib.sha256(given.read_bytes()).hexdigest()
    if digest != CRIO_SHA256:
        raise RuntimeError(f"{given.name} has the digest {digest}, not {CRIO_SHA256}")
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    with lzma.open(given) as packed, (fresh / "crio").open("wb") as out:
        shutil.copyfileobj(packed, out)
    (fresh / "crio").chmod(0o755)
    fresh.rename(folder)
    return program


PARTS = {"debian": debian_parts, "built": built_parts}


def _companions(cache: Path) -> tuple[Path, Path]:
    # The testing suite's runc needs a newer C library than the machine's own suite may have.
    own = own_suite()
    return unpacked(cache, "runc", own) / "usr/sbin/runc", unpacked(cache, "busybox-static", own) / "bin/busybox"


def _checked(parts: Parts) -> Parts:
    for path in (parts.containerd, parts.shim, parts.ctr, parts.runc, parts.busybox):
        if not os.access(path, os.X_OK):
            raise RuntimeError(f"{path} is no program; remove {cache_folder()} and try again")
    return parts


@contextlib.contextmanager
def locked(cache: Path) -> Iterator[Path]:
    """Let one process at a time fetch."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def run(command: Sequence[str], *, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and keep what it prints; its exit code is left to the caller."""
    return subprocess.run(  # noqa: S603 - fixed programs with arguments of our own
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def announce(what: str, minutes: float) -> None:
    """Print what is built once and how long that takes, before it begins.

    Args:
        what: is built.
        minutes: that it takes on two CPUs that have nothing else to do.
    """
    cpus, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    about = f"about {expected(minutes, cpus, load):.0f} minutes at a load of {load:.1f} on {cpus} CPUs"
    print(f"building {what}, once: {about}", file=sys.stderr, flush=True)


def expected(minutes: float, cpus: int, load: float) -> float:
    """Return how long a build takes beside others; it runs two processes at a time (``-p 2``).

    >>> expected(8, cpus=2, load=0), expected(8, cpus=2, load=7), expected(8, cpus=16, load=7)
    (8, 36.0, 8)
    """
    return minutes * max(1, (load + 2) / cpus)


def last_line(finished: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what a program complained about, or else printed."""
    lines = (finished.stderr or finished.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {finished.returncode}"


def own_suite() -> str:
    """Return the code name of this machine's Debian.

    Raises:
        UnavailableError: this is no Debian.
    """
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines() if Path("/etc/os-release").exists() else []
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    if values.get("ID") != "debian":
        raise UnavailableError("this is no Debian: runc and containerd come from its packages")
    return values["VERSION_CODENAME"].strip('"')


def unpacked(cache: Path, package: str, suite: str) -> Path:
    """Return the folder with a package's files; it is there whole or not at all."""
    root = cache / "debian" / suite / package
    if root.exists():
        return root
    apt = apt_view(cache, suite)
    debs = cache / "debian" / suite / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    downloaded = run(["apt-get", "-qq", "download", package], cwd=debs, APT_CONFIG=str(apt))
    found = list(debs.glob("*.deb"))
    if downloaded.returncode or not found:
        raise UnavailableError(f"package {package} of Debian {suite}: {last_line(downloaded)}")
    fresh = root.with_name(f"{package}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    extracted = run(["dpkg", "-x", str(found[0]), str(fresh)])
    if extracted.returncode:
        raise RuntimeError(f"dpkg -x {found[0].name}: {last_line(extracted)}")
    (fresh / "version").write_text(found[0].name.split("_")[1].replace("%3a", ":"), encoding="utf-8")
    fresh.rename(root)
    shutil.rmtree(debs)
    return root


def _version(root: Path) -> str:
    return (root / "version").read_text(encoding="utf-8").strip()


def apt_view(cache: Path, suite: str) -> Path:
    """Return the configuration of an apt of our own for one suite, with a fresh index; the machine's is left alone."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError("no apt-get")
    if not KEYRING.exists():
        raise UnavailableError(f"no {KEYRING}: the index could not be verified")
    folder = cache / "apt" / suite
    (folder / "state/lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n", encoding="utf-8")
    options = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "root",
    }
    configuration = folder / "apt.conf"
    configuration.write_text("".join(f'{key} "{value}";\n' for key, value in options.items()), encoding="utf-8")
    updated = run(["apt-get", "-qq", "update"], APT_CONFIG=str(configuration))
    if updated.returncode:
        raise UnavailableError(f"index of Debian {suite}: {last_line(updated)}")
    return configuration


def _mirror() -> str:
    """Return the address of the mirror that this machine uses."""
    for path in SOURCES:
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            addresses = [word for word in words if word.startswith(("http://", "https://"))]
            if addresses and words[0] in ("URIs:", "deb") and "security" not in addresses[0]:
                return addresses[0]
    raise UnavailableError("no Debian mirror is configured")


def _built(cache: Path) -> Path:
    """Return the folder with containerd's programs, built if they are not there."""
    if shutil.which("go") is None:
        raise UnavailableError("no go: containerd could not be built")
    compiler = run(["go", "env", "GOVERSION"]).stdout.strip()
    folder = cache / "built" / f"containerd-{MODULE_VERSION}-{compiler}"
    if folder.exists():
        return folder
    fetched = run(["go", "mod", "download", "-json", f"{MODULE}@{MODULE_VERSION}"], cwd=cache)
    if fetched.returncode:
        raise UnavailableError(f"module {MODULE}@{MODULE_VERSION}: {last_line(fetched)}")
    if json.loads(fetched.stdout)["Sum"] != MODULE_SUM:
        raise RuntimeError(f"{MODULE}@{MODULE_VERSION} is not what it was: its checksum differs")
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    announce(f"containerd {MODULE_VERSION}", 4)
    version = f"-s -w -X {MODULE}/version.Version={MODULE_VERSION}"
    commands = [f"{MODULE}/cmd/{name}@{MODULE_VERSION}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")]
    build = ["go", "install", "-p", "2", "-trimpath", "-ldflags", version, *commands]
    finished = run(build, cwd=cache, CGO_ENABLED="0", GOBIN=str(fresh), GOFLAGS="-mod=mod")
    if finished.returncode:
        raise RuntimeError(f"building containerd {MODULE_VERSION} failed: {finished.stderr[-2000:]}")
    fresh.rename(folder)
    return folder


def main(names: list[str]) -> int:
    """Fetch everything, or the named parts, and say where it is; what is unavailable is named and is no error."""
    for name in names or PARTS:
        try:
            parts = PARTS[name]()
        except UnavailableError as why:
            print(f"SKIPPED {name}: {why}", flush=True)
        else:
            print(f"{name}: containerd {parts.version} at {parts.containerd}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
