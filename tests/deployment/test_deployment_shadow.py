"""The manifests of the shadow and of the page are sound; neither can write to a node or show pods without a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.command import options_of
from tests.publisher.manifests import mistakes

from mooring.monitoring.serve.app import ServeOptions
from mooring.service.options import parse_address

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
VERBS = ("shadow", "serve")


def documents(verb: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / f"{verb}.yaml").read_text(encoding="utf-8")))


def pod_of(verb: str) -> dict[str, Any]:
    [found] = [one for one in documents(verb) if one["kind"] in ("DaemonSet", "Deployment")]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def arguments(verb: str) -> dict[str, str]:
    [container] = pod_of(verb)["containers"]
    first, *others = container["args"]
    assert first == verb
    parts = (one.partition("=") for one in others)
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("verb", VERBS)
def test_manifests_have_known_fields_only(verb: str) -> None:
    assert [mistakes(one) for one in documents(verb)] == [[]] * len(documents(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_arguments_are_options_of_the_verb(verb: str) -> None:
    assert set(arguments(verb)) <= options_of(verb)


@pytest.mark.parametrize(("verb", "writable"), [("shadow", {"/host/shadow"}), ("serve", set())])
def test_containers_write_to_the_folder_of_the_shadow_only(verb: str, writable: set[str]) -> None:
    pod = pod_of(verb)
    assert not {"hostNetwork", "hostPID"} & pod.keys()
    [container] = pod["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")} == writable
    mounts = [one for each in (container, *pod.get("initContainers", ())) for one in each["volumeMounts"]]
    assert {one["name"] for one in mounts} == {one["name"] for one in pod["volumes"]}


def test_the_shadow_keeps_its_counts_and_publishes_them() -> None:
    given = arguments("shadow")
    assert "--publish" in given
    assert given["--folder"] == "/host/shadow"


def test_the_page_is_root_nowhere_and_asks_everybody_for_a_token() -> None:
    [container] = pod_of("serve")["containers"]
    assert container["securityContext"]["runAsNonRoot"]
    address = parse_address(arguments("serve")["--listen"], source="--listen")
    assert address is not None
    assert not ServeOptions(address).is_loopback
