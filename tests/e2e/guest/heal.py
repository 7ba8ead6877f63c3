"""A scenario: ``mooring heal`` as its unit runs it, with every restriction of it, before a kubelet that systemd starts.

``kubelet.service`` is a judge, not a kubelet: it starts if ``mooring doctor`` finds that a kubelet would.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.guest.node import SYSTEM_CPUS

STATE = Path("/var/lib/kubelet")
FILE = STATE / "cpu_manager_state"
RECORD = Path("/var/lib/mooring/heal.json")
PROGRAMS = Path("/usr/local/bin")
PACKAGED = Path("/opt/mooring/packaging/systemd")
UNITS = Path("/etc/systemd/system")
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": SYSTEM_CPUS,
}
SCRIPTS: Mapping[str, str] = {
    "mooring": 'export PYTHONPATH=/opt/mooring:/opt/wheels\nexec /usr/bin/python3 -m mooring "$@"',
    "kubelet": 'test "$1" = --version && echo Kubernetes v1.37.1 || read forever',
}
KUBELET = f"""\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={PROGRAMS}/mooring doctor --node none --state {STATE} --config {STATE}/config.yaml --kubelet-version 1.37
"""
DROP_IN = f"""\
[Unit]
DefaultDependencies=no
[Service]
Environment=PATH={PROGRAMS}:/usr/bin
"""
"""A guest has no sysinit.target, and systemd's own path of a unit has no folder of the kubelet."""


def systemctl(*words: str, code: int = 0) -> str:
    done = subprocess.run(["/usr/bin/systemctl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: {done.returncode} {done.stdout}{done.stderr}{journal()}"
    return done.stdout


def journal() -> str:
    """Return what the unit last said, as the kernel has it."""
    said = subprocess.run(["/bin/busybox", "dmesg"], capture_output=True, text=True, check=False).stdout
    return "\n".join(said.splitlines()[-25:])


def start() -> None:
    """Start the kubelet's unit as a node does at boot, and see that the other one ran before."""
    systemctl("stop", "kubelet.service")
    systemctl("start", "kubelet.service")
    times = [
        int(systemctl("show", unit, "--property=ExecMainStartTimestampMonotonic", "--value"))
        for unit in ("mooring-heal.service", "kubelet.service")
    ]
    assert 0 < times[0] < times[1], times


def kept() -> list[Path]:
    return sorted(path for path in STATE.iterdir() if path.name.startswith(FILE.name) and path != FILE)


def step_the_units_are_installed() -> str:
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for name, text in SCRIPTS.items():
        (PROGRAMS / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (PROGRAMS / name).chmod(0o755)
    STATE.mkdir(parents=True)
    (STATE / "config.yaml").write_text(json.dumps(CONFIG), "utf-8")
    unit = UNITS / "mooring-heal.service"
    unit.write_bytes((PACKAGED / unit.name).read_bytes())
    Path(f"{unit}.d").mkdir()
    Path(f"{unit}.d/guest.conf").write_text(DROP_IN, "utf-8")
    (UNITS / "kubelet.service").write_text(KUBELET, "utf-8")
    systemctl("daemon-reload")
    systemctl("enable", unit.name)
    return systemctl("show", unit.name, "--property=SystemCallFilter", "--value")[:60]


def step_a_kubelet_without_a_state_starts_and_nothing_is_written() -> str:
    start()
    assert not FILE.exists()
    assert not RECORD.exists()
    return systemctl("show", "mooring-heal.service", "--property=Result", "--value")


def step_a_torn_file_is_healed_before_the_kubelet_starts() -> str:
    FILE.write_text('{"policyName":"static","defaultCp', "utf-8")
    start()
    text = json.loads(FILE.read_text("utf-8")) if FILE.exists() else None
    assert text is None or text["policyName"] == "static", text
    assert [path.read_text("utf-8") for path in kept()] == ['{"policyName":"static","defaultCp']
    return str(json.loads(RECORD.read_text("utf-8"))["events"][-1]["message"])


def step_what_is_sound_stays_byte_by_byte() -> str:
    before, copies = FILE.read_bytes() if FILE.exists() else b"", kept()
    start()
    assert (FILE.read_bytes() if FILE.exists() else b"") == before
    assert kept() == copies
    return f"{len(before)} bytes"


def step_a_changed_policy_is_healed_too() -> str:
    state = {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
    FILE.write_text(json.dumps(state, separators=(",", ":")), "utf-8")
    start()
    return str(json.loads(RECORD.read_text("utf-8"))["events"][-1]["message"])


def step_beside_a_kubelet_nothing_is_written() -> str:
    FILE.write_text("torn", "utf-8")
    with subprocess.Popen(
        [str(PROGRAMS / "kubelet"), "--config", f"{STATE}/config.yaml"], stdin=subprocess.PIPE
    ) as process:
        try:
            systemctl("start", "mooring-heal.service", code=1)
        finally:
            process.kill()
    assert FILE.read_text("utf-8") == "torn"
    systemctl("reset-failed", "mooring-heal.service")
    return "refused"
