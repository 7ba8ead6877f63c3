"""Make the root of guests in which systemd is the first process, as on most nodes: what ``make e2e-systemd`` boots.

It takes the place of the base that ``e2e_guest.py`` makes, and has in it what the agent imports, both container
runtimes and both OCI runtimes: systemd, dbus-daemon, Python, runc, crun, conmon and skopeo from :data:`SUITE` (older
suites have a crun that refuses the specifications of newer runtimes), containerd 2.1.9, and CRI-O from the built parts
where they are. The kernel is that of the guest's edition.

Of systemd's own units only those run that the bus needs. The scenario is a service of its own, on the CPUs that are
reserved for the system.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from e2e_guest import (
    ENVIRONMENT,
    LEFT_OUT,
    ROOT,
    RUN,
    RUNTIME_WHEELS,
    WHEELS,
    Guest,
    cached,
    compile_modules,
    editions,
    guest,
    install_wheels,
    locked_requirements,
    pack,
    python_of,
    unpack,
)
from e2e_parts import UnavailableError, apt_view, crio_parts, debian_parts, last_line, run

SUITE = "trixie"
PROGRAMS = ("systemd", "dbus-daemon", "dbus-system-bus-common", "runc", "crun", "conmon", "skopeo", "busybox-static")
LIBRARIES = ("libstdc++6", "libgcc-s1")
"""What grpcio loads."""
CRIO = "opt/crio"
"""Folder of CRI-O's programs in the guest; empty where there are none."""
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
SYSTEM_CPUS = "0-1"
UNITS = "/etc/systemd/system"
_SERVICE = f"""\
[Unit]
DefaultDependencies=no
Requires=dbus.service
After=dbus.service
[Service]
Environment={ENVIRONMENT}
ExecStart=/bin/busybox sh /opt/run
StandardOutput=tty
TTYPath=/dev/ttyS0
Delegate=yes
AllowedCPUs={SYSTEM_CPUS}
TasksMax=infinity
LimitNOFILE=65536
OOMScoreAdjust=-999
"""
_BUS = """\
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
"""
_FILES: Mapping[str, str] = {
    "/init": "#!/bin/busybox sh\nexec /usr/lib/systemd/systemd\n",
    f"{UNITS}/dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    f"{UNITS}/dbus.service": _BUS,
    f"{UNITS}/scenario.service": _SERVICE,
    f"{UNITS}/default.target": "[Unit]\nDefaultDependencies=no\nRequires=scenario.service\n",
    "/etc/systemd/system.conf": "[Manager]\nLogTarget=kmsg\nShowStatus=no\nDefaultStandardOutput=null\n",
    "/etc/machine-id": f"{7:032x}\n",
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n",
    "/etc/group": "root:x:0:\ntty:x:5:\nmessagebus:x:100:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/resolv.conf": "",
}


def contents(module: str) -> dict[str, bytes]:
    """Return the files with which systemd runs a scenario, by path in the guest.

    Args:
        module: of the scenario.
    """
    files = {**_FILES, "/opt/run": f"/bin/busybox ip link set lo up\n{RUN.format(module=module)}"}
    unit = ROOT / "packaging/systemd/mooring-agent.service"
    return {f"{UNITS}/{unit.name}": unit.read_bytes(), **{path: text.encode() for path, text in files.items()}}


def rooted(made: Guest) -> Guest:
    """Return a guest with this root instead of its base.

    Raises:
        UnavailableError: when this machine cannot have one.
        RuntimeError: when something that is there cannot be unpacked or packed.
    """
    folder = _root()
    return replace(made, base=folder / "root.cpio.zst", python=_run_here(folder / "python"))


