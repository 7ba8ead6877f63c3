"""Workloads on the command line: streams of other tools, and templates at paths that the caller names."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import NODE, mooring

FILES = Path(__file__).parent.parent / "manifest" / "workloads"


def test_what_helm_prints_is_planned_as_it_is() -> None:
    answered = mooring("plan", "-f", "-", *NODE, stdin=(FILES / "helm-template.yaml").read_bytes())
    assert answered.code == 0
    assert "4 pods admitted, 0 rejected." in answered.out
    assert answered.err.splitlines()[:3] == [
        f"note[MOOR-503]: objects without pods: {which}"
        for which in (
            "2 ConfigMap (web, db), 1 ServiceAccount (web), 1 Service (web)",
            "1 Prometheus (main): no pod template found; --pod-template-path Prometheus=PATH names one",
            "1 Pod (web-test-connection): Helm hooks that do not run on installation",
        )
    ]


def test_a_template_is_named_by_its_path() -> None:
    file = str(FILES / "inferenceservice.yaml")
    without = mooring("plan", "-f", file, *NODE)
    assert without.code == 2
    assert "there is no pod in the manifests, only 1 InferenceService (iris): no pod template found" in without.err
    named = mooring("plan", "-f", file, "--pod-template-path", "InferenceService=spec.predictor", *NODE)
    assert "iris-predictor-0" in named.out
    wrong = mooring("plan", "-f", file, "--pod-template-path", "spec.predictor", *NODE)
    assert wrong.err == (
        "mooring: --pod-template-path: 'spec.predictor' is not KIND=PATH; "
        "write one such as InferenceService=spec.predictor\n"
    )
