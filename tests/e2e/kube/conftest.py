"""One API server for all tests of a run; it needs no rights and no network but the loopback."""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from tests.e2e.folders import short_folder
from tests.e2e.kube.kinds import group_of, names
from tests.e2e.kube.nodes import Nodes, nodes_playing
from tests.e2e.kube.plane import OURS, define, free_ports
from tests.e2e.kubelet.apiserver import PODS, APIServer, api_server
from tests.e2e.kubelet.patience import until

from mooring.cluster.play.run import LEASES, NODES

SCRIPTS = Path(__file__).parents[3] / "scripts"


@dataclass(frozen=True, slots=True)
class Parts:
    """Programs."""

    etcd: Path
    apiserver: Path
    scheduler: Path


@pytest.fixture(scope="session")
def parts() -> Parts:
    """etcd, API server and scheduler."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    script, unavailable = importlib.import_module("e2e_kube_parts"), importlib.import_module("e2e_parts")
    try:
        found = script.etcd(), script.kube_program("kube-apiserver"), script.kube_program("kube-scheduler")
    except unavailable.UnavailableError as reason:
        pytest.skip(f"e2e kube: {reason}")
    return Parts(*found)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder("kube-") as made:
        yield made


@pytest.fixture(scope="session")
def cluster(parts: Parts) -> Iterator[APIServer]:
    with short_folder("kube-") as folder, api_server(parts, folder, free_ports()) as made:
        define(made)
        yield made


@pytest.fixture
def api(cluster: APIServer) -> Iterator[APIServer]:
    """The API server with nothing in it but definitions."""
    yield cluster
    for everything in (PODS, NODES, LEASES, f"{OURS}/nodestates", f"{OURS}/nodefacts"):
        forget(cluster, everything)


def forget(api: APIServer, path: str) -> None:
    """Delete all objects of a collection at once; thousands take longer than a usual answer."""

    def is_empty() -> bool:
        with contextlib.suppress(httpx2.TimeoutException):
            api.cluster.http.delete(path, params={"gracePeriodSeconds": "0"}, timeout=60.0)
        return not api.get(path, limit="1")["items"]

    until(is_empty, f"{path} is empty")


Playing = Callable[..., contextlib.AbstractContextManager[Nodes]]


@pytest.fixture
def playing(api: APIServer) -> Playing:
    """Plays a number of nodes, in turn of the eight kinds."""

    @contextlib.contextmanager
    def play(count: int, *, delay: float = 0.0, seed: int = 1) -> Iterator[Nodes]:
        chance = random.Random(seed)  # noqa: S311 - no secret
        groups = [group_of(name, kind) for name, kind in names(count)]
        with nodes_playing(api, groups, delay=lambda: chance.uniform(0, delay)) as nodes:
            until(lambda: len(api.get(f"{OURS}/nodestates")["items"]) == count, f"all are published; {nodes.told}")
            yield nodes

    return play


def ready_nodes(api: APIServer) -> int:
    """Return how many nodes are Ready."""
    return sum(
        any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))
        for node in api.get("api/v1/nodes")["items"]
    )
