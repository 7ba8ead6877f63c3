"""The release of an answer: the first version that is known, in every form that vendors write."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.answers.base.inputs.configuration import node_versions
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST
from mooring.engine.releases.catalog import KubeletVersion, chosen_release
from mooring.inputs.decoding.fields import Document


def versions(*texts: str) -> list[KubeletVersion]:
    return [KubeletVersion(text, f"source {number}") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("v1.34", "1.34"),
        ("1.34.4", "1.34"),
        ("v1.31.9-eks-1-31-23", "1.31"),
        ("v1.33.3+k3s1", "1.33"),
        ("v1.33.5", "1.33"),
        ("v1.36.3-gke.100", "1.36"),
        (NEWEST.tag, NEWEST.name),
        (f"v{NEWEST.name}.9+rke2r1", NEWEST.name),
    ],
)
def test_a_known_release_is_decided_as_itself_without_a_word(version: str, name: str) -> None:
    chosen = chosen_release(versions(version))
    assert (chosen.release.name, chosen.findings) == (name, ())


def test_the_first_known_version_decides() -> None:
    assert chosen_release(versions("", "v1.34.4", "v1.20.0")).release.name == "1.34"
    assert chosen_release(versions("", "")).release == NEWEST


@pytest.mark.parametrize("version", ["v1.99.0", "v0.0.0-master", "nonsense"])
def test_what_is_not_known_is_decided_as_the_newest_with_one_warning(version: str) -> None:
    chosen = chosen_release(versions(version))
    (finding,) = chosen.findings
    assert (chosen.release, finding.code, finding.severity) == (NEWEST, "MOOR-580", "warning")
    assert version in finding.subject
    assert NEWEST.tag in finding.message


def test_a_release_of_which_a_preview_is_known_is_decided_as_the_preview_with_a_warning() -> None:
    assert [chosen_release(versions(text)).findings for text in ("1.38", "v1.38.0-beta.0")] == [(), ()]
    chosen = chosen_release(versions("v1.38.1"))
    (finding,) = chosen.findings
    assert (chosen.release.name, finding.code) == ("1.38", "MOOR-580")
    assert finding.message.startswith("is known as a preview alone: decided as v1.38.0-beta.0, a preview, ")


def test_an_older_release_is_refused_with_the_list_or_decided_as_the_oldest() -> None:
    with pytest.raises(InputError, match=r"1\.31, 1\.32.*1\.37") as refused:
        chosen_release(versions("v1.30.6-gke.100"))
    assert "--nearest-release" in refused.value.remedy
    chosen = chosen_release(versions("v1.30.6-gke.100"), nearest=True)
    assert (chosen.release.name, [one.code for one in chosen.findings]) == ("1.31", ["MOOR-580"])


def test_nodes_of_a_cluster_report_their_versions() -> None:
    def node(name: str, **info: str) -> dict[str, Any]:
        return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": {"nodeInfo": info}}

    listed: dict[str, Any] = {
        "kind": "List",
        "items": [node("a", kubeletVersion="v1.34.1"), node("b"), {"kind": "Service"}],
    }
    documents = [Document(listed, "x", 1, 1), Document(node("c", kubeletVersion="v1.36.0"), "y", 1, 1)]
    assert node_versions(documents) == {"a": "v1.34.1", "b": "", "c": "v1.36.0"}
