"""Make what ``make e2e-numa`` boots: a guest with a real kernel, Python, Mooring and nothing else.

Kernel, Python and busybox are Debian's, unpacked and not installed; Mooring's dependencies are the wheels of
``requirements.lock``. Both are packed once into an initramfs in the folder of ``e2e_parts.py``; Mooring itself and the
test's own files are a second, small archive that is made anew each time and laid before the first. QEMU is the
machine's own; where this runs as root on a Debian without it, it is installed.

There are three editions: ``own`` has kernel and QEMU of the machine's own suite, ``newer`` those of its backports, with
QEMU unpacked beside the machine's own, which a newer kernel does not boot on, and ``newest`` the kernel of Debian's
unstable suite with the same QEMU. ``runtime`` is one more archive, for guests that run containers: containerd 2.1.9,
runc, and what the agent imports. A boot takes as many archives as it needs, and files of its own (``image``). A root
with systemd instead of the base is made by ``e2e_guest_systemd.py``.

Run by hand, it makes the editions that ``MOORING_E2E_NUMA_EDITIONS`` names, else ``own``, and says where they are.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e_parts import UnavailableError, apt_view, cache_folder, debian_parts, last_line, locked, own_suite, run

ROOT = Path(__file__).resolve().parent.parent
QEMU = "qemu-system-x86_64"
PROGRAMS = {QEMU: "qemu-system-x86", "cpio": "cpio", "zstd": "zstd"}
"""Programs that are needed here, and their packages."""
PACKAGES = ("busybox-static",)
WHEELS = ("click", "msgspec", "pluggy", "pyyaml", "rich")
"""What the commands import; rich has more dependencies for what they do not use."""
RUNTIME_PACKAGES = ("libseccomp2", "libstdc++6", "libgcc-s1")
"""What runc and grpcio load."""
RUNTIME_WHEELS = (
    *("grpcio", "h11", "h2", "hpack", "hyperframe", "prometheus-client", "protobuf", "typing-extensions"),
)
"""What the agent imports without an API server, and the client that plays the kubelet."""
OVERLAY = "kernel/fs/overlayfs/overlay.ko*"
EDITIONS = "MOORING_E2E_NUMA_EDITIONS"
"""Environment variable: names of editions with spaces between them."""
EMULATOR = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
"""Packages of an emulator that is unpacked and not installed."""
LEFT_OUT = ("usr/share", "usr/lib/{python}/pydoc_data", "usr/lib/{python}/lib2to3", "usr/lib/x86_64-linux-gnu/gconv")
"""Half of what is unpacked and nothing that is used."""
APPLICATION = "opt/mooring"
ENVIRONMENT = "PATH=/usr/bin:/bin:/usr/sbin:/sbin PYTHONPATH=/opt/mooring:/opt/wheels HOME=/root LANG=C.UTF-8"
INIT = """\
#!/bin/busybox sh
export {environment}
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t cgroup2 none /sys/fs/cgroup
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t tmpfs run /run
/bin/busybox ip link set lo up
"""
"""What the kernel starts, where nothing else is there."""
RUN = """\
/usr/bin/python3 -m {module}
code=$?
if [ $code != 0 ]; then
  # Who was killed for want of memory does not know it; the kernel does.
  /bin/busybox dmesg |
    /bin/busybox grep -oE "oom-kill:.*|Killed process.*|Node [0-9]+ [A-Z][A-Za-z0-9]+ free:[0-9]+kB" |
    /bin/busybox tail -n 40
fi
echo "GUEST-RC=$code"
/bin/busybox poweroff -f
"""
"""How the scenario is run: its end is the guest's."""


@dataclass(frozen=True, slots=True)
class Guest:
    """What QEMU is started with; all paths are absolute."""

    qemu: tuple[str, ...]
    """Program and first arguments."""
    kernel: Path
    kernel_version: str
    base: Path
    """Initramfs with Python and the wheels."""
    overlay: Path
    """The kernel's module of overlayfs."""
    python: tuple[str, ...] = ()
    """How the guest's Python is run here, where it is another one than that of this machine."""


