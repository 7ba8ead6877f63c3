"""The annotation mixed-cpus in manifests: read with the extension, and passed over without it."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.config import MIXED_CPUS
from mooring.engine.core.errors import InputError
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object

KNOWN = PodGates.of({}, [MIXED_CPUS])


def manifest(**annotations: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}}
    names = {f"mooring/{name.replace('_', '-', 1)}": text for name, text in annotations.items()}
    return {
        "metadata": {"name": "web", "annotations": names},
        "spec": {"containers": [{"name": "poll", "resources": resources}]},
    }


def test_a_bad_value_is_one_line_that_names_file_field_and_remedy() -> None:
    with pytest.raises(InputError) as raised:
        pod_from_object(manifest(mixed_cpus="1"), source="pods.yaml", gates=KNOWN)
    words = 'metadata.annotations.mooring/mixed-cpus: \'1\' is neither true nor false; write "true" or "false"'
    assert str(raised.value) == f"pods.yaml: {words}"


def test_a_container_that_the_pod_does_not_have_is_a_mistake() -> None:
    content = manifest(**{"mixed_cpus.pol": "true"})
    with pytest.raises(InputError, match=r"no such container; did you mean poll\?"):
        pod_from_object(content, source="pods.yaml", gates=KNOWN)


def test_without_the_extension_it_is_any_annotation() -> None:
    assert pod_from_object(manifest(mixed_cpus="1"), source="pods.yaml").name == "web"


def test_good_ones_stay_on_the_pod() -> None:
    pod = pod_from_object(manifest(mixed_cpus="true"), source="pods.yaml", gates=KNOWN)
    assert pod.annotations == {"mooring/mixed-cpus": "true"}
