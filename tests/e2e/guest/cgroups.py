"""A scenario: Mooring's hands on control groups, and its commands, on a real kernel with 64 CPUs on 8 NUMA nodes.

Without containers: groups are made as a runtime makes them. See :mod:`tests.e2e.guest.runner`.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests import patience
from tests.agent.small_node import cpuset_write, nodes
from tests.e2e.guest.process_tasks import allowed, tasks_of, tasks_outside

from mooring.agent.cgroups.cpuset import CPUS, in_effect
from mooring.agent.cgroups.files import CGroupTrouble, GroupError, find_layout, read, write
from mooring.agent.cgroups.protocol import KernelCGroups, Quota, read_quota
from mooring.agent.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet

CGROUPS = "/sys/fs/cgroup"
UID = "0a1b2c3d-0000-1111-2222-333344445555"
BURSTABLE = "kubepods/burstable"
POD = f"{BURSTABLE}/pod{UID}"
MANY = 100
"""A write takes some 30 ms here, because the emulated kernel builds its scheduling domains anew."""
GO = "/tmp/go"  # noqa: S108 - a machine of our own
until = partial(patience.until, seconds=30, pause=0.05)
TOUCHED_BYTES = 16 * 2**20
PIN = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0,32"
"""
EXCLUSIVE_POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: web, uid: {UID}}}
spec:
  containers:
  - name: web
    resources: {{requests: {{cpu: 4, memory: 64Mi}}, limits: {{cpu: 4, memory: 64Mi}}}}