SUITES = {"own": "{own}", "newer": "{own}-backports", "newest": "sid"}
"""Whose kernel an edition has. The emulator is the machine's own, else that of its backports."""


def editions() -> list[str]:
    """Return the editions that are wanted."""
    return os.environ.get(EDITIONS, "own").split()


def guest(edition: str = "own") -> Guest:
    """Return the parts of the guest, made if they are not there.

    Args:
        edition: a key of :data:`SUITES`.

    Raises:
        UnavailableError: when this machine cannot have one.
        RuntimeError: when something that is there cannot be unpacked or packed.
    """
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the guest is x86_64, and this machine is {platform.machine()}")
    _install_programs()
    suite = SUITES[edition].format(own=own_suite())
    folder = cached(f"guest-{edition}", locked_requirements(WHEELS), lambda cache, fresh: _make(cache, fresh, suite))
    kernel = next(folder.glob("vmlinuz-*"))
    version = kernel.name.removeprefix("vmlinuz-")
    return Guest(_emulator(folder), kernel, version, folder / "base.cpio.zst", folder / "overlay.ko")


def runtime() -> Path:
    """Return the initramfs that a guest needs besides to run containers and the agent.

    Raises:
        UnavailableError: when this machine cannot have one.
        RuntimeError: when something that is there cannot be unpacked or packed.
    """
    parts = debian_parts()
    recipe = f"{locked_requirements(RUNTIME_WHEELS)}{parts.version}"

    def make(cache: Path, fresh: Path) -> None:
        apt = str(apt_view(cache, own_suite()))
        python = python_of(apt)
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary)
            unpack(apt, RUNTIME_PACKAGES, root)
            shutil.rmtree(root / "usr/share", ignore_errors=True)
            for program in (parts.containerd, parts.shim, parts.ctr, parts.runc):
                (root / "usr/bin").mkdir(parents=True, exist_ok=True)
                shutil.copy(program, root / "usr/bin" / program.name)
            install_wheels(root / "opt/wheels", python.removeprefix("python"), RUNTIME_WHEELS, fresh)
            pack(root, fresh / "runtime.cpio")

    return cached("guest-runtime", recipe, make) / "runtime.cpio.zst"


