"""Make what ``make e2e-numa`` boots: a guest with a real kernel, Python, Mooring and nothing else.

Kernel, Python and busybox are Debian's, unpacked and not installed; Mooring's dependencies are the wheels of
``requirements.lock``. Both are packed once into an initramfs in the folder of ``e2e_parts.py``; Mooring itself and the
test's own files are a second, small archive that is made anew each time and laid before the first. QEMU is the
machine's own; where this runs as root on a Debian without it, it is installed.

More can be put into the guest by two lists and one folder:

* ``PACKAGES``: Debian packages, unpacked over the root. containerd 2.1.9 comes from the testing suite
  (``e2e_parts.debian_parts``), runc and busybox from the own suite: hand their files to ``image`` as extra files.
  The cloud kernel has overlayfs as a module, so that containerd wants ``snapshotter = "native"`` and, because the root
  is an initramfs, ``NoPivotRoot = true`` in the options of runc.
* ``WHEELS``: names of wheels of ``requirements.lock``; the agent's are protobuf, structlog, prometheus-client, grpcio.
* extra files: (path in the guest, path here), which end up executable where they are here.

Run by hand, it says where the parts are.
"""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import io
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e_parts import UnavailableError, _apt_view, _last_line, _locked, _own_suite, _run, cache_folder

ROOT = Path(__file__).resolve().parent.parent
QEMU = "qemu-system-x86_64"
PROGRAMS = {QEMU: "qemu-system-x86", "cpio": "cpio", "zstd": "zstd"}
"""Programs that are needed here, and their packages."""
PACKAGES = ("busybox-static",)
WHEELS = ("click", "msgspec", "pyyaml", "rich")
"""What the commands import; rich has more dependencies for what they do not use."""
LEFT_OUT = ("usr/share", "usr/lib/{python}/pydoc_data", "usr/lib/{python}/lib2to3", "usr/lib/x86_64-linux-gnu/gconv")
"""Half of what is unpacked and nothing that is used."""
APPLICATION = "opt/mooring"
INIT = """\
#!/bin/busybox sh
export PATH=/usr/bin:/bin:/usr/sbin:/sbin PYTHONPATH=/opt/mooring:/opt/wheels HOME=/root LANG=C.UTF-8
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t cgroup2 none /sys/fs/cgroup
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox ip link set lo up
/usr/bin/python3 /opt/mooring/guest/inside.py
echo "GUEST-RC=$?"
/bin/busybox poweroff -f
"""


@dataclass(frozen=True, slots=True)
class Guest:
    """What QEMU is started with; all paths are absolute."""

    qemu: str
    kernel: Path
    kernel_version: str
    base: Path
    """Initramfs with Python and the wheels."""


def guest() -> Guest:
    """Return the parts of the guest, made if they are not there.

    Raises:
        UnavailableError: when this machine cannot have one.
        RuntimeError: when something that is there cannot be unpacked or packed.
    """
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the guest is x86_64, and this machine is {platform.machine()}")
    _install_programs()
    with _locked(cache_folder()) as cache:
        recipe = "\0".join((Path(__file__).read_text(encoding="utf-8"), _requirements()))
        folder = cache / "guest" / hashlib.sha256(recipe.encode()).hexdigest()[:16]
        if not folder.exists():
            fresh = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            _make(cache, fresh)
            fresh.rename(folder)
    kernel = next(folder.glob("vmlinuz-*"))
    return Guest(shutil.which(QEMU) or QEMU, kernel, kernel.name.removeprefix("vmlinuz-"), folder / "base.cpio.zst")


def image(made: Guest, inside: Path, extra: Sequence[tuple[str, Path]] = ()) -> bytes:
    """Return the initramfs of one boot.

    Args:
        made: the parts.
        inside: folder with ``inside.py``, which the guest runs.
        extra: more files, as (path in the guest, path here).
    """
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        application = root / APPLICATION
        unneeded = shutil.ignore_patterns("__pycache__", "html")
        shutil.copytree(ROOT / "src/mooring", application / "mooring", ignore=unneeded)
        shutil.copytree(inside, application / "guest", ignore=unneeded)
        _compile(application)
        for there, here in extra:
            target = root / there.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, target)
        (root / "init").write_text(INIT, encoding="utf-8")
        (root / "init").chmod(0o755)
        # The kernel unpacks archives one after another; one that is not compressed comes first.
        return _archive(root) + made.base.read_bytes()


def _install_programs() -> None:
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"{', '.join(missing)} is not installed, and only root on a Debian can install it")
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        finished = _run(["apt-get", *arguments], DEBIAN_FRONTEND="noninteractive")
        if finished.returncode:
            raise UnavailableError(f"apt-get {arguments[0]}: {_last_line(finished)}")


