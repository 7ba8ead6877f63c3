"""Which claims a pod names, and that nobody who keeps pods forgets them."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.agent.journal import pod_of_text, text_of_pod
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.inputs.pods.pods import pod_from_object


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    containers = [{"name": "app"}]
    return {"metadata": {"name": "web"}, "spec": {"containers": containers, **spec}, "status": status or {}}


def made_of(document: dict[str, Any]) -> Pod:
    return pod_from_object(document, source="pod")


def test_claims_have_the_names_of_their_objects() -> None:
    named = [{"name": "cpus", "resourceClaimName": "fast"}, {"name": "own", "resourceClaimTemplateName": "each"}]
    assert made_of(pod({"resourceClaims": named})).claims == ("fast",)
    made = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "web-own-x1"}, {"name": "gone"}]}
    found = made_of(pod({"resourceClaims": named}, made))
    assert found.claims == ("fast", "web-own-x1")
    assert pod_of_text(text_of_pod(found)) == found


def test_a_claim_that_is_named_twice_is_one() -> None:
    named = [{"name": "one", "resourceClaimName": "fast"}, {"name": "two", "resourceClaimName": "fast"}]
    assert made_of(pod({"resourceClaims": named})).claims == ("fast",)


def test_a_pod_without_claims_has_none() -> None:
    assert made_of(pod({})).claims == ()
    assert made_of(pod({"resourceClaims": None})).claims == ()


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ("fast", "spec.resourceClaims"),
        ([{"name": "one", "resourceClaimName": 7}], "spec.resourceClaims[0].resourceClaimName"),
    ],
)
def test_another_form_is_bad_input(claims: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        made_of(pod({"resourceClaims": claims}))
    assert words in str(caught.value)
