"""What the agent tells its service manager and its log, and the unit that starts it."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.service.agent_options import AgentOptions
from mooring.service.daemon import notify, watchdog_seconds
from mooring.service.logs import set_level, start_log
from mooring.service.options import LogFormat, LogLevel

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "packaging" / "systemd" / "mooring-agent.service"
PROFILE = ROOT / "charts" / "mooring" / "files" / "seccomp.json"


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield
    root.handlers = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("restored_logging")
def test_a_line_of_the_log_is_one_document_with_everything_that_the_event_brings() -> None:
    stream = io.StringIO()
    log = start_log(LogFormat.JSON, LogLevel.INFO, stream)
    log.info("pod placed", pod="apps/db", cpus="1-2\n,9")
    log.debug("not heard")
    logging.getLogger("library").warning("of %s", "a library")
    logging.getLogger("library").info("not heard either")
    first, second = lines(stream)
    assert (first["event"], first["pod"], first["cpus"], first["level"]) == ("pod placed", "apps/db", "1-2\n,9", "info")
    assert str(first["time"]).endswith("Z")
    assert (second["event"], second["logger"]) == ("of a library", "library")


@pytest.mark.usefixtures("restored_logging")
def test_the_level_can_be_changed_while_the_agent_runs() -> None:
    stream = io.StringIO()
    log = start_log(LogFormat.JSON, LogLevel.ERROR, stream)
    log.warning("not heard")
    set_level(LogLevel.DEBUG)
    log.debug("heard")
    try:
        int("odd")
    except ValueError:
        log.exception("failed")
    heard, failed = lines(stream)
    assert heard["event"] == "heard"
    assert "ValueError: invalid literal" in str(failed["exception"])


@pytest.mark.usefixtures("restored_logging")
def test_people_get_one_line_an_event_too() -> None:
    stream = io.StringIO()
    start_log(LogFormat.CONSOLE, LogLevel.INFO, stream).info("pod placed", pod="apps/db")
    (line,) = stream.getvalue().splitlines()
    assert "event='pod placed' " in line
    assert "pod='apps/db'" in line


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_hears_every_field(tmp_path: Path, *, abstract: bool) -> None:
    name = f"@mooring-test-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        assert notify({"READY": "1", "STATUS": "2 pods,\n1 held back"}, {"NOTIFY_SOCKET": name})
        assert manager.recv(4096) == b"READY=1\nSTATUS=2 pods, 1 held back"


@pytest.mark.parametrize("address", ["", "nowhere", "/no/such/socket"])
def test_without_a_service_manager_nothing_happens(address: str) -> None:
    assert not notify({"READY": "1"}, {"NOTIFY_SOCKET": address})
    assert watchdog_seconds({"WATCHDOG_USEC": "odd"}) == 0.0


def settings_of_unit() -> dict[str, str]:
    rows = (line.partition("=") for line in UNIT.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: value for name, sign, value in rows if sign}


def test_the_unit_makes_the_folders_that_the_configuration_names() -> None:
    found, usual = settings_of_unit(), AgentOptions()
    assert usual.state_dir == f"/var/lib/{found['StateDirectory']}"
    run = f"/run/{found['RuntimeDirectory']}/"
    assert usual.status_socket.startswith(run)
    assert usual.pod_resources_socket.startswith(run)


def test_the_unit_is_a_good_one(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The program and the other units of a node are not there on the machine that runs this test.
    text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/mooring", sys.executable)
    unit = tmp_path / UNIT.name
    unit.write_text(text, encoding="utf-8")
    found = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_the_unit_leaves_little_to_attack() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # 0 is a service that can do nothing, 10 one that may do everything.
    words = [analyze, "security", "--offline=yes", "--no-pager", str(UNIT)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze looks at running units only")
    level = re.search(r"Overall exposure level for \S+ ([0-9.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level[1]) < 2, found.stdout


def test_the_unit_has_no_capabilities() -> None:
    assert settings_of_unit()["CapabilityBoundingSet"] == ""


def test_the_units_filter_lets_every_call_pass_that_was_recorded() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    allowed: set[str] = set()
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line.startswith("SystemCallFilter="):
            words = line.partition("=")[2]
            for group in words.removeprefix("~").split():
                allowed = allowed - calls_of(analyze, group) if words[0] == "~" else allowed | calls_of(analyze, group)
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    recorded = {name for rule in profile["syscalls"] for name in rule["names"]}
    # Newer than systemd 252 in Debian 12; C libraries do without.
    assert recorded - allowed - {"fchmodat2", "set_tls"} == set()


def calls_of(analyze: str, group: str) -> set[str]:
    """Return the system calls of a group, those of the groups in it too."""
    words = [analyze, "syscall-filter", "--no-pager", group]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    names = [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for name in names for call in (calls_of(analyze, name) if name.startswith("@") else {name})}
