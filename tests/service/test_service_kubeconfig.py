"""A kubeconfig that cannot be used is told in one line that names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring.engine.core.errors import InputError
from mooring.service.apiserver import cluster_of, configuration_of


def document(**changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "node"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "node", "user": {"token": "x"}}],
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def cluster(**fields: Any) -> dict[str, Any]:
    return {"clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1", **fields}}]}


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        cluster_of(configuration_of(str(path)))
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"current-context": None}, "current-context: names no context; kubectl config use-context NAME sets it"),
        ({"current-context": "there"}, "current-context: 'there' is not among contexts; "),
        ({"contexts": None}, "contexts: is not a list of entries; "),
        ({"contexts": [{"name": "here", "context": {"user": "node"}}]}, "contexts[here].cluster: names no cluster; "),
        ({"clusters": []}, "contexts[here].cluster: 'lab' is not among clusters; "),
        ({"clusters": [{"name": "lab"}]}, "clusters[lab].cluster: has no fields; "),
        (
            cluster(**{"certificate-authority": "ca.crt"}),
            "clusters[lab].certificate-authority: ca.crt cannot be read: ",
        ),
        (cluster(**{"certificate-authority": 7}), "clusters[lab].certificate-authority: is not a path; name a file"),
        (
            {"users": [{"name": "node", "user": {"client-certificate": "/nowhere/a.crt", "client-key": "/nowhere/a"}}]},
            "users[node].client-certificate: /nowhere/a.crt cannot be read: no such file or directory; name another",
        ),
    ],
)
def test_a_mistake_names_its_field(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document(**changes)), encoding="utf-8")
    found = refusal(path)
    assert found.startswith(told)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [b", "is not YAML in line 1: "),
        ("", "is not a kubeconfig: it has no fields; "),
        ("- 1", "is not a kubeconfig: it has no fields; "),
        ("\x00", "is not YAML: "),
    ],
)
def test_what_is_no_document_is_told_apart(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    assert refusal(path).startswith(told)


def test_a_binary_file_is_no_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(b"\x8f\xba\x00")
    assert refusal(path) == "not UTF-8 text; name a kubeconfig, which is YAML"


def test_a_certificate_that_is_none_is_reported_in_the_words_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate", encoding="utf-8")
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document(**cluster(**{"certificate-authority": "ca.crt"}))), encoding="utf-8")
    assert refusal(path).startswith("is not a usable kubeconfig: SSLError: ")


def test_a_good_one_with_a_file_beside_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document()), encoding="utf-8")
    with cluster_of(configuration_of(str(path))) as found:
        assert str(found.http.base_url).startswith("https://127.0.0.1:1")
