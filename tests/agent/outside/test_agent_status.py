"""The status socket and the verbs that ask it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.outside.nodes import MACHINE, STATIC, Told, busy, partitioned, pod, snapshot_of, started
from tests.cli.command import mooring
from tests.documents.validation import complaints
from tests.patience import until
from tests.render.pictured import terminal_text

from mooring.agent.metrics import status_pages
from mooring.agent.state import Setting
from mooring.agent.status import (
    NO_RUNTIME,
    Published,
    Snapshot,
    status_document,
)
from mooring.documents.status import AgentCountsPart, ConfigurationPart
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.metrics import Metrics
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import FIXED_BY_DEFAULT
from mooring.service.agent_status import ask_machine, ask_status, read_status
from mooring.service.http import Page, serve_unix
from mooring.views.build import status_view

COUNTS = AgentCountsPart(
    replies=1200,
    mean_reply_milliseconds=0.75,
    rejections=3,
    evictions=0,
    repairs=1,
    reconnects=2,
    state_write_failures=0,
)


def stray() -> Snapshot:
    """Return an agent beside whose exclusive containers another one runs."""
    snapshot = snapshot_of(busy())
    effective = {
        container: Setting(CPUSet.parse("0-3"), NUMAMask(0b1)) if container.startswith("web") else found
        for container, found in snapshot.effective.items()
    }
    return snapshot_of(busy(), effective=effective)


def lost() -> Snapshot:
    """Return an agent without runtime, and with a file that it does not follow."""
    refused = ConfigurationPart(["agent.yaml"], 1, "", "agent.yaml: nothing in it")
    return snapshot_of(busy(), runtime=NO_RUNTIME, configuration=refused)


SNAPSHOTS = {
    "busy": lambda: snapshot_of(busy()),
    "partitioned": lambda: snapshot_of(partitioned()),
    "empty": lambda: snapshot_of(started()),
    "stray": stray,
    "lost": lost,
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "status.sock")


@pytest.fixture
def served(path: str) -> Iterator[Published]:
    published = Published(snapshot_of(busy()))
    server = serve_unix(path, status_pages(published, lambda: COUNTS))
    yield published
    server.close()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_status_is_what_its_schema_says(name: str) -> None:
    document = to_builtins(status_document(SNAPSHOTS[name](), COUNTS))
    assert complaints("AgentStatus", document) == []
    assert json.loads(json.dumps(document)) == document


def test_the_socket_answers_with_the_present_status_and_the_engines_machine(served: Published, path: str) -> None:
    assert ask_status(path) == to_builtins(status_document(served.snapshot(), COUNTS))
    served.publish(stray())
    assert ask_status(path)["cpus"]["overlap"] == "1-3"
    machine = ask_machine(path)
    assert (machine.name, machine.info) == (served.snapshot().machine.name, load_machine(MACHINE).info)


def test_many_ask_at_once_and_all_are_answered_or_turned_away(served: Published, path: str) -> None:
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(ask_status(path)["kind"])
        except InputError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(answers) == 40
    turned_away = {
        f"{path}: {what}; try again" for what in ("the agent answers 503", "the agent closed the connection")
    }
    assert {answer for answer in answers if answer != "AgentStatus"} <= turned_away

    def is_answered() -> bool:
        try:
            return bool(ask_status(path) == to_builtins(status_document(served.snapshot(), COUNTS)))
        except InputError:
            return False

    # A thread frees its place just after its client has the answer.
    until(is_answered, "the next one is answered")


@contextmanager
def peer(path: str, *, answer: bytes = b"") -> Iterator[None]:
    """Take one connection: answer with these bytes whatever is asked, or close it before."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def take() -> None:
            connection, _ = listening.accept()
            with connection:
                if answer:
                    connection.recv(4096)
                    connection.sendall(answer)

        taking = threading.Thread(target=take)
        taking.start()
        yield
        taking.join()


def test_who_is_turned_away_before_he_asked_is_told_to_try_again(path: str) -> None:
    with peer(path), pytest.raises(InputError) as raised:
        ask_status(path)
    assert str(raised.value) == f"{path}: the agent closed the connection; try again"


def test_a_server_of_another_language_is_recognised_and_not_quoted(path: str) -> None:
    with peer(path, answer=b"\0\0\6\4\0\r\n"):
        complaint = mooring("status", "--socket", path).complaint
    assert complaint == f"mooring: {path}: is not served by an agent; name the agent's socket"


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("form", ["text", "wide"])
@pytest.mark.usefixtures("served")
def test_the_text_says_who_has_what_at_any_width(columns: int, form: str, path: str) -> None:
    answered = mooring("status", "--socket", path, "-o", form, columns=columns)
    assert (answered.code, answered.err) == (0, "")
    assert max(map(len, answered.out.splitlines())) <= columns
    for part in ("edge-7: ready", "containerd 2.1.9", "7: 1-4,9-10,12", "1200 replies", "Held back"):
        assert part in answered.out
    assert ("web" in answered.out) is (form == "wide"), "who shares the pool is in the wide form only"


