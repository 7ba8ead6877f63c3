"""``mooring heal``: what it writes before a kubelet starts, what it never touches, what it notes and sends."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, Answered, mooring

UIDS = {f"00000000-0000-0000-0000-00000000000{number}": cpus for number, cpus in enumerate(("2-3", "4-5", "6-7"))}
STATE = ("cpu_manager_state", "memory_manager_state")


class Computer:
    """The example node, whose kubelet has stopped while three containers with CPUs of their own run on."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.kubelet = self.root / "var/lib/kubelet"
        self.record = folder / "noted" / "heal.json"
        for name in ("sys", "proc"):
            shutil.copytree(EXAMPLES / "node" / name, self.root / name)
        shutil.rmtree(self.root / "proc/90")
        self.kubelet.mkdir(parents=True)
        shutil.copy(EXAMPLES / "node/kubelet/config.json", self.kubelet / "config.yaml")
        for name in STATE:
            shutil.copy(EXAMPLES / "node/kubelet" / name, self.kubelet)
        (self.root / "var/log/containers").mkdir(parents=True)
        for number, (uid, cpus) in enumerate(UIDS.items()):
            self.run(uid, f"{number + 1:064x}", cpus)

    def run(self, uid: str, id_: str, cpus: str, quota: str = "200000 100000") -> None:
        group = f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{id_}.scope"
        folder = self.root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True)
        files = {"cpuset.cpus.effective": cpus, "cpuset.mems.effective": "0", "cpu.max": quota, "cgroup.procs": "77"}
        for name, text in {**files, "memory.max": "max"}.items():
            (folder / name).write_text(f"{text}\n")
        (self.root / f"var/log/containers/pod_default_app-{id_}.log").touch()

    def heal(self, *more: str | Path) -> Answered:
        node = ("--state", self.kubelet, "--machine", self.root, "--kubelet-version", "1.37", "--record", self.record)
        return mooring("heal", *node, *more)

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.kubelet.iterdir()}

    def tear(self, name: str = STATE[0], at: int = 40) -> None:
        text = (self.kubelet / name).read_bytes()
        (self.kubelet / name).write_bytes(text[:at])


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def test_a_sound_state_is_not_touched(computer: Computer) -> None:
    before = computer.files
    answer = computer.heal()
    assert (answer.code, answer.err) == (0, "")
    assert "kubelet v1.37.2 starts on these files; nothing is written" in " ".join(answer.out.split())
    assert computer.files == before
    assert not computer.record.exists()


@pytest.mark.parametrize("at", [0, 40, 200])
def test_a_torn_file_gets_back_what_running_containers_have(computer: Computer, at: int) -> None:
    before = computer.files
    computer.tear(at=at)
    torn = computer.files[STATE[0]]
    answer = computer.heal()
    assert answer.code == 0, answer.out
    assert computer.files[STATE[0]] == before[STATE[0]]
    assert computer.files[f"{STATE[0]}.bak-1"] == torn
    assert computer.heal().code == 0
    assert set(computer.files) == {*before, f"{STATE[0]}.bak-1"}


def test_a_missing_file_is_written_if_containers_run_and_else_left_to_the_kubelet(computer: Computer) -> None:
    before = computer.files
    (computer.kubelet / STATE[0]).unlink()
    assert computer.heal().code == 0
    assert computer.files == before
    shutil.rmtree(computer.root / "sys/fs/cgroup/kubepods.slice")
    (computer.kubelet / STATE[0]).unlink()
    assert computer.heal().code == 0
    assert STATE[0] not in computer.files


def test_a_container_of_the_shared_pool_gets_no_entry(computer: Computer) -> None:
    before = computer.files
    computer.run("00000000-0000-0000-0000-000000000009", f"{9:064x}", "8-15", quota="50000 100000")
    computer.tear()
    assert computer.heal().code == 0
    assert computer.files[STATE[0]] == before[STATE[0]]


def test_damaged_files_of_pods_are_moved_away(computer: Computer) -> None:
    (computer.kubelet / "allocated_pods_state").write_text('{"data":"{}","checksum":1}')
    answer = computer.heal()
    assert answer.code == 0, answer.out
    assert "allocated_pods_state" not in computer.files
    assert computer.files["allocated_pods_state.bak-1"] == b'{"data":"{}","checksum":1}'


