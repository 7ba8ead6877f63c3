"""Binds reuse connections to the API server, and none on which a request failed."""

from __future__ import annotations

import httpx2
import pytest

from mooring.cluster.extender.binding import ClusterPodAPI
from mooring.cluster.extender.wire import BindArguments
from mooring.service.apiserver import Cluster, ClusterError

ASKED = BindArguments("web", "default", "uid", "node-1")


def test_a_connection_is_reused_until_it_is_old_or_a_request_fails() -> None:
    statuses, opened, now = [201, 201, 409, 201, 201], list[Cluster](), [0.0]

    def connect() -> Cluster:
        transport = httpx2.MockTransport(lambda _request: httpx2.Response(statuses.pop(0), text="said"))
        opened.append(Cluster(httpx2.Client(transport=transport, base_url="http://api")))
        return opened[-1]

    server = ClusterPodAPI(connect, lambda: now[0])
    server.bind(ASKED)
    server.bind(ASKED)
    assert len(opened) == 1
    with pytest.raises(ClusterError):
        server.bind(ASKED)
    server.bind(ASKED)
    assert len(opened) == 2
    now[0] = 301.0
    server.bind(ASKED)
    assert len(opened) == 3
    assert [one.http.is_closed for one in opened] == [True, True, False]
    server.close()
    assert opened[-1].http.is_closed