def image(
    made: Guest,
    module: str,
    folders: Sequence[tuple[str, Path]],
    *,
    archives: Sequence[Path] = (),
    contents: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the initramfs of one boot.

    Args:
        made: the parts.
        module: that the guest runs as its only program.
        folders: of Python modules, as (path below the guest's folder of modules, path here); Mooring is there anyway.
        archives: more than the base, such as :func:`runtime`.
        contents: of more files, by path in the guest; ``/init`` among them takes the place of the usual one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        application = root / APPLICATION
        unneeded = shutil.ignore_patterns("__pycache__", "html")
        for there, here in (("mooring", ROOT / "src/mooring"), *folders):
            shutil.copytree(here, application / there, ignore=unneeded)
        compile_modules(application, made.python)
        init = f"{INIT}{RUN}".format(environment=ENVIRONMENT, module=module)
        for path, content in {"/init": init.encode(), **(contents or {})}.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        (root / "init").chmod(0o755)
        # The kernel unpacks archives one after another. An emulated one would take long to decompress them.
        return b"".join((_archive(root), *(_unpacked_archive(archive) for archive in (made.base, *archives))))


def cached(name: str, recipe: str, make: Callable[[Path, Path], None]) -> Path:
    """Return a folder of the cache, made if it is not there; it is there whole or not at all."""
    with locked(cache_folder()) as cache:
        text = "\0".join((Path(__file__).read_text(encoding="utf-8"), recipe))
        folder = cache / name / hashlib.sha256(text.encode()).hexdigest()[:16]
        if not folder.exists():
            fresh = folder.with_name(f"{folder.name}.new")
            # Of what was made another way there is no use any more.
            shutil.rmtree(folder.parent, ignore_errors=True)
            fresh.mkdir(parents=True)
            make(cache, fresh)
            fresh.rename(folder)
    return folder


def _install_programs() -> None:
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"{', '.join(missing)} is not installed, and only root on a Debian can install it")
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        finished = run(["apt-get", *arguments], DEBIAN_FRONTEND="noninteractive")
        if finished.returncode:
            raise UnavailableError(f"apt-get {arguments[0]}: {last_line(finished)}")


def _make(cache: Path, folder: Path, suite: str) -> None:
    own, apt = str(apt_view(cache, own_suite())), str(apt_view(cache, suite))
    kernel, python = _dependency(apt, "linux-image-cloud-amd64", r"linux-image-\d\S*"), python_of(own)
    with tempfile.TemporaryDirectory() as temporary:
        root, around = Path(temporary, "root"), Path(temporary, "kernel")
        unpack(apt, _kernel_packages(apt, kernel), around)
        unpack(own, (f"{python}-minimal", *_libraries(own, python), *PACKAGES), root)
        vmlinuz = next(around.rglob("vmlinuz*"))
        shutil.copy(vmlinuz, folder / f"vmlinuz-{kernel.removeprefix('linux-image-')}")
        _copy_module(next(around.rglob(OVERLAY)), folder / "overlay.ko")
        for name in LEFT_OUT:
            shutil.rmtree(root / name.format(python=python), ignore_errors=True)
        for name in ("proc", "sys", "dev", "tmp", "root", "run", "var/lib"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/python3").symlink_to(python)
        compile_modules(root / "usr/lib" / python)
        install_wheels(root / "opt/wheels", python.removeprefix("python"), WHEELS, folder)
        pack(root, folder / "base.cpio")
    if suite != own_suite():
        backports = str(apt_view(cache, f"{own_suite()}-backports"))
        unpack(backports, EMULATOR, folder / "emulator")


def _emulator(folder: Path) -> tuple[str, ...]:
    """Return the command of the emulator that was unpacked with a kernel, or of the machine's own."""
    unpacked = folder / "emulator/usr"
    if not unpacked.exists():
        return (shutil.which(QEMU) or QEMU,)
    data = ("-L", str(unpacked / "share/qemu"), "-L", str(unpacked / "share/seabios"))
    return ("env", f"QEMU_MODULE_DIR={unpacked}/lib/x86_64-linux-gnu/qemu", str(unpacked / "bin" / QEMU), *data)


def _copy_module(module: Path, target: Path) -> None:
    """Copy a module of the kernel; newer ones are compressed, and busybox cannot load those."""
    content = module.read_bytes()
    target.write_bytes(lzma.decompress(content) if module.suffix == ".xz" else content)


def pack(root: Path, plain: Path) -> None:
    """Make an initramfs of a folder: ``plain`` with ``.zst`` after it."""
    plain.write_bytes(_archive(root))
    packed = run(["zstd", "-q", "-3", "--rm", str(plain)])
    if packed.returncode:
        raise RuntimeError(f"zstd: {last_line(packed)}")


def _unpacked_archive(archive: Path) -> bytes:
    finished = subprocess.run(["zstd", "-dcq", str(archive)], capture_output=True, check=False)  # noqa: S603, S607 - found before
    if finished.returncode:
        raise RuntimeError(f"zstd: {finished.stderr.decode(errors='replace')[-500:]}")
    return finished.stdout


def python_of(apt: str) -> str:
    """Return the name of a suite's Python, such as ``python3.11``."""
    return _dependency(apt, "python3-minimal", r"python3\.\d+-minimal").removesuffix("-minimal")


def _dependency(apt: str, package: str, pattern: str) -> str:
    found = run(["apt-cache", "depends", package], APT_CONFIG=apt)
    name = re.search(rf"Depends: ({pattern})\n", found.stdout)
    if name is None:
        raise UnavailableError(f"package {package} of Debian: {last_line(found)}")
    return name[1]


def _kernel_packages(apt: str, kernel: str) -> list[str]:
    """Return the package of a kernel, and where its image and modules are in others those too."""
    version = kernel.removeprefix("linux-image-")
    found = run(["apt-cache", "depends", "--recurse", "--important", kernel], APT_CONFIG=apt)
    parts = re.findall(rf"Depends: (linux-(?:binary|modules)-{re.escape(version)})$", found.stdout, re.MULTILINE)
    return [kernel, *sorted(set(parts))]


def _libraries(apt: str, python: str) -> list[str]:
    """Return the packages of the libraries that Python loads, its own library among them."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = ["--recurse", *(f"--no-{kind}" for kind in kinds)]
    found = run(["apt-cache", "depends", *options, f"lib{python}-stdlib", f"{python}-minimal"], APT_CONFIG=apt)
    return sorted(set(re.findall(r"^((?:lib|zlib)[^\s:<>]*)$", found.stdout, re.MULTILINE)))


def unpack(apt: str, packages: Sequence[str], root: Path) -> None:
    """Unpack packages of Debian into a folder; nothing is installed.

    Raises:
        UnavailableError: when one cannot be had.
        RuntimeError: when one cannot be unpacked.
    """
    with tempfile.TemporaryDirectory() as debs:
        downloaded = run(["apt-get", "-qq", "download", *packages], cwd=Path(debs), APT_CONFIG=apt)
        found = sorted(Path(debs).glob("*.deb"))
        if downloaded.returncode or len(found) != len(set(packages)):
            raise UnavailableError(f"packages {', '.join(packages)} of Debian: {last_line(downloaded)}")
        for deb in found:
            unpacked = run(["dpkg", "-x", str(deb), str(root)])
            if unpacked.returncode:
                raise RuntimeError(f"dpkg -x {deb.name}: {last_line(unpacked)}")


def locked_requirements(wheels: Sequence[str]) -> str:
    """Return the lines of the lock file that are about some wheels, without conditions of platforms."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.findall(r"^[a-z].*(?:\n    .*)*", text, re.MULTILINE)
    return "\n".join(block for block in blocks if block.partition("==")[0] in wheels) + "\n"


def install_wheels(target: Path, version: str, wheels: Sequence[str], folder: Path, python: Sequence[str] = ()) -> None:
    """Install wheels of the lock file for a version of Python, such as ``3.11``.

    Args:
        target: where to.
        version: of Python.
        wheels: names.
        folder: for the list of what is wanted.
        python: as for :func:`compile_modules`.

    Raises:
        UnavailableError: when one cannot be had.
    """
    requirements = folder / "wheels.txt"
    requirements.write_text(locked_requirements(wheels), encoding="utf-8")
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
    finished = run([*pip, *chosen, "--target", str(target), "-r", str(requirements)])
    if finished.returncode:
        raise UnavailableError(f"wheels of the guest: {last_line(finished)}")
    compile_modules(target, python)


def compile_modules(folder: Path, python: Sequence[str] = ()) -> None:
    """Compile here what would take long in the guest; another Python than the guest's does no good and no harm.

    Args:
        folder: of modules.
        python: how the guest's Python is run here; the one that runs this by default.

    Raises:
        RuntimeError: when it does not run.
    """
    words = [*(python or [sys.executable]), "-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"]
    # What a module does wrong, it says when it is imported.
    finished = run([*words, "-s", str(folder), str(folder)])
    if finished.returncode not in (0, 1):
        raise RuntimeError(f"compileall: {last_line(finished)}")


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
    for edition in editions():
        try:
            made = guest(edition)
            archives = (made.base, runtime())
        except UnavailableError as why:
            print(f"SKIPPED e2e-numa {edition}: {why}")
        else:
            sizes = " and ".join(f"{archive.stat().st_size / 2**20:.1f}" for archive in archives)
            print(f"{edition}: kernel {made.kernel_version} in {made.base.parent}, archives of {sizes} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