def test_the_exit_code_says_whether_the_agent_is_ready(served: Published, path: str) -> None:
    assert mooring("status", "--socket", path, "-o", "json").code == 0
    served.publish(lost())
    answered = mooring("status", "--socket", path)
    assert answered.code == 1
    assert "not ready" in answered.out
    assert "the runtime is not connected" in answered.out
    assert "The files as they are now are not in force: agent.yaml: nothing in it" in answered.out
    served.publish(stray())
    answered = mooring("status", "--socket", path, "-o", "wide")
    assert answered.code == 1
    assert "overlaps on 1-3" in answered.out


def test_the_json_form_is_the_document_itself(served: Published, path: str, tmp_path: Path) -> None:
    document = mooring("status", "--socket", path, "-o", "json").document
    assert document == to_builtins(status_document(served.snapshot(), COUNTS))
    file = tmp_path / "status.json"
    assert mooring("status", "--socket", path, "-o", "json", "--to", file).out == ""
    assert json.loads(file.read_text(encoding="utf-8"))["kind"] == "AgentStatus"


@pytest.mark.parametrize("verb", [("status",), ("show", "--live", "--once"), ("show", "--live")])
def test_without_an_agent_one_line_says_so(verb: tuple[str, ...], path: str) -> None:
    nobody = mooring(*verb, "--socket", path)
    assert (nobody.code, nobody.out) == (2, "")
    remedy = "start mooring agent, or name its socket with --socket"
    assert nobody.complaint == f"mooring: {path}: no agent listens there; {remedy}"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    assert mooring(*verb, "--socket", path).complaint == nobody.complaint


@pytest.mark.parametrize("body", [b"", b"[]", b'{"kind": "Plan"}', b"\xff"])
def test_something_else_behind_the_socket_is_recognised(body: bytes, path: str) -> None:
    server = serve_unix(path, {"/status": lambda: Page(body), "/machine": lambda: Page(body)})
    try:
        assert "is not served by an agent" in mooring("status", "--socket", path).complaint
        assert mooring("show", "--live", "--once", "--socket", path).code == 2
    finally:
        server.close()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_live_picture_is_that_of_the_status(name: str, served: Published, path: str) -> None:
    snapshot = SNAPSHOTS[name]()
    served.publish(snapshot)
    answered = mooring("show", "--live", "--once", "--socket", path, columns=90)
    machine = load_machine(MACHINE)
    expected = terminal_text(status_view(machine, status_document(snapshot, COUNTS)), 90)
    assert answered.out == expected
    assert answered.code == (1 if name in ("stray", "lost") else 0)
    assert mooring("show", "--live", "--socket", path, columns=90).out == expected, "a pipe gets one picture"


@pytest.mark.usefixtures("served")
def test_the_live_picture_can_be_kept_as_svg(path: str, tmp_path: Path) -> None:
    file = tmp_path / "node.svg"
    answered = mooring("show", "--live", "--once", "--socket", path, "-o", "svg", "--to", file)
    assert (answered.code, answered.err) == (0, "")
    assert "apps/cache/side" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ("--live", "--machine", MACHINE),
        ("--live", "-f", "pods.yaml"),
        ("--live", "-o", "html"),
        ("--live", "-o", "svg"),
        ("--live", "--to", "picture.txt"),
        ("--once",),
        ("--socket", "/run/mooring/status.sock"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...]) -> None:
    answered = mooring("show", *words)
    assert answered.code == 2
    assert answered.complaint.endswith("see mooring show --help")


def test_a_status_of_another_version_is_refused_by_the_picture() -> None:
    document = to_builtins(status_document(snapshot_of(busy()), COUNTS))
    others: dict[str, Any] = {"cpus": {}, "pods": [{}], "held": [{}], "numaNodes": [{"memory": {"memory": {}}}]}
    for member, value in others.items():
        broken = {**document, member: value}
        with pytest.raises(InputError, match="the status lacks what a picture needs"):
            read_status(broken)


def test_a_status_of_a_newer_agent_is_read_as_far_as_this_version_knows_it() -> None:
    known = status_document(snapshot_of(busy()), COUNTS)
    document = to_builtins(known)
    pods = [{**pod, "containers": [{**one, "newer": [1]} for one in pod["containers"]]} for pod in document["pods"]]
    assert any(pod["containers"] for pod in pods)
    assert read_status({**document, "newer": {}, "pods": pods}) == known


