"""Real kubelets v1.34.4 and v1.37.1 refuse damaged and drifted states, and start on what ``mooring heal`` writes."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import CASES, OLDER_VERSION, Case, Wants, pod_of
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.placements import containers, given

from mooring.engine.core.cpuset import CPUSet

GROUPS = "sys/fs/cgroup"
STARTED = "SyncLoop ADD"
"""A kubelet takes pods when its managers have started."""


def cut(at: float) -> Callable[[str], str]:
    return lambda text: text[: int(len(text) * at)]


def _edited(text: str, **members: object) -> str:
    document = json.loads(text)
    changed = {name: value for name, value in members.items() if name in document}
    return json.dumps({**document, **changed}, separators=(",", ":"))


TEXTS: Mapping[str, Callable[[str], str | None]] = {
    **{f"torn at {at}": cut(at) for at in (0.1, 0.5, 0.9, 0.99)},
    "empty": lambda _text: "",
    "zeros": lambda text: "\0" * len(text),
    "no object": lambda _text: "[]",
    "checksums": lambda text: _edited(text, checksum=1, dataChecksum=1),
    "a letter": lambda text: text.replace("tatic", "tatoc"),
    "a type": lambda text: _edited(text, policyName=7),
}
"""What disks and people do to a file."""
DAMAGES: Mapping[str, tuple[str, Callable[[str], str | None]]] = {
    f"{manager} {name}": (manager, change) for manager in ("cpu", "memory") for name, change in TEXTS.items()
}
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "other CPUs reserved": {"reservedSystemCPUs": "0-1,128-129"},
    "strict": {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}},
    "more memory reserved": {
        "kubeReserved": {"memory": "2Gi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}],
    },
    "CPU policy none": {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none"},
    "memory policy None": {"memoryManagerPolicy": "None", "reservedMemory": []},
}
"""What people change."""


def write_groups(tree: Path, runtime: Runtime) -> None:
    """Write what a kernel shows of the containers that run, into the files of the machine that is played."""
    logs = tree / "var/log/containers"
    logs.mkdir(parents=True, exist_ok=True)
    (tree / GROUPS).mkdir(parents=True, exist_ok=True)
    (tree / GROUPS / "cgroup.controllers").write_text("cpuset cpu memory\n")
    placed = given(runtime)
    for one in containers(runtime):
        cpus, nodes = placed.get(one.place, ("", ""))
        if one.state != "RUNNING" or not cpus:
            continue
        group = tree / GROUPS / f"kubepods/pod{one.uid}/{one.id}"
        group.mkdir(parents=True, exist_ok=True)
        texts = {
            "cpuset.cpus.effective": cpus,
            "cpuset.mems.effective": nodes or "0",
            "cpu.max": f"{len(CPUSet.parse(cpus)) * 100000} 100000",
            "memory.max": str(96 * 2**20),
            "cgroup.procs": "1",
        }
        for name, text in texts.items():
            (group / name).write_text(f"{text}\n")
        (logs / f"{one.place.replace('/', '_default_')}-{one.id}.log").touch()


def entries(kubelet: Kubelet) -> dict[str, Any]:
    """Return what the CPU manager's file gives to containers."""
    found: dict[str, Any] = json.loads(kubelet.state("cpu")).get("entries", {})
    return found


@pytest.mark.parametrize("version", ["", OLDER_VERSION], ids=["1.37", "1.34"])
def test_each_kubelet_starts_on_what_was_written_and_running_containers_keep_their_cpus(
    api: APIServer, kubelet_of: KubeletOf, playing: Playing, played: Played, version: str, tmp_path: Path
) -> None:
    program, case = kubelet_of(version), replace(CASES[0], name=f"heal-{version or 'newest'}")
    tree = tmp_path / "tree"
    shutil.copytree(played(case), tree, symlinks=True)
    with playing() as runtime:
        start = partial(_kubelet, runtime, program, case, tree, api)
        with start({}) as kubelet:
            until(lambda: api.has_node(case.name), "the node is registered")
            own = [pod_of(f"own-{number}", Wants("app", "6", "96Mi")) for number in range(3)]
            arrive(api, runtime, case.name, [*own, pod_of("shared", Wants("app"))], kubelet.refused)
        had = entries(kubelet)
        sound = {manager: kubelet.state(manager) for manager in ("cpu", "memory")}
        assert len(had) == 3
        write_groups(tree, runtime)
        seen = []
        for name, (manager, change) in DAMAGES.items():
            text = change(sound[manager])
            (kubelet.root / f"{manager}_manager_state").write_text(text or "", encoding="utf-8")
            seen += [name] if _healed(name, start, kubelet, tree, version, {}) else []
            assert entries(kubelet) == had, name
        for name, changed in CONFIGURATIONS.items():
            seen += [name] if _healed(name, start, kubelet, tree, version, changed) else []
            reserved = CPUSet.parse(changed.get("reservedSystemCPUs", "0,128"))
            kept = {uid: held for uid, held in had.items() if not CPUSet.parse(held["app"]) & reserved}
            assert entries(kubelet) == ({} if changed.get("cpuManagerPolicy") == "none" else kept), name
            for manager, text in sound.items():
                (kubelet.root / f"{manager}_manager_state").write_text(text, encoding="utf-8")
        print(f"healed for kubelet {version or 'v1.37.1'}: {', '.join(seen)}")
        assert len(seen) >= 20


@contextlib.contextmanager
def _kubelet(
    runtime: Runtime, program: Path, case: Case, tree: Path, api: APIServer, changed: Mapping[str, Any]
) -> Iterator[Kubelet]:
    policies = {**case.policies, **case.reservations, **changed}
    with kubelet_on(runtime, program, case.name, policies, machine=tree, kubeconfig=api.kubeconfig) as kubelet:
        yield kubelet


def _healed(
    name: str, start: Callable[..., Any], kubelet: Kubelet, tree: Path, version: str, changed: Mapping[str, Any]
) -> bool:
    """See whether the kubelet starts, heal, and see that it does then."""
    failure = "Failed to start ContainerManager"
    with contextlib.suppress(AssertionError), start(changed) as broken:
        until(lambda: failure in broken.log or STARTED in broken.log, "it starts or does not")
    is_refused = failure in kubelet.log
    before = {path.name: path.read_bytes() for path in kubelet.root.glob("*_state")}
    words = ("heal", "--state", kubelet.root, "--config", kubelet.configuration, "--machine", tree)
    answered = mooring(*words, "--record", tree / "heal.json", "--kubelet-version", version or "v1.37.1")
    assert answered.code == 0, (name, answered.out, answered.err)
    if not is_refused:
        assert {path.name: path.read_bytes() for path in kubelet.root.glob("*_state")} == before, name
        return False
    with start(changed) as healed:
        until(lambda: failure in healed.log or STARTED in healed.log, f"{name}: it starts")
        assert failure not in healed.log, f"{name}: {answered.out}"
    return True
