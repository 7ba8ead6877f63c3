"""A root file system with Python and what its extension modules need, of the packages of a Debian suite.

It needs neither root nor a base image: apt resolves and verifies with folders of its own, and the packages' files go
into one tar file, unpacked and not installed. What a program in a container never reads stays out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WANTED = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "netbase")
NOT_USED = (
    "dpkg", "tar", "debconf", "gcc-*-base", "libacl1", "libmd0", "libpcre2-*", "libselinux1", "libzstd1",
    "libdb5.3*", "libsqlite3-*", "libncursesw6", "libreadline8*", "readline-common", "libtinfo6",
    "libnsl2", "libtirpc*", "libgssapi*", "libkrb5*", "libk5crypto3", "libkeyutils1", "libcom-err2",
)  # fmt: skip
"""Packages that are needed to install others, or by modules of :data:`MODULES` only: databases, terminals, NIS."""
FOLDERS = ("distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test")
"""Folders of Python's library that stay out: for installers, editors and tests."""
MODULES = ("_curses", "_curses_panel", "_dbm", "_sqlite3", "nis", "readline")
"""Modules of Python that stay out with their libraries."""
LEFT_OUT = (
    "usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bug/", "usr/share/gdb/",
    "usr/share/python3/", "usr/share/pixmaps/", "usr/share/applications/", "usr/share/binfmts/", "usr/share/gcc/",
    "usr/lib/python3/dist-packages/", "var/",
)  # fmt: skip
_LINKS = ("bin", "lib", "lib64", "sbin")
"""Folders that Debian has merged into ``usr``."""
_FOLDERS = ("proc", "sys", "dev", "run", "etc", "var", "var/lib")


class UnavailableError(Exception):
    """This machine cannot make the root; the text says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package of the root."""

    name: str
    version: str
    architecture: str
    source: str
    """Its source package."""
    sha256: str
    """Of the .deb file."""


def write_root(tar: Path, suite: str, architecture: str, folder: Path, epoch: int) -> tuple[Package, ...]:
    """Write the root as a tar file and return its packages by name; the same packages give the same bytes.

    Args:
        tar: to write.
        suite: code name; empty means this machine's.
        architecture: as Debian names it, such as ``arm64``; nothing of it runs here.
        folder: for apt's index and packages, kept between runs.
        epoch: seconds; newer files get this time.

    Raises:
        UnavailableError: no Debian, or a package is missing.
    """
    debs = _downloaded(suite, architecture, folder)
    fields = {deb: _fields(deb) for deb in debs}
    used = sorted((deb for deb in debs if not _matches(fields[deb]["Package"])), key=lambda deb: fields[deb]["Package"])
    members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    for name in _FOLDERS:
        members[name] = (_folder(name), b"")
    members["tmp"] = (_folder("tmp", 0o1777), b"")
    for name in _LINKS:
        members[name] = (_link(name, f"usr/{name}"), b"")
    for deb in used:
        members.update(_members(deb))
    members["usr/bin/python3"] = (_link("usr/bin/python3", _python_of(members)), b"")
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as out:
        for name in sorted(members):
            member, content = members[name]
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = min(int(member.mtime), epoch)
            out.addfile(member, io.BytesIO(content))
    return tuple(_package(deb, fields[deb]) for deb in used)


def _downloaded(suite: str, architecture: str, folder: Path) -> list[Path]:
    """Return the .deb files of the wanted packages and of all that they depend on, verified by apt."""
    if any(shutil.which(name) is None for name in ("apt-get", "dpkg-deb")):
        raise UnavailableError("no apt-get and dpkg-deb: this is no Debian; name a base image (BASE=...)")
    own = _own_suite()
    suite = suite or own
    view = folder / f"{suite}-{architecture}"
    shutil.rmtree(view / "archives", ignore_errors=True)
    for name in ("state/lists/partial", "archives/partial", "sources"):
        (view / name).mkdir(parents=True, exist_ok=True)
    (view / "status").touch()
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if path.exists():
            text = path.read_text(encoding="utf-8").replace(own, suite)
            (view / "sources" / path.name.replace("sources.list", "own.list")).write_text(text, encoding="utf-8")
    options = {
        "Dir::State": view / "state",
        "Dir::State::status": view / "status",
        "Dir::Cache": view,
        "Dir::Cache::archives": view / "archives",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": view / "sources",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
    }
    (view / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in options.items()), encoding="utf-8")
    for words in (["update"], ["install", "--yes", "--download-only", *WANTED]):
        done = subprocess.run(  # noqa: S603 - apt with words of our own
            ["apt-get", "-qq", *words],  # noqa: S607 - as the machine has it
            env={**os.environ, "APT_CONFIG": str(view / "apt.conf"), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise UnavailableError(f"apt-get {words[0]} for Debian {suite} on {architecture}: {last[0]}")
    return sorted((view / "archives").glob("*.deb"))


def _own_suite() -> str:
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    if values.get("ID") != "debian":
        raise UnavailableError("this is no Debian; name a base image (BASE=...)")
    return values["VERSION_CODENAME"].strip('"')


def _matches(name: str) -> bool:
    return any(Path(name).match(pattern) for pattern in NOT_USED)


def _fields(deb: Path) -> dict[str, str]:
    names = ("Package", "Version", "Architecture", "Source")
    words = ["dpkg-deb", "--show", "--showformat", "".join(f"${{{name}}}\\n" for name in names), str(deb)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout  # noqa: S603 - fixed words
    return dict(zip(names, said.split("\n"), strict=False))


def _package(deb: Path, fields: dict[str, str]) -> Package:
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    source = fields["Source"].split(" ")[0] or fields["Package"]
    return Package(fields["Package"], fields["Version"], fields["Architecture"], source, digest)


def _members(deb: Path) -> Iterator[tuple[str, tuple[tarfile.TarInfo, bytes]]]:
    """Yield name, header and content of the files of a package that are kept."""
    packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], capture_output=True, check=True)  # noqa: S603, S607
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        for member in files:
            name = _merged(member.name.removeprefix("./").rstrip("/"))
            if not name or name in _LINKS or _is_left_out(name):
                continue
            member.name = name
            if member.islnk():
                member.linkname = _merged(member.linkname.removeprefix("./"))
            content = files.extractfile(member) if member.isreg() else None
            yield name, (member, content.read() if content else b"")


def _merged(name: str) -> str:
    return f"usr/{name}" if name.partition("/")[0] in _LINKS and "/" in name else name


def _is_left_out(name: str) -> bool:
    if name.startswith("usr/share/doc/"):
        # Licences stay with what they are of.
        return not name.endswith("/copyright") and name.count("/") > 3
    if name.startswith("usr/lib/python3.") and name.split("/")[3:4] and name.split("/")[3] in FOLDERS:
        return True
    if "/lib-dynload/" in name:
        return name.rpartition("/")[2].split(".")[0] in MODULES
    return f"{name}/".startswith(LEFT_OUT) or "/gconv/" in f"{name}/"


def _python_of(members: dict[str, tuple[tarfile.TarInfo, bytes]]) -> str:
    names = (name.removeprefix("usr/bin/") for name in members if name.startswith("usr/bin/python3."))
    return next(iter(sorted(names)))


def _folder(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode = tarfile.DIRTYPE, mode
    return made


def _link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made