def test_nothing_is_written_beside_a_kubelet(computer: Computer) -> None:
    computer.tear()
    before = computer.files
    process = computer.root / "proc/812"
    process.mkdir()
    (process / "comm").write_text("kubelet\n")
    (process / "cmdline").write_text("/usr/bin/kubelet\0--config=x\0")
    answer = computer.heal()
    assert answer.code == 2
    assert answer.complaint == "mooring: mooring heal: a kubelet runs (process 812); stop it first"
    assert computer.files == before


def test_classes_of_repair_can_be_left(computer: Computer) -> None:
    computer.tear()
    before = computer.files
    answer = computer.heal("--leave", "damage")
    assert answer.code == 1
    assert answer.err == "nothing is written: --leave damage\n"
    assert computer.files == before
    assert computer.heal("--leave", "machine").code == 0


def test_a_dry_run_prints_what_the_doctor_prints(computer: Computer) -> None:
    computer.tear()
    shutil.rmtree(computer.root / "sys/fs/cgroup/kubepods.slice")
    before = computer.files
    answer = computer.heal("--dry-run")
    said = mooring(
        "doctor", "--state", computer.kubelet, "--machine", computer.root, "--config", computer.kubelet / "config.yaml"
    )
    assert (answer.code, answer.out) == (said.code, said.out) == (1, said.out)
    assert computer.files == before


def test_repairs_are_counted_and_noted(computer: Computer) -> None:
    for _ in range(2):
        computer.tear()
        assert computer.heal().code == 0
    assert (
        'mooring_heal_repairs_total{class="damage"} 2' in computer.record.with_suffix(".prom").read_text().splitlines()
    )
    assert len(json.loads(computer.record.read_text())["events"]) == 2


def test_a_torn_record_does_not_keep_a_repair_from_being_noted(computer: Computer) -> None:
    computer.record.parent.mkdir()
    computer.record.write_text('{"counts": {"dam')
    computer.tear()
    assert computer.heal().code == 0
    assert len(json.loads(computer.record.read_text())["events"]) == 1


def test_as_json_a_sound_state_is_not_touched_either(computer: Computer) -> None:
    before = computer.files
    assert computer.heal("-o", "json").document["starts"] is True
    assert computer.files == before
    assert not computer.record.exists()


@contextmanager
def api_server(folder: Path, status: int) -> Iterator[tuple[Path, list[Any]]]:
    """Serve an API server that takes events, or none; yield a kubeconfig, and what came."""
    came: list[Any] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        named = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        config = {"clusters": [named], "contexts": [context], "users": [{"name": "x", "user": {}}]}
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps({**config, "current-context": "x", "kind": "Config", "apiVersion": "v1"}))
        try:
            yield kubeconfig, came
        finally:
            server.shutdown()
            thread.join()


def test_what_is_noted_is_sent_once_as_events_of_the_node(computer: Computer, tmp_path: Path) -> None:
    computer.tear()
    assert computer.heal().code == 0
    with api_server(tmp_path, 503) as (kubeconfig, _):
        refused = computer.heal("--report", kubeconfig, "--node-name", "node-7")
        assert refused.code == 2
    with api_server(tmp_path, 201) as (kubeconfig, came):
        assert computer.heal("--report", kubeconfig, "--node-name", "node-7").code == 0
        assert computer.heal("--report", kubeconfig, "--node-name", "node-7").code == 0
    ((path, event),) = came
    assert path == "/api/v1/namespaces/default/events"
    assert (event["reason"], event["involvedObject"]["name"]) == ("StateHealed", "node-7")
    assert "cpu_manager_state (replaced); MOOR-301; lost: nothing" in event["message"]


@pytest.mark.parametrize("text", ["[]", "{", '{"counts": 1}'])
def test_a_damaged_record_is_named(computer: Computer, text: str) -> None:
    computer.record.parent.mkdir()
    computer.record.write_text(text)
    answer = computer.heal("--report", "kubeconfig")
    assert (answer.code, "is no record of mooring heal" in answer.err) == (2, True)


def test_a_kubelet_that_does_not_tell_its_release_is_named(computer: Computer) -> None:
    answer = mooring("heal", "--state", computer.kubelet, "--machine", computer.root, "--kubelet", "/does/not/exist")
    assert answer.code == 2
    assert "/does/not/exist: --kubelet: does not tell its release" in answer.complaint
