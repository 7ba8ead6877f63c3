"""One API server for all tests of a run, and for every test a containerd that plays any machine."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.runtime import SCRIPT, Runtime, e2e_parts, parts_named, running, why_not
from tests.e2e.containerd.wrapper import write_wrapper
from tests.e2e.folders import short_folder
from tests.e2e.kubelet.apiserver import APIServer, api_server
from tests.e2e.kubelet.cases import Case
from tests.e2e.kubelet.decided import Decided, Deciding, KubeletOf, Played, Playing, decide
from tests.e2e.kubelet.kubelet import environment_problem
from tests.e2e.kubelet.network import private_network
from tests.e2e.kubelet.sysfs import unpack_machine, write_machine

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.loader import load_machine

KIND = os.environ.get("MOORING_E2E_CONTAINERD", "debian")
"""Which containerd: debian or built."""


def _skip_or(fetch: Callable[[], Any]) -> Any:
    try:
        return fetch()
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")


@pytest.fixture(scope="session")
def parts() -> Any:
    """containerd and its companions."""
    reason = why_not() or environment_problem()
    if reason:
        pytest.skip(f"e2e kubelet: {reason}")
    return _skip_or(lambda: parts_named(KIND))


@pytest.fixture(scope="session")
def kube(parts: Any) -> Any:  # noqa: ARG001 - skips first
    """kubelet, API server and etcd."""
    if str(SCRIPT.parent) not in sys.path:
        sys.path.append(str(SCRIPT.parent))
    return _skip_or(importlib.import_module("e2e_kube_parts").kube_parts)


@pytest.fixture(scope="session")
def kubelet_of(kube: Any) -> KubeletOf:
    """Return the kubelet of a version, built if it is not there."""

    def program(version: str) -> Path:
        if not version:
            return Path(kube.kubelet)
        built: Path = _skip_or(lambda: importlib.import_module("e2e_kube_parts").kube_program("kubelet", version))
        return built

    return program


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a path short enough for sockets."""
    with short_folder("kube-") as made:
        yield made


@pytest.fixture(scope="session")
def cluster(parts: Any, kube: Any) -> Iterator[APIServer]:
    # Names of nodes have no addresses here.
    flags = ("--kubelet-preferred-address-types=InternalIP",)
    with short_folder("kube-") as folder, private_network(parts.busybox), api_server(kube, folder, flags=flags) as made:
        yield made


@pytest.fixture
def api(cluster: APIServer) -> Iterator[APIServer]:
    """The API server with nothing in it."""
    cluster.forget_everything()
    yield cluster
    cluster.forget_everything()


@pytest.fixture(scope="session")
def playing(parts: Any, cluster: APIServer) -> Playing:  # noqa: ARG001 - the network is private from then on
    """Starts a containerd whose containers can be given any CPUs and memory nodes."""

    @contextlib.contextmanager
    def start() -> Iterator[Runtime]:
        with short_folder("kube-") as folder:
            real = str(CPUSet.from_ids(os.sched_getaffinity(0)))
            wrapper = write_wrapper(folder, parts.runc, cpus=real, mems="0")
            with running(parts, folder, oci_runtime=wrapper) as node:
                yield node

    return start


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Return the folder with the files of a case's machine."""

    @functools.cache
    def files(name: str, is_snapshot: bool) -> Path:
        folder = tmp_path_factory.mktemp(name)
        if is_snapshot:
            unpack_machine(folder, name)
        else:
            write_machine(folder, load_machine(name))
        return folder

    return lambda case: files(case.machine, case.is_snapshot)


@pytest.fixture(scope="session")
def deciding(
    cluster: APIServer,
    kubelet_of: KubeletOf,
    playing: Playing,
    played: Played,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deciding:
    """Return what a kubelet made of a case; it is asked once in a run."""
    known: dict[str, Decided] = {}

    def asked(case: Case) -> Decided:
        if case.missing:
            pytest.skip(f"e2e kubelet: {case.missing}")
        if case.name not in known:
            cluster.forget_everything()
            with playing() as node:
                folder = tmp_path_factory.mktemp("plan")
                known[case.name] = decide(cluster, node, kubelet_of(case.older), case, played(case), folder)
            cluster.forget_everything()
        return known[case.name]

    return asked


@pytest.fixture
def decided(request: pytest.FixtureRequest, deciding: Deciding) -> Decided:
    return deciding(request.param)
