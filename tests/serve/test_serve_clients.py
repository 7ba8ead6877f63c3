"""A thousand clients at once: all hear of a change, and the page is served meanwhile."""

from __future__ import annotations

import selectors
import socket
from contextlib import ExitStack
from dataclasses import replace

from tests.patience import many_files
from tests.serve.site import node_site, recording

from mooring.monitoring.serve.snapshot import NodeNotice

CLIENTS = 1000
SMALL = "sockets=1 cores=8 memory=8Gi"


def heard(clients: list[socket.socket], number: int) -> None:
    """Read from all clients until each has had the event of a snapshot."""
    wanted = f'"number":{number}'.encode()
    texts = dict.fromkeys(clients, b"")
    with selectors.DefaultSelector() as selector:
        for one in clients:
            selector.register(one, selectors.EVENT_READ)
        while texts:
            ready = selector.select(timeout=60)
            assert ready, f"{len(texts)} clients heard nothing"
            for key, _ in ready:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                part = client.recv(65536)
                assert part, "a stream ended"
                texts[client] += part
                if wanted in texts[client]:
                    selector.unregister(client)
                    del texts[client]


def test_a_thousand_clients_hear_of_a_change() -> None:
    recorded = recording()
    with many_files(2 * CLIENTS + 200), node_site(recorded) as site, ExitStack() as open_:
        clients = []
        for _ in range(CLIENTS):
            client = open_.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=60))
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(client)
        heard(clients, 1)
        recorded.take(replace(recorded.now.snapshot, notices=(NodeNotice("changed"),)))
        heard(clients, 2)
        assert "changed" in site.ask("/body").text
