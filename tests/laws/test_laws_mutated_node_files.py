"""Node files with one place changed: refused in one line, or taken for what they say and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PCIDevice
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.kubelet_config import KNOWN
from mooring.inputs.configuration.node_configuration import NodeConfiguration, load_config
from mooring.inputs.machines.compact import parse_compact

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
    "cpuManagerReconcilePeriod": "1m30s",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": 4096}}],
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
    "reservedSystemCPUs": "0-1",
    "kubeReserved": {"cpu": "500m"},
    "systemReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "5%"},
    "featureGates": {"PodLevelResourceManagers": True},
    "maxPods": 20,
}
MOORING = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "MooringConfiguration",
    "extensions": [],
    "fixedDefects": ["pod-restart", "odd-uncore"],
}
DEVICES = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "NodeDevices",
    "devices": {
        "vendor.example/gpu": [{"id": "gpu-0", "numa": [0, 1]}, {"id": "gpu-1", "numa": [1], "unhealthy": True}],
        "vendor.example/nic": {"pci": {"class": "02", "vendor": "15b3"}},
    },
}
MACHINE = parse_compact("cores=2")
NIC = PCIDevice("0000:5e:00.0", "020000", "15b3", "1021", 1)
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 64, 2**31, 2**63, -(2**70), 1.5, 1e308, "", "0", "0-3", "3-1", "static", "Static"),
    *("1Gi", "-1", "1n", "x" * 200, "\x1b[31m", "true", "odd-uncore", "pod", "1m", "02", "gpu-0", "\u00b2"),
    *([], {}, [0], [0, 0], ["a"], [None], {"a": None}, {"cpu": "1"}, {"id": "gpu-0"}, {"pci": {}}),
]
once = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a document."""
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield (*path, key)
        yield from places(document[key], (*path, key))


@st.composite
def changed(draw: st.DrawFn, document: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Replace, drop or rename one place; return the document and the field at its top that the place belongs to."""
    found = copy.deepcopy(document)
    path = draw(st.sampled_from([path for path in places(found) if path[0] not in ("apiVersion", "kind")]))
    container: Any = found
    for key in path[:-1]:
        container = container[key]
    action = draw(st.sampled_from(["replace", "replace", "drop", "rename"]))
    if action == "replace":
        container[path[-1]] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    else:
        value = container.pop(path[-1])
        if action == "rename" and isinstance(container, dict):
            container[draw(st.sampled_from(["x", "", f"{path[-1]}s", str(path[-1]).upper()]))] = value
    return found, path[0]


def loaded(folder: Path, *documents: dict[str, Any]) -> NodeConfiguration | None:
    """Return what the files say, or None when they are refused in one line that names the file."""
    paths = []
    for number, document in enumerate(documents):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps(document), encoding="utf-8")
    try:
        return load_config(*paths)
    except InputError as error:
        text = str(error)
        assert text.isprintable()
        assert text.startswith(tuple(map(str, paths)))
        return None


def differing(one: KubeletConfig, other: KubeletConfig) -> list[str]:
    """Return the fields in which two configurations differ, as the file spells them but in small letters."""
    names = [field.name for field in fields(KubeletConfig)]
    return [name.replace("_", "") for name in names if getattr(one, name) != getattr(other, name)]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> NodeConfiguration:
    found = loaded(tmp_path_factory.mktemp("intact"), KUBELET, MOORING, DEVICES)
    assert found is not None
    return found


def test_the_intact_files_say_something_everywhere(intact: NodeConfiguration) -> None:
    told = differing(intact.kubelet, KubeletConfig())
    for name in KUBELET.keys() - {"apiVersion", "kind"}:
        assert any(field.startswith(name.lower()) for field in told), name
    assert intact.mooring == MooringConfig(fixed_defects=frozenset({"pod-restart", "odd-uncore"}))
    assert not intact.findings


@once
@given(changed(KUBELET))
def test_a_changed_kubelet_configuration_differs_in_the_changed_field_alone(
    tmp_path: Path, intact: NodeConfiguration, drawn: tuple[dict[str, Any], str]
) -> None:
    document, field = drawn
    found = loaded(tmp_path, document, MOORING, DEVICES)
    event("refused" if found is None else "loaded")
    if found is None:
        return
    # That a duration is null, which the kubelet cannot decode, stands with what is only checked at the start.
    noted = ("checked",) if document.get(field, "") is None else ()
    told = differing(found.kubelet, intact.kubelet)
    assert all(name.startswith((field.lower(), *noted)) for name in told)
    assert (found.mooring, found.devices) == (intact.mooring, intact.devices)
    named = {finding.subject for finding in found.findings}
    nested = {name for name in named if name not in document}
    # The changed field is named too when no kubelet takes its value.
    assert document.keys() - KNOWN <= named
    assert named - nested <= (document.keys() - KNOWN) | {field}
    assert all(name.startswith(field) for name in nested)


@once
@given(changed(MOORING))
def test_a_changed_mooring_configuration_switches_on_what_it_names_alone(
    tmp_path: Path, intact: NodeConfiguration, drawn: tuple[dict[str, Any], str]
) -> None:
    document, _ = drawn
    found = loaded(tmp_path, KUBELET, document, DEVICES)
    event("refused" if found is None else "loaded")
    if found is None:
        return
    assert document.keys() <= MOORING.keys()
    names = frozenset(document.get("fixedDefects") or ())
    assert found.mooring.fixed_defects == names <= FIXABLE_DEFECTS
    assert (found.mooring.extensions, found.kubelet, found.devices) == (frozenset(), intact.kubelet, intact.devices)


@once
@given(changed(DEVICES))
def test_changed_device_lists_offer_what_they_name_alone(
    tmp_path: Path, intact: NodeConfiguration, drawn: tuple[dict[str, Any], str]
) -> None:
    document, _ = drawn
    found = loaded(tmp_path, KUBELET, MOORING, document)
    event("refused" if found is None else "loaded")
    if found is None:
        return
    assert (found.mooring, found.kubelet) == (intact.mooring, intact.kubelet)
    declared = document.get("devices") or {}
    offered = offered_devices(found.devices, replace(MACHINE, pci=(NIC,)))
    assert offered.keys() == declared.keys()
    for resource, items in declared.items():
        if isinstance(items, list):
            assert [(device.id, list(device.numa or ()), not device.healthy) for device in offered[resource]] == [
                (item["id"], item.get("numa") or [], item.get("unhealthy") or False) for item in items
            ]
        else:
            assert {device.id for device in offered[resource]} <= {NIC.address}
