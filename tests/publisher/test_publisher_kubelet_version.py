"""The version of a node's kubelet is read from its Node object."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from mooring.published.writing import node_kubelet_version, node_uid
from mooring.service.apiserver import ClusterError

NODE = {"metadata": {"uid": "u"}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.2+k3s1"}}}


def asked(code: int, content: Any) -> httpx2.Client:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/api/v1/nodes/n1"
        return httpx2.Response(code, json=content)

    return httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://api")


def test_the_node_object_names_uid_and_version() -> None:
    http = asked(200, NODE)
    assert (node_uid(http, "n1"), node_kubelet_version(http, "n1")) == ("u", "v1.34.2+k3s1")


@pytest.mark.parametrize(("code", "content"), [(404, {}), (403, {}), (200, {"status": {}}), (200, [])])
def test_what_cannot_be_read_is_not_known(code: int, content: Any) -> None:
    assert node_kubelet_version(asked(code, content), "n1") == ""


def test_a_server_that_fails_is_an_error() -> None:
    with pytest.raises(ClusterError):
        node_kubelet_version(asked(500, {}), "n1")
