"""The lessons of the playground: each pod is rejected as its lesson says, and admitted after the fix."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILDING = runpy.run_path(str(ROOT / "scripts" / "build_playground.py"))
OFFERED = BUILDING["known"]()
LESSONS: list[dict[str, Any]] = OFFERED["lessons"]
answer = runpy.run_path(str(ROOT / "scripts" / "playground_planner.py"))["answer"]


def answered(question: dict[str, Any]) -> Any:
    return json.loads(answer(*(question[field] for field in ("machine", "config", "pods", "pod"))))


@pytest.mark.parametrize("lesson", LESSONS, ids=[lesson["id"] for lesson in LESSONS])
def test_the_pod_of_a_lesson_is_rejected_as_it_says_and_admitted_after_the_fix(lesson: dict[str, Any]) -> None:
    told = answered(lesson)["explained"]
    codes = {told["code"], *(remark["code"] for remark in told["remarks"])}
    assert (f"{told['namespace']}/{told['name']}", told["reason"]) == (lesson["pod"], lesson["reason"])
    assert lesson["code"] in codes

    fix = lesson["fix"]
    assert fix["before"] in lesson[fix["field"]]
    mended = answered(lesson | {fix["field"]: lesson[fix["field"]].replace(fix["before"], fix["after"], 1)})[
        "explained"
    ]
    assert mended["verdict"] == "admitted"
    assert lesson["code"] not in {mended["code"], *(remark["code"] for remark in mended["remarks"])}


def test_the_lessons_have_ten_ways_to_be_rejected() -> None:
    assert len({lesson["id"] for lesson in LESSONS if lesson["reason"]}) == 10


def test_what_the_page_loads_has_its_licences() -> None:
    text = BUILDING["licences"]()
    assert all(name in text for name in ("Pyodide ", "CPython ", "click ", "PyYAML ", "msgspec ", "Apache License"))
    assert text.count("Redistribution and use in source and binary forms") == 2
    assert text.count("Permission is hereby granted, free of charge") == 1


_WITHOUT_OTHERS = """
import json, runpy, sys
sys.modules.update(dict.fromkeys(("rich", "jinja2", "pluggy")))
answer = runpy.run_path(sys.argv[1])["answer"]
print(json.loads(answer(*json.loads(sys.argv[2])))["explained"]["code"])
"""


def test_the_planner_needs_no_package_that_the_page_lacks() -> None:
    lesson = LESSONS[0]
    asked = json.dumps([lesson[field] for field in ("machine", "config", "pods", "pod")])
    words = [sys.executable, "-c", _WITHOUT_OTHERS, str(ROOT / "scripts" / "playground_planner.py"), asked]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("MOOR-"), ended.stderr


def test_the_machines_that_the_page_offers_can_be_planned_on() -> None:
    assert {"hgx-8gpu", "small-1s8"} <= set(OFFERED["machines"])
    assert all("picture" in answered(LESSONS[0] | {"machine": one, "pods": ""}) for one in OFFERED["machines"])


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("machine", "nonsense", "unknown machine"),
        ("machine", "", "machine"),
        ("config", "kind: Foo", "config: 'Foo' is not a configuration"),
        ("pods", "x: [", "pods"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(field: str, text: str, said: str) -> None:
    found = answered(LESSONS[0] | {field: text})
    assert said in found["error"]
    assert "\n" not in found["error"]


def test_empty_texts_are_the_kubelets_defaults_and_no_pods() -> None:
    found = answered(LESSONS[0] | {"config": " ", "pods": ""})
    assert (found["pods"], found["explained"]) == ([], None)
    assert found["picture"].startswith("<svg")


def test_a_kubelet_that_would_not_start_evaluates_no_pod() -> None:
    config = LESSONS[0]["config"].replace('"0,8"', '"99"')
    found = answered(LESSONS[0] | {"config": config})
    assert found["refusal"].startswith("The kubelet would not start: ")
    assert (found["pods"], found["unasked"]) == ([], [LESSONS[0]["pod"]])
    assert found["explained"]["code"] == "MOOR-233"
