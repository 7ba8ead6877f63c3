"""Mooring's own document: defects and extensions, CPU hotplug, device alignment."""

from __future__ import annotations

from typing import Any

import pytest
from tests.values import cases, refusal

from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    FIXABLE_DEFECTS,
    REPLACE,
    DeviceAlignment,
    DeviceAlignments,
    MooringConfig,
)
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.published.facts_document import mooring_document

FOLLOW, REQUIRE, IGNORE = DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE, DeviceAlignment.IGNORE


def read(**content: Any) -> MooringConfig:
    return mooring_config(content, source="m.yaml")


def aligned(alignment: Any) -> MooringConfig:
    return read(extensions=[DEVICE_ALIGNMENT], deviceAlignment=alignment)


@pytest.mark.parametrize("name", sorted(FIXABLE_DEFECTS))
def test_every_known_defect_can_be_named(name: str) -> None:
    assert read(fixedDefects=[name]).fixed_defects == {name}


@pytest.mark.parametrize("rule", REPLACE)
def test_each_rule_of_hotplug_is_read_and_the_same_nodes_are_the_default(rule: str) -> None:
    found = read(extensions=["cpu-hotplug"], cpuHotplug={"replace": rule})
    assert found == MooringConfig(frozenset({CPU_HOTPLUG}), replace_offline=rule)
    assert read(extensions=["cpu-hotplug"]).replace_offline == "same-nodes"
    assert read(cpuHotplug={}) == MooringConfig()


def test_default_and_classes_of_devices_are_read_and_everything_follows_by_default() -> None:
    fpgas = {"alignment": "ignore", "resources": ["vendor.example/fpga-*"]}
    found = aligned({"default": "require", "classes": {"gpus": "follow", "fpgas": fpgas}})
    classes = {"gpus": (FOLLOW, ()), "fpgas": (IGNORE, ("vendor.example/fpga-*",))}
    assert found.device_alignments == DeviceAlignments(REQUIRE, classes)
    assert read(extensions=[DEVICE_ALIGNMENT]).device_alignments == DeviceAlignments(FOLLOW, {})


def test_what_is_published_reads_the_same() -> None:
    found = aligned({"default": "ignore", "classes": {"nics": "require", "x": {"resources": ["vendor.example/x"]}}})
    assert mooring_config(mooring_document(found), source="published") == found
    assert "deviceAlignment" not in mooring_document(read())


@pytest.mark.parametrize(("content", "message"), cases(__file__, "refused-mooring.yaml", "content", "says"))
def test_the_document_is_checked_strictly(content: dict[str, Any], message: str) -> None:
    assert refusal(read, **content).startswith(f"m.yaml: {message}")
