"""``--offline`` of the verbs about a node, and the replay of scenarios in which CPUs come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, mooring
from tests.cli.given import ALIGNED, SIXTEEN_CORES, STATIC, given, pod, written
from tests.documents.validation import complaints

MACHINE = "sockets=2 cores=16 threads=1"
EXTENSION = {"apiVersion": "mooring/v1alpha1", "kind": "MooringConfiguration", "extensions": ["cpu-hotplug"]}


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[str, ...]:
    """Return the options of a node on which db and cache run."""
    running = written(tmp_path / "running.yaml", pod("db", 3, uid="db"), pod("cache", 3, uid="cache"))
    return (*given(tmp_path, machine=MACHINE, kubelet=ALIGNED, more=(EXTENSION,)), "--active", str(running))


@pytest.fixture
def new(tmp_path: Path) -> tuple[str, ...]:
    return "-f", str(written(tmp_path / "new.yaml", pod("web", 8, uid="web")))


@pytest.fixture
def stock(tmp_path: Path, new: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of a node without the extension, and of a new pod."""
    return (*new, *given(tmp_path, machine=MACHINE, kubelet=ALIGNED))


def test_a_plan_has_stand_ins_findings_and_a_schema(inputs: tuple[str, ...], new: tuple[str, ...]) -> None:
    result = mooring("plan", *new, *inputs, "--offline", "2,5,12", "-o", "json", code=1)
    answer = result.document
    assert complaints(answer["kind"], answer) == []
    assert {one["code"] for one in answer["findings"]} >= {"MOOR-521", "MOOR-522"}
    cache = next(pod for pod in answer["pods"] if pod["name"] == "cache")
    assert cache["containers"]["app"]["cpus"] == "4,6-7"
    assert (answer["offline"], answer["usablePool"]) == ("2,5,12", "0,8-11,13-15")
    assert answer["broken"] == {"db": {"app": {"cpus": "1-3", "lost": "2"}}}
    assert answer["displaced"] == {"cache": {"app": {"cpus": "4,6-7", "original": "4-6"}}}


def test_whatif_and_capacity_ask_a_node_with_offline_cpus(inputs: tuple[str, ...], new: tuple[str, ...]) -> None:
    gone = mooring("whatif", *new, *inputs, "--offline", "2,5,12", "--remove", "cache", "-o", "json", code=1)
    assert complaints(gone.document["kind"], gone.document) == []
    counted = mooring("capacity", "--shape", "cpu=4,memory=1Gi", *inputs, "--offline", "2,5,12-14", "-o", "json")
    assert (counted.code, counted.document["count"]) == (0, 1)
    assert counted.document["next"]["why"].endswith("CPUs 5,12-14 are offline.")


@pytest.mark.parametrize("form", ["terminal", "svg", "html"])
def test_a_picture_tells_broken_from_offline(inputs: tuple[str, ...], form: str) -> None:
    result = mooring("show", *inputs, "--offline", "2,5,12", "-o", form, code=0)
    assert "broken" in result.out
    assert "default/db/app has CPUs 1-3, of which CPU 2 is offline" in " ".join(result.out.split())


@pytest.mark.parametrize("verb", ["whatif", "explain"])
def test_a_proposed_change_works_on_the_cpus_that_are_left(verb: str, tmp_path: Path, new: tuple[str, ...]) -> None:
    machine = given(tmp_path, machine="sockets=1 cores=8 threads=1", kubelet=ALIGNED, more=(EXTENSION,))
    node = (*machine, "--offline", "1,2,3")
    told = mooring(verb, *new, *node)
    assert "request 4 CPUs instead of 8" in told.out
    assert "request 7 CPUs" not in told.out
    assert mooring("whatif", *new, *node, "--ask", "web:cpu=4").code == 0
    assert mooring("whatif", *new, *node, "--ask", "web:cpu=5").code == 1


def test_a_replay_says_step_by_step_what_becomes_of_whom() -> None:
    checked = mooring("replay", "--check", str(EXAMPLES / "hotplug.yaml"), code=0)
    assert checked.out == "hotplug.yaml: 4 scenarios, 4 agree, 0 differ, 0 not supported\n"
    result = mooring("replay", str(EXAMPLES / "hotplug.yaml"), columns=200, code=0)
    lines = [line.strip() for line in result.out.splitlines()]
    assert "CPU 3 offline: shared pool 0,5-15; db/main 1-2,4 instead of 1-3" in lines
    assert "CPU 1 offline: shared pool 0,4-7; db/main 1-2 broken: 1 offline (1 needed, 0 free on NUMA node 0)" in lines
    assert "remove web: shared pool 0-1,4-7; db/main 2-3 instead of 1-2" in lines
    assert "CPUs 1,4-5 online: shared pool 0,3-5; db/main 1-2 again" in lines


def test_without_the_extension_the_kubelet_starts_without_these_cpus(stock: tuple[str, ...]) -> None:
    assert mooring("plan", *stock, "--offline", "12").code == 1  # neither NUMA node has 8 CPUs any more
    answered = mooring("plan", *stock, "--offline", "2,5", "-o", "json")
    [pod] = answered.document["pods"]
    assert pod["containers"]["app"]["cpus"] == "8-15"
    assert [one["subject"] for one in answered.document["findings"] if one["code"] == "MOOR-517"] == ["CPUs 2,5"]
    assert "offline" not in answered.document
    drawn = mooring("show", *stock, "--offline", "2,5,12")
    assert "note[MOOR-517]: CPUs 2,5,12: offline before the kubelet starts" in drawn.err


# Programs that name CPUs themselves: what the container gets instead is said, with a code.