"""


def step_the_kernel_is_found_as_it_is() -> str:
    layout = find_layout()
    assert layout.cpuset.version == 2, layout
    assert layout.cpuset == layout.cpu or (layout.cpu and layout.cpu.mount == layout.cpuset.mount), layout
    online = read("/sys/devices/system/cpu/online")
    nodes = read("/sys/devices/system/node/online")
    assert (online, nodes) == ("0-63", "0-7"), (online, nodes)
    return f"Linux {os.uname().release}, CPUs {online}, NUMA nodes {nodes}"


def step_a_container_gets_its_cpus_and_nodes() -> str:
    with _container("c3") as pid:
        result = _cgroups().write_cpuset(_wanted("c3", "16-19", "2"))
        assert result.is_right, result
        assert result.wrote, result
        seen = allowed("", pid)
        assert seen is not None
        assert (str(seen.cpus), list_text(seen.mems)) == ("16-19", "2"), seen
        assert not _cgroups().write_cpuset(_wanted("c3", "16-19", "2")).wrote
        tasks = tasks_of("", f"{CGROUPS}/{POD}/c3")
        assert [task.pid for task in tasks] == [pid], tasks
        assert not tasks_outside(tasks, CPUSet.parse("16-19"), nodes("2"))
        return f"Cpus_allowed_list {seen.cpus}, Mems_allowed_list {list_text(seen.mems)}"


def step_a_running_container_moves_at_once() -> str:
    with _container("c3") as pid:
        told = []
        for cpus, mems in (("0-7", "0"), ("24-27,56", "3,7"), ("8-63", "0-7")):
            assert _cgroups().write_cpuset(_wanted("c3", cpus, mems)).is_right
            seen = allowed("", pid)
            assert seen is not None
            assert (str(seen.cpus), list_text(seen.mems)) == (cpus, mems), seen
            told.append(cpus)
        return " then ".join(told)


def step_a_process_with_an_affinity_of_its_own_moves_too() -> str:
    with _container("c3") as pid:
        os.sched_setaffinity(pid, {16})
        assert _cgroups().write_cpuset(_wanted("c3", "24-27", "3")).is_right
        after = allowed("", pid)
        assert after is not None
        assert after.cpus <= CPUSet.parse("24-27"), after
        return f"from 16 to {after.cpus}"


def step_touched_memory_lies_on_the_container_s_node_and_follows_it() -> str:
    os.mkfifo(GO)
    with _container("c3", _toucher()) as pid:
        assert _cgroups().write_cpuset(_wanted("c3", "40-43", "5")).is_right
        Path(GO).write_text("")
        until(lambda: _pages(pid), "the memory is touched")
        first = _pages(pid)
        assert set(first) == {5}, first
        assert first[5] >= TOUCHED_BYTES // mmap.PAGESIZE, first
        assert _cgroups().write_cpuset(_wanted("c3", "8-11", "1")).is_right
        until(lambda: set(_pages(pid)) == {1}, "the pages have moved")
        return f"{first[5]} pages on N5, {_pages(pid)[1]} on N1 after the move"


def step_a_cpu_that_goes_offline_is_told_apart_from_a_wrong_cpuset() -> str:
    with _container("c3"):
        wanted = _wanted("c3", "24-27", "")
        assert _cgroups().write_cpuset(wanted).is_right
        switch = Path("/sys/devices/system/cpu/cpu25/online")
        switch.write_text("0\n")
        try:
            (found,) = _cgroups().deviations([wanted])
            assert found.after is not None
            assert str(found.after.cpus) == "24,26-27", found
            assert found.trouble is CGroupTrouble.NOT_TAKEN, found
            assert read(f"{CGROUPS}/{POD}/c3/{CPUS}") == "24-27"
        finally:
            switch.write_text("1\n")
        assert _cgroups().deviations([wanted]) == ()
        return f"{found.after.cpus} while CPU 25 was offline, 24-27 after"


def step_a_wrong_cpuset_is_found_and_repaired() -> str:
    with _container("c3"), _container("c4"):
        both = [_wanted("c3", "0-3", "0"), _wanted("c4", "4-7", "0")]
        for one in both:
            assert _cgroups().write_cpuset(one).is_right
        write(f"{CGROUPS}/{POD}/c4/{CPUS}", "2-7")
        (found,) = _cgroups().deviations(both)
        assert found.wanted == both[1], found
        assert found.after is not None
        assert str(found.after.cpus) == "2-7", found
        assert found.trouble is None
        assert _cgroups().write_cpuset(both[1]).is_right
        assert _cgroups().deviations(both) == ()
        return "c4 on 2-3 of c3 was found"


def step_a_pod_s_group_that_is_too_narrow_is_widened_and_none_above() -> str:
    with _container("c3") as pid:
        write(f"{CGROUPS}/{POD}/{CPUS}", "0-7")
        wanted = _wanted("c3", "8-11", "")
        write(f"{CGROUPS}/{POD}/c3/{CPUS}", "8-11")
        (found,) = _cgroups().deviations([wanted])
        assert found.trouble is None, found
        assert _cgroups().write_cpuset(wanted).is_right
        seen = allowed("", pid)
        assert seen is not None
        assert str(seen.cpus) == "8-11", seen
        pod, above = (read(f"{CGROUPS}/{path}/{CPUS}") for path in (POD, BURSTABLE))
        assert (pod, above) == ("0-11", ""), (pod, above)
        return f"the pod's group has {pod} now"


def step_the_kernel_s_no_is_told() -> str:
    with _container("c3"):
        told = {}
        for cpus, mems in (("4096", ""), ("", "9"), ("", "500")):
            result = _cgroups().write_cpuset(_wanted("c3", cpus, mems))
            assert not result.is_right, result
            told[f"cpus={cpus} mems={mems}"] = result.trouble.value if result.trouble else "taken, not in effect"
        gone = _cgroups().write_cpuset(_wanted("c9", "0", ""))
        assert gone.trouble is CGroupTrouble.GONE, gone
        (Path(CGROUPS) / "bare/c1").mkdir(parents=True)
        bare = _cgroups().write_cpuset(cpuset_write("c1", 0, "/bare/c1", "0", ""))
        assert bare.trouble is CGroupTrouble.NO_CONTROLLER, bare
        return json.dumps(told)


def step_cpus_taken_by_a_partition_are_a_deviation() -> str:
    with _container("c3"):
        wanted = _wanted("c3", "60-63", "")
        assert _cgroups().write_cpuset(wanted).is_right
        taken = Path(CGROUPS) / "taken"
        taken.mkdir(exist_ok=True)
        write(f"{taken}/{CPUS}", "62-63")
        write(f"{taken}/cpuset.cpus.partition", "root")
        try:
            state = read(f"{taken}/cpuset.cpus.partition")
            assert state == "root", state
            (found,) = _cgroups().deviations([wanted])
            assert found.after is not None
            assert str(found.after.cpus) == "60-61", found
            assert found.trouble is CGroupTrouble.NOT_TAKEN, found
        finally:
            write(f"{taken}/cpuset.cpus.partition", "member")
            taken.rmdir()
        assert _cgroups().deviations([wanted]) == ()
        return "60-61 of 60-63 were left"


def step_quotas_are_lifted_from_container_sandbox_and_pod_and_come_back() -> str:
    with _container("c3") as pid, _container("sandbox"):
        lifts = [
            LiftQuota(QuotaOf.CONTAINER, UID, "c3", pid, f"/{POD}/c3"),
            LiftQuota(QuotaOf.SANDBOX, UID, "", pid, f"/{POD}/sandbox"),
            LiftQuota(QuotaOf.POD, UID, "", pid, f"/{POD}"),
        ]
        for lift in lifts:
            write(f"{CGROUPS}{lift.cgroup}/cpu.max", "150000 50000")
        assert [found for _, found in _cgroups().quotas(lifts)] == [Quota(150000, 50000)] * 3
        assert [_cgroups().lift_quota(lift) for lift in lifts] == [Quota(150000, 50000)] * 3
        assert _cgroups().quotas(lifts) == ()
        assert read(f"{CGROUPS}/{POD}/cpu.max") == "max 50000"
        assert _cgroups().restore_quota(lifts[2], Quota(150000, 50000)) is None
        cpu = find_layout().cpu
        assert cpu is not None
        assert read_quota(cpu, f"{CGROUPS}/{POD}") == Quota(150000, 50000)
        trouble = None
        try:
            _cgroups().lift_quota(LiftQuota(QuotaOf.POD, UID, "", pid, f"/{BURSTABLE}"))
        except GroupError as error:
            trouble = error.trouble
        assert trouble is CGroupTrouble.NOT_PERMITTED, trouble
        return "three lifted, one given back"


def step_names_of_the_systemd_driver_lead_to_the_group() -> str:
    pod = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    _groups(f"{pod}/cri-containerd-c5.scope")
    name = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:c5"
    result = _cgroups().write_cpuset(cpuset_write("c5", 0, name, "32-35", "4"))
    assert result.is_right, result
    assert read(f"{CGROUPS}/{pod}/cri-containerd-c5.scope/{CPUS}") == "32-35"
    _cgroups().lift_quota(LiftQuota(QuotaOf.POD, UID, "", 0, name.partition(":")[0]))
    return name


def step_a_hundred_containers_are_written_and_verified() -> str:
    wanted = []
    for number in range(MANY):
        _groups(f"{BURSTABLE}/podmany/c{number}")
        wanted.append(
            cpuset_write(f"c{number}", 0, f"/{BURSTABLE}/podmany/c{number}", f"{number % 64}", f"{number % 8}")
        )
    started = time.monotonic()
    results = [_cgroups().write_cpuset(one) for one in wanted]
    written = time.monotonic()
    assert all(result.is_right for result in results)
    assert _cgroups().deviations(wanted) == ()
    verified = time.monotonic()
    return f"{MANY} written in {written - started:.2f} s and verified in {verified - written:.2f} s, emulated"


def step_the_live_topology_equals_that_of_its_snapshot() -> str:
    archive = "/tmp/node.tar.gz"  # noqa: S108 - a machine of our own
    _mooring("collect", "--no-kubectl", "--to", archive)
    live, snapshot = (json.loads(_mooring("topology", *node, "-o", "json")) for node in ((), ("--node", archive)))
    assert live.pop("name") == "live"
    # The guest is called (none), which no node can be called: the archive has no name but its file's.
    assert snapshot.pop("name") == "node"
    assert live == snapshot
    assert len(live["cpus"]) == 64
    assert {node for cpu in live["cpus"] for node in cpu["numa"]} == set(range(8))
    return f"{len(json.dumps(live))} bytes of JSON are the same"


def step_the_linter_runs_and_names_who_may_disturb() -> str:
    configuration, pods = Path("/tmp/kubelet.yaml"), Path("/tmp/pods.yaml")  # noqa: S108 - a machine of our own
    configuration.write_text(PIN)
    pods.write_text(EXCLUSIVE_POD)
    text = _mooring("doctor", "--lint", "--config", str(configuration), "--active", str(pods), code=1)
    assert "default/web/web" in text, text
    assert "MOOR-60" in text, text
    return text.splitlines()[0]


def _cgroups() -> KernelCGroups:
    return KernelCGroups(find_layout())


def _wanted(container: str, cpus: str, mems: str) -> WriteCPUSet:
    return cpuset_write(container, 0, f"/{POD}/{container}", cpus, mems)


def _groups(path: str) -> Path:
    """Make a group with the controllers enabled in all groups above it."""
    folder = Path(CGROUPS)
    for part in path.split("/"):
        write(f"{folder}/cgroup.subtree_control", "+cpuset +cpu +memory")
        folder /= part
        folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def _container(name: str, code: str = "import signal; signal.pause()") -> Iterator[int]:
    """Make a container's group with a process in it; at the end nothing of it is left."""
    folder = _groups(f"{POD}/{name}")
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        write(f"{folder}/cgroup.procs", str(process.pid))
        assert in_effect(find_layout().cpuset, str(folder)).cpus
        yield process.pid
    finally:
        process.kill()
        process.wait()
        until(lambda: not read(f"{folder}/cgroup.procs"), "the group is empty")
        folder.rmdir()
        write(f"{folder.parent}/{CPUS}", "")