@pytest.mark.long
def test_a_terminal_shows_changes_and_outlives_the_agent(path: str) -> None:
    """A pod comes, the agent goes and comes back, and Ctrl-C ends it with the verdict."""
    published = Published(snapshot_of(started()))
    server = serve_unix(path, status_pages(published, lambda: COUNTS))
    ours, theirs = pty.openpty()
    code = (
        "import sys; import mooring.answers.show as live; live.PERIOD = 0.05; "
        "from mooring.command.main import run; sys.exit(run(sys.argv[1:]))"
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "50"}
    shown = subprocess.Popen(
        [sys.executable, "-c", code, "show", "--live", "--socket", path],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        _until(ours, "NUMA 1")
        published.publish(snapshot_of(busy()))
        _until(ours, "apps/cache/side")
        server.close()
        _until(ours, "Stale: no agent listens there; retrying")
        published.publish(snapshot_of(partitioned()))
        server = serve_unix(path, status_pages(published, lambda: COUNTS))
        _until(ours, "apps/part/c1")
        shown.send_signal(signal.SIGINT)
        _drained(ours)
        assert shown.wait(60) == 0
    finally:
        shown.kill()
        shown.wait()
        os.close(ours)
        server.close()


def _until(terminal: int, wanted: str) -> None:
    """Read what a terminal shows until it shows something."""
    text = ""
    for _ in range(500):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, text[-2000:]
        text = text[-20_000:] + os.read(terminal, 65536).decode(errors="replace")
        if wanted in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text):
            return
    pytest.fail(f"{wanted!r} was never shown, but {text[-2000:]!r}")


def _drained(terminal: int) -> None:
    """Read what a terminal still shows, until the other side closes it."""
    for _ in range(500):
        try:
            if not select.select([terminal], [], [], 60)[0] or not os.read(terminal, 65536):
                return
        except OSError:
            return
    pytest.fail("it goes on showing after Ctrl-C")


@pytest.mark.usefixtures("served")
def test_asking_needs_none_of_the_agents_own_packages(path: str) -> None:
    missing = ("google", "google.protobuf", "grpc", "lightkube", "prometheus_client", "h11")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r})); "
        "from mooring.command.main import run; sys.exit(run(sys.argv[1:]))"
    )
    for words in (("status", "-o", "wide"), ("show", "--live", "--once")):
        asked = subprocess.run(
            [sys.executable, "-c", code, *words, "--socket", path], capture_output=True, timeout=60, check=False
        )
        assert (asked.returncode, asked.stderr) == (0, b"")


# What ``mooring status`` and ``mooring show --live`` say of containers that are resized.


CONFIG = replace(
    STATIC,
    cpu_manager_policy_options={"scale-delay-time": "5s"},
    feature_gates={"CPUManagerPolicyAlphaOptions": True, "InPlacePodVerticalScalingExclusiveCPUs": True},
)
EXTENDED = MooringConfig(frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY}), FIXED_BY_DEFAULT)
START = Moment(100 * SECOND, "boot")


def resizing() -> Told:
    """Return an agent with a container that gives back two CPUs, one that grew, and one that asked for too little."""
    kubelet = start_kubelet(load_machine(MACHINE).info, CONFIG, EXTENDED, StateTexts())
    assert isinstance(kubelet, Kubelet)
    told = Told(kubelet.at(START), Metrics.initial(kubelet.settings, kubelet.node.cpu))
    told.admit(pod("db", 2), pod("web", 2), pod("cache", 2))
    for name, sizes in (("db", (4, 2)), ("web", (3,)), ("cache", (1,))):
        for cpus in sizes:
            told.kubelet, _ = told.kubelet.resize(pod(name, cpus))
    return told


def containers(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["containers"][0] for each in document["pods"]}


def test_the_document_tells_first_pending_and_refused() -> None:
    document = to_builtins(status_document(snapshot_of(resizing()), COUNTS, START.plus(2 * SECOND)))
    assert complaints("AgentStatus", document) == []
    found = containers(document)
    assert found["db"]["pending"] == {"cpus": found["db"]["baseline"], "releases": "4,12", "secondsLeft": 3.0}
    assert (found["web"]["baseline"], "pending" in found["web"]) == ("2,10", False)
    assert found["cache"]["resize"]["reason"] == "Infeasible"
    assert "prohibitedCPUAllocation Error" in found["cache"]["resize"]["message"]


def test_time_that_is_over_or_of_another_boot_is_none_left() -> None:
    for now in (START.plus(9 * SECOND), Moment(START.since_boot, "another")):
        document = to_builtins(status_document(snapshot_of(resizing()), COUNTS, now))
        assert containers(document)["db"]["pending"]["secondsLeft"] == 0


def test_status_says_it_beside_each_container_and_the_live_picture_below(served: Published, path: str) -> None:
    served.publish(snapshot_of(resizing()))
    for form in ("text", "wide"):
        text = " ".join(mooring("status", "--socket", path, "-o", form, columns=200).out.split())
        assert "baseline 1,9; 4,12 released now" in text
        assert "baseline 2,10" in text
        assert "resize infeasible" in text
    text = " ".join(mooring("show", "--live", "--once", "--socket", path, columns=120).out.split())
    assert "apps/db/c0 has CPUs 1,4,9,12 (baseline 1,9); 4,12 of them are released now." in text