def planned(folder: Path, program: dict[str, Any]) -> tuple[str, list[str]]:
    asked = pod("packet", 2)
    asked["spec"]["containers"][0] |= {"name": "main", **program}
    node = given(folder, asked, machine=SIXTEEN_CORES)
    explained = mooring("explain", "packet", *node, "-o", "json").document
    remarks = [one["message"] for one in explained["remarks"] if one["code"] == "MOOR-548"]
    return mooring("plan", *node).err, remarks


@pytest.mark.parametrize(
    ("program", "named", "typed"),
    [
        ({"args": ["-l", "8,9"]}, "8-9", "-l 8,9"),
        ({"args": ["--lcores=(0,1)@(8-9),2@1"]}, "1,8-9", "--lcores=(0,1)@(8-9),2@1"),
        ({"command": ["sh", "-c", "exec taskset -c 8 app"]}, "8", "taskset -c 8"),
        ({"args": ["--cpuset", "$(CPUS)"], "env": [{"name": "CPUS", "value": "8-9"}]}, "8-9", "--cpuset 8-9"),
        ({"env": [{"name": "GOMP_CPU_AFFINITY", "value": "8 9"}]}, "8-9", "GOMP_CPU_AFFINITY=8 9"),
        ({"command": ["taskset", "0x300", "app"]}, "8-9", "taskset 0x300"),
    ],
)
def test_cores_of_others_are_named_in_answers(tmp_path: Path, program: dict[str, Any], named: str, typed: str) -> None:
    told, remarks = planned(tmp_path, program)
    others = named.removeprefix("1,")
    verb = "are" if "-" in others else "is"
    said = f"container main names CPUs {named} ({typed}), of which {others} {verb} not among those that it gets here"
    assert told.startswith(f"note[MOOR-548]: default/packet: {said} (1,17); ")
    assert [one.startswith(said) for one in remarks] == [True]


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["-l", "1,17"]},
        {"args": ["-l", "8080"]},
        {"command": ["ls", "-l"], "args": ["-c", "8-9"]},
        {"args": ["-l", "2024-01-01"], "env": [{"name": "KMP_AFFINITY", "value": "compact"}]},
        {"args": [], "env": [{"name": "GOMP_CPU_AFFINITY"}]},
    ],
)
def test_cores_that_it_gets_and_other_numbers_are_no_word_worth(tmp_path: Path, container: dict[str, Any]) -> None:
    assert planned(tmp_path, container) == ("", [])


# A shared pool without any CPU is reported where it is planned, drawn, counted or checked, with its pod.


POOL: dict[str, Any] = STATIC | {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
BIG = pod("big", 5)


@pytest.fixture
def node(tmp_path: Path) -> tuple[str, ...]:
    written(tmp_path / "all.yaml", BIG, pod("last", 2), pod("web"))
    written(tmp_path / "big.yaml", BIG)
    return given(tmp_path, kubelet=POOL)


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_the_pod_that_takes_the_last_cpu_is_named(tmp_path: Path, node: tuple[str, ...], verb: str) -> None:
    answered = mooring(verb, "-f", tmp_path / "all.yaml", *node, columns=1000, code=1)
    for text in (answered.out, answered.err):
        assert "MOOR-179" in text
        assert "takes the last CPUs of the shared pool (3,7)" in text
    assert "warning[MOOR-179]: default/last:" in answered.err


def test_a_pool_with_a_cpu_left_is_no_finding(tmp_path: Path, node: tuple[str, ...]) -> None:
    answered = mooring("plan", "-f", tmp_path / "big.yaml", *node)
    assert (answered.code, answered.err) == (0, "")


def test_capacity_names_the_replica_that_empties_the_pool(tmp_path: Path, node: tuple[str, ...]) -> None:
    answered = mooring("capacity", "--shape", "cpu=1,memory=1Gi", "-f", tmp_path / "big.yaml", *node, "-o", "json")
    (found,) = [one for one in answered.document["findings"] if one["code"] == "MOOR-179"]
    assert found["subject"] == "default/shape+2"


def test_doctor_names_the_pods_of_a_file_and_the_last_running(tmp_path: Path, node: tuple[str, ...]) -> None:
    mooring("plan", "-f", tmp_path / "all.yaml", *node, "--save-state", tmp_path / "state")
    alone = mooring("doctor", "--state", tmp_path / "state", *node, columns=1000, code=1)
    assert "have emptied the shared pool: default_big (5 CPUs), default_last (2 CPUs)" in alone.out
    known = mooring("doctor", "--state", tmp_path / "state", *node, "--active", tmp_path / "all.yaml", columns=1000)
    assert "error[MOOR-179]: When the running pods are admitted again, default/last takes the last CPUs" in known.out


def test_a_pod_that_gets_reserved_cpus_where_a_core_lacks_one_is_named(tmp_path: Path) -> None:
    node = given(tmp_path, pod("big", 2))
    uneven = mooring("plan", *node, "--offline", "5", columns=1000)
    assert "warning[MOOR-313]: default/big: gets reserved CPUs (0)" in uneven.err
    assert "MOOR-313" not in mooring("plan", *node).err


def test_pods_that_hold_one_cpu_on_uneven_cores_are_named(tmp_path: Path) -> None:
    """The kubelet takes a core of two CPUs for a free one when one of them is free."""
    whole = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "reservedSystemCPUs": "0-1"}
    pods = [pod(name, cpus, "64Mi") for name, cpus in (("one", 1), ("eight", 8), ("two", 2))]
    node = given(tmp_path, *pods, machine="i7-1370p", kubelet=STATIC | whole)
    answered = mooring("plan", *node, columns=1000, code=0)
    assert "warning[MOOR-312]: default/two: gets CPUs 2, which default/eight has too" in answered.err