def _root() -> Path:
    """Return the folder with the initramfs, and with the guest's Python as it can be run here."""
    parts = debian_parts()
    try:
        crio = crio_parts()
    except UnavailableError:
        crio = None
    wheels = (*WHEELS, *RUNTIME_WHEELS)
    text = Path(__file__).read_text(encoding="utf-8")
    recipe = "\0".join((text, locked_requirements(wheels), parts.version, str(crio)))

    def make(cache: Path, fresh: Path) -> None:
        apt = str(apt_view(cache, SUITE))
        python = python_of(apt)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name in ("bin", "sbin", "lib", "lib64"):
                (folder / "usr" / name).mkdir(parents=True)
                (folder / name).symlink_to(f"usr/{name}")
            unpack(apt, _needed(apt, (*PROGRAMS, *LIBRARIES, f"{python}-minimal", f"lib{python}-stdlib")), folder)
            _tidy(folder, python)
            _keep_python(folder, fresh / "python", python)
            compiler = _run_here(fresh / "python")
            compile_modules(folder / "usr/lib" / python, compiler)
            for program in (parts.containerd, parts.shim, parts.ctr):
                shutil.copy(program, folder / "usr/bin" / program.name)
            (folder / CRIO).mkdir(parents=True)
            if crio is not None:
                shutil.copy(crio.crio, folder / CRIO / "crio")
                shutil.copy(crio.pinns, folder / CRIO / "pinns")
            install_wheels(folder / "opt/wheels", python.removeprefix("python"), wheels, fresh, compiler)
            pack(folder, fresh / "root.cpio")

    return cached("guest-systemd", recipe, make)


def _keep_python(folder: Path, target: Path, python: str) -> None:
    """Keep what compiles modules: Python and the few libraries that it loads, with their loader."""
    libraries = folder / LIBRARY_FOLDER
    for name in (f"usr/bin/{python}", f"usr/lib/{python}"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir():
            shutil.copytree(folder / name, target / name, symlinks=True)
        else:
            shutil.copy(folder / name, target / name)
    (target / "usr/bin/python3").symlink_to(python)
    (target / LIBRARY_FOLDER).mkdir(parents=True)
    for pattern in ("ld-linux*", "libc.so*", "libm.so*", "libz.so*", "libexpat.so*"):
        for library in libraries.glob(pattern):
            shutil.copy(library, target / LIBRARY_FOLDER / library.name)


def _run_here(folder: Path) -> tuple[str, ...]:
    """Return how the guest's Python is run on a machine whose C library may be older."""
    libraries = folder / LIBRARY_FOLDER
    loader = str(libraries / "ld-linux-x86-64.so.2")
    return ("env", f"PYTHONHOME={folder}/usr", loader, "--library-path", str(libraries), f"{folder}/usr/bin/python3")


def _needed(apt: str, packages: tuple[str, ...]) -> list[str]:
    """Return packages with the libraries that they load; of what else they depend on nothing is used here."""
    found = run(["apt-get", "-s", "-qq", "--no-install-recommends", "install", *packages], APT_CONFIG=apt)
    if found.returncode:
        raise UnavailableError(f"packages of Debian {SUITE}: {last_line(found)}")
    every = re.findall(r"^Inst (\S+)", found.stdout, re.MULTILINE)
    return [name for name in every if name in packages or re.match(r"lib|zlib", name)]


def _tidy(folder: Path, python: str) -> None:
    """Take away what is not used, and every unit that systemd would start of its own accord."""
    units = folder / "usr/lib/systemd"
    bus = folder / "usr/share/dbus-1"
    shutil.move(bus, folder / "dbus-1")
    for name in (*LEFT_OUT, "usr/lib/systemd/system-generators"):
        shutil.rmtree(folder / name.format(python=python), ignore_errors=True)
    bus.parent.mkdir()
    shutil.move(folder / "dbus-1", bus)
    for wants in (units / "system").glob("*.wants"):
        shutil.rmtree(wants)
    for name in ("proc", "sys", "dev", "tmp", "root", "run", "var/lib", "etc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "var/run").symlink_to("/run")
    (folder / "usr/bin/sh").symlink_to("busybox")
    (folder / "usr/bin/python3").unlink(missing_ok=True)
    (folder / "usr/bin/python3").symlink_to(python)


def main() -> int:
    """Make everything and say where it is; what is unavailable is named and is no error."""
    for edition in editions():
        try:
            made = rooted(guest(edition))
        except UnavailableError as why:
            print(f"SKIPPED e2e-systemd {edition}: {why}")
        else:
            size = made.base.stat().st_size / 2**20
            print(f"{edition}: kernel {made.kernel_version} in {made.base.parent}, Debian {SUITE} of {size:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