def _toucher() -> str:
    """Return a program that touches memory of its own when the pipe :data:`GO` was opened and closed."""
    return (
        "import mmap, signal\n"
        f"open({GO!r}).read()\n"
        f"memory = mmap.mmap(-1, {TOUCHED_BYTES}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        f"for offset in range(0, {TOUCHED_BYTES}, {mmap.PAGESIZE}): memory[offset] = 1\n"
        "signal.pause()\n"
    )


def _pages(pid: int) -> dict[int, int]:
    """Return the pages of the largest mapping of a process by NUMA node, once all of it is touched."""
    largest: dict[int, int] = {}
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        if " anon=" in line and " file=" not in line:
            pages = {int(node): int(count) for node, count in re.findall(r" N(\d+)=(\d+)", line)}
            if sum(pages.values()) > sum(largest.values()):
                largest = pages
    return largest if sum(largest.values()) >= TOUCHED_BYTES // mmap.PAGESIZE else {}


def _mooring(*arguments: str, code: int = 0) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "mooring", *arguments], capture_output=True, text=True, check=False
    )
    assert finished.returncode == code, f"exit code {finished.returncode}: {finished.stderr[-1500:]}"
    assert "Traceback" not in finished.stderr, finished.stderr[-1500:]
    return finished.stdout
