"""The publisher beside a kubelet whose machine is played."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.kubelet.apiserver import APIServer

from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.published.facts_document import essential
from mooring.published.kubelet_source import KubeletSource
from mooring.published.naming import APINames
from mooring.published.objects import NodeFacts
from mooring.published.publisher import Pace, Publisher
from mooring.service.apiserver import cluster_of, configuration_of
from mooring.service.podresources import PodResourcesClient


@contextlib.contextmanager
def publishing(api: APIServer, name: str, root: Path, config: Path, machine: Path) -> Iterator[list[Finding]]:
    """Publish the kubelet of a root directory until the end of the block."""
    socket, told = root / "pod-resources" / "kubelet.sock", list[Finding]()

    def load() -> NodeFacts:
        found = load_config(config)
        return NodeFacts(essential(load_machine(str(machine)).info), found.kubelet, found.mooring)

    def connect() -> Any:
        return cluster_of(configuration_of(str(api.kubeconfig)))

    client, names = PodResourcesClient(str(socket)), APINames(connect, name)
    source = KubeletSource(name, root, load, client, socket=socket, names=names)
    publisher = Publisher(source.observe, connect, name, pace=Pace(heartbeat=5.0), report=told.append)
    stopping = threading.Event()
    thread = threading.Thread(target=publisher.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        stopping.set()
        thread.join(20)
        client.close()
        names.close()
