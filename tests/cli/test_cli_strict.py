"""``--strict`` refuses the unknown fields that are a warning without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, SMALL, mooring

POD = "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: app\n    resource: {}\n"


@pytest.mark.parametrize(
    "verb", [["plan"], ["show"], ["explain", "web"], ["capacity", "web"], ["whatif"], ["compare", "--all-options"]]
)
def test_strict_refuses_what_is_a_warning_without_it(tmp_path: Path, verb: list[str]) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD, encoding="utf-8")
    lenient = mooring(*verb, "-f", manifest, *NODE)
    assert lenient.code != 2
    assert f"{manifest}:6:5: Container has no field resource; did you mean resources?" in lenient.err
    strict = mooring(*verb, "-f", manifest, *NODE, "--strict")
    assert (strict.code, strict.out) == (2, "")
    assert f"{manifest}:6:5: Container has no field resource" in strict.complaint


def test_a_refusal_and_an_unknown_field_are_lines_of_their_own(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD + "    resources: {limits: {hugepage-2Mi: 2Mi}}\n", encoding="utf-8")
    answer = mooring("plan", "-f", manifest, *NODE)
    assert answer.code == 2
    assert answer.complaint.endswith("is not a container resource; did you mean hugepages-2Mi?")
    assert f"warning[MOOR-512]: spec.containers[0].resource: {manifest}:6:5: Container has no field" in answer.err


def test_a_refused_configuration_names_its_unknown_fields_too(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolcy: static\nreservedMemory: 3\n", encoding="utf-8")
    answer = mooring("plan", *PODS, *NODE[:2], "--config", config)
    assert answer.code == 2
    assert answer.complaint.endswith("reservedMemory: must be a list, not a number")
    assert "did you mean cpuManagerPolicy?" in answer.err


def test_strict_covers_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        (EXAMPLES / "kubelet.yaml").read_text(encoding="utf-8") + "cpuManagerPolcy: static\n", encoding="utf-8"
    )
    given = ("plan", *PODS, *NODE[:2], "--config", config)
    assert "MOOR-501" in mooring(*given).err
    assert "did you mean cpuManagerPolicy?" in mooring(*given, "--strict").complaint


def test_strict_takes_what_has_no_unknown_field() -> None:
    assert mooring("plan", *PODS, *NODE, "--strict").code == mooring("plan", *PODS, *NODE).code
    assert mooring("show", *SMALL, "--strict").code == 0