def _make(cache: Path, folder: Path) -> None:
    apt = str(_apt_view(cache, _own_suite()))
    kernel = _dependency(apt, "linux-image-cloud-amd64", r"linux-image-\d\S*")
    python = _dependency(apt, "python3-minimal", r"python3\.\d+-minimal").removesuffix("-minimal")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "root")
        for package in (kernel, f"{python}-minimal", *_libraries(apt, python), *PACKAGES):
            _unpack(apt, package, Path(temporary, "kernel") if package == kernel else root)
        vmlinuz = next(Path(temporary, "kernel/boot").glob("vmlinuz-*"))
        shutil.copy(vmlinuz, folder / vmlinuz.name)
        for name in LEFT_OUT:
            shutil.rmtree(root / name.format(python=python), ignore_errors=True)
        for name in ("proc", "sys", "dev", "tmp", "root", "run", "var/lib"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/python3").symlink_to(python)
        _compile(root / "usr/lib" / python)
        _install_wheels(root / "opt/wheels", python.removeprefix("python"), folder)
        plain = folder / "base.cpio"
        plain.write_bytes(_archive(root))
    packed = _run(["zstd", "-q", "-3", "--rm", str(plain)])
    if packed.returncode:
        raise RuntimeError(f"zstd: {_last_line(packed)}")


def _dependency(apt: str, package: str, pattern: str) -> str:
    found = _run(["apt-cache", "depends", package], APT_CONFIG=apt)
    name = re.search(rf"Depends: ({pattern})\n", found.stdout)
    if name is None:
        raise UnavailableError(f"package {package} of Debian: {_last_line(found)}")
    return name[1]


def _libraries(apt: str, python: str) -> list[str]:
    """Return the packages of the libraries that Python loads, its own library among them."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = ["--recurse", *(f"--no-{kind}" for kind in kinds)]
    found = _run(["apt-cache", "depends", *options, f"lib{python}-stdlib", f"{python}-minimal"], APT_CONFIG=apt)
    return sorted(set(re.findall(r"^((?:lib|zlib)[^\s:<>]*)$", found.stdout, re.MULTILINE)))


def _unpack(apt: str, package: str, root: Path) -> None:
    with tempfile.TemporaryDirectory() as debs:
        downloaded = _run(["apt-get", "-qq", "download", package], cwd=Path(debs), APT_CONFIG=apt)
        found = list(Path(debs).glob("*.deb"))
        if downloaded.returncode or not found:
            raise UnavailableError(f"package {package} of Debian: {_last_line(downloaded)}")
        unpacked = _run(["dpkg", "-x", str(found[0]), str(root)])
        if unpacked.returncode:
            raise RuntimeError(f"dpkg -x {found[0].name}: {_last_line(unpacked)}")


def _requirements() -> str:
    """Return the lines of the lock file that are about the guest's wheels, without conditions of platforms."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.findall(r"^[a-z].*(?:\n    .*)*", text, re.MULTILINE)
    return "\n".join(block for block in blocks if block.partition("==")[0] in WHEELS) + "\n"


def _install_wheels(target: Path, version: str, folder: Path) -> None:
    requirements = folder / "wheels.txt"
    requirements.write_text(_requirements(), encoding="utf-8")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-deps",
    ]
    platforms = [f"--platform=manylinux{name}_x86_64" for name in ("2014", "_2_17", "_2_28")]
    chosen = ["--only-binary=:all:", f"--python-version={version}", *platforms, "--require-hashes"]
    finished = _run([*pip, *chosen, "--target", str(target), "-r", str(requirements)])
    if finished.returncode:
        raise UnavailableError(f"wheels of the guest: {_last_line(finished)}")
    _compile(target)


def _compile(folder: Path) -> None:
    """Compile here what would take long in the guest; another Python than the guest's does no good and no harm."""
    with contextlib.redirect_stdout(io.StringIO()):
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(folder, quiet=2, invalidation_mode=mode, stripdir=str(folder))


def _archive(root: Path) -> bytes:
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    finished = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],  # noqa: S607 - found before
        cwd=root,
        input="\n".join(names).encode(),
        capture_output=True,
        check=False,
    )
    if finished.returncode:
        raise RuntimeError(f"cpio: {finished.stderr.decode(errors='replace')[-500:]}")
    return finished.stdout


def main() -> int:
    """Make everything and say where it is; what is unavailable is named and is no error."""
    try:
        made = guest()
    except UnavailableError as why:
        print(f"SKIPPED e2e-numa: {why}")
    else:
        size = made.base.stat().st_size / 2**20
        print(f"guest: kernel {made.kernel_version} and an initramfs of {size:.1f} MiB in {made.base.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
