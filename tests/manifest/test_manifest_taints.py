"""Taints and tolerations as the API server reads them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.values import refusal

from mooring.inputs.pods.scheduling_fields import Taint, Toleration, scheduling_fields_of, taints_at


def test_empty_texts_of_a_toleration_say_nothing() -> None:
    read = scheduling_fields_of({"spec": {"tolerations": [{"key": "gpu", "operator": "", "effect": None}]}})
    assert read.tolerations == (Toleration("gpu"),)


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_comparisons_cover_nothing_while_their_gate_is_off(operator: str) -> None:
    (toleration,) = scheduling_fields_of(
        {"spec": {"tolerations": [{"key": "age", "operator": operator, "value": "5"}]}}
    ).tolerations
    assert not any(toleration.tolerates(Taint("age", value)) for value in "456")


@pytest.mark.parametrize(
    ("toleration", "words"),
    [
        ({"key": "a", "operator": "exists"}, "operator: 'exists' is not known; did you mean Exists?"),
        ({"key": "a", "effect": "NoSchedul"}, "effect: 'NoSchedul' is not known; did you mean NoSchedule?"),
        ({"value": "a"}, "operator: must be Exists where key is empty; write the taint's key, or operator: Exists"),
        ({"key": 1}, "key: must be a string"),
    ],
)
def test_a_toleration_that_the_api_server_refuses_is_named(toleration: dict[str, Any], words: str) -> None:
    content = {"spec": {"tolerations": [{"operator": "Exists"}, toleration]}}
    assert refusal(scheduling_fields_of, content).startswith(f"spec.tolerations[1].{words}")


@pytest.mark.parametrize(
    ("taint", "words"),
    [
        ({"key": "a", "effect": "NoSched"}, "effect: 'NoSched' is not known; did you mean NoSchedule?"),
        ({"key": "a", "effect": ""}, "effect: '' is not known"),
        ({"effect": "NoExecute"}, "key: must not be empty"),
    ],
)
def test_a_taint_that_the_api_server_refuses_is_named(taint: dict[str, Any], words: str) -> None:
    assert refusal(taints_at, {"taints": [{"key": "fine"}, taint]}).startswith(f"taints[1].{words}")
