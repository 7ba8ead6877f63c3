"""The publisher's part of a change: reading, deciding what is left, writing; a machine of 256 CPUs with 250 pods."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterEntry
from lightkube.config.models import User
from msgspec import to_builtins
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import machine, pod, whole

from mooring.documents.of_kubelet import list_message
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.pod import Container, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.published.facts_document import digest_of, essential, facts_document, facts_of
from mooring.published.kubelet_source import KubeletSource
from mooring.published.objects import NodeFacts, encoded
from mooring.published.observation import EngineObserver, Observation, fingerprint, topology_document
from mooring.published.publisher import Pace, Publisher
from mooring.service.apiserver import Cluster, cluster_of
from mooring.service.messages import ListPodResourcesResponseMessage

EXCLUSIVE, SHARING = 40, 210
CONFIG = whole("best-effort", 256)


def busy() -> Kubelet:
    start = start_kubelet(machine(8), CONFIG, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet)
    kubelet = start
    for number in range(EXCLUSIVE + SHARING):
        uid = f"pod{number}"
        asked = pod(uid) if number < EXCLUSIVE else Pod(uid, uid, containers=(Container("main"),))
        kubelet, decision = kubelet.admit(asked)
        assert decision.admitted
    return kubelet


@pytest.fixture(scope="module")
def kubelet() -> Kubelet:
    return busy()


@pytest.fixture(scope="module")
def seen(kubelet: Kubelet) -> Observation:
    return EngineObserver("node").observe(kubelet)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server that says yes to everything."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_PATCH = do_POST = do_GET  # noqa: N815 - names that the base class looks for

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = ClusterEntry(server=f"http://127.0.0.1:{server.server_address[1]}", insecure=True)
    config = KubeConfig.from_one(cluster=address, user=User(token="secret")).get()  # noqa: S106 - of nothing
    assert config is not None
    with cluster_of(config) as opened:
        yield opened
    server.shutdown()
    server.server_close()


class Answers:
    """What the kubelet would answer."""

    def __init__(self, kubelet: Kubelet) -> None:
        document = to_builtins(list_message(kubelet.node))
        self.answer = ParseDict(document, ListPodResourcesResponseMessage()).SerializeToString()

    def listed(self) -> bytes:
        return self.answer

    def devices(self) -> dict[str, tuple[Device, ...]]:
        return {}


def test_see_a_change_of_a_kubelet(benchmark: BenchmarkFixture, kubelet: Kubelet, tmp_path: Path) -> None:
    """Read the files and the list, start the engine on them, and find out which pod is which."""
    (tmp_path / "cpu_manager_state").write_text(kubelet.files.cpu or "", encoding="utf-8")
    (tmp_path / "memory_manager_state").write_text(kubelet.files.memory or "", encoding="utf-8")
    facts = NodeFacts(essential(kubelet.info), CONFIG, MooringConfig())
    source = KubeletSource("node", tmp_path, lambda: facts, Answers(kubelet))

    def observe() -> Observation | None:
        source._reading = source._started = None  # noqa: SLF001 - as if something had changed
        source._marks = ()  # noqa: SLF001 - as above
        return source.observe()

    found = benchmark(observe)
    assert found is not None
    assert found.node is not None


def test_nothing_has_changed(benchmark: BenchmarkFixture, kubelet: Kubelet, tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").write_text(kubelet.files.cpu or "", encoding="utf-8")
    (tmp_path / "memory_manager_state").write_text(kubelet.files.memory or "", encoding="utf-8")
    facts = NodeFacts(essential(kubelet.info), CONFIG, MooringConfig())
    source = KubeletSource("node", tmp_path, lambda: facts, Answers(kubelet), clock=lambda: 0.0)
    source.observe()
    benchmark(source.observe)


def test_see_a_change_of_the_agent(benchmark: BenchmarkFixture, kubelet: Kubelet) -> None:
    observer = EngineObserver("node")
    observer.observe(kubelet)
    benchmark(observer.observe, kubelet)


def test_zones(benchmark: BenchmarkFixture, seen: Observation) -> None:
    assert seen.node is not None
    benchmark(topology_document, seen.facts.machine, seen.node, seen.state)


def test_fingerprint_of_pods_that_are_known(benchmark: BenchmarkFixture, seen: Observation) -> None:
    benchmark(fingerprint, [(key.namespace, key.name) for key in seen.state.pods])


def test_write_a_change(benchmark: BenchmarkFixture, seen: Observation, cluster: Cluster) -> None:
    """Both objects over HTTP, without TLS."""

    publisher = Publisher(lambda: seen, lambda: cluster, "node", pace=Pace())
    publisher.once()
    benchmark(publisher._write, seen)  # noqa: SLF001 - without the look


def test_digest(benchmark: BenchmarkFixture, seen: Observation) -> None:
    """Once per start of a kubelet."""
    benchmark(digest_of, seen.facts)


def test_read_facts(benchmark: BenchmarkFixture, seen: Observation) -> None:
    """Once per kind of node, by who reads them."""
    document = json.loads(encoded(facts_document(seen.facts)))
    assert benchmark(facts_of, document) == seen.facts
