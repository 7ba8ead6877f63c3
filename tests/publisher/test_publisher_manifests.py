"""The manifests of publisher, shadow and page are sound, ask for little, and fit what the programs write and take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.agent.small_node import CONFIG, INFO
from tests.cli.command import options_of
from tests.plans import started_kubelet
from tests.publisher.manifests import mistakes
from tests.values import not_none

from mooring.engine.core.config import MooringConfig
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.monitoring.serve.app import ServeOptions
from mooring.published.facts_document import digest_of, facts_document
from mooring.published.objects import (
    API_VERSION,
    FACTS,
    GROUP,
    PLURALS,
    SHADOW,
    STATE,
    VERSION,
    NodeFacts,
    NodeState,
    PodKey,
)
from mooring.published.observation import Observation, documents_of
from mooring.published.shadow_document import (
    ShadowCountPart,
    ShadowDayPart,
    ShadowDecisionPart,
    ShadowDocument,
    WouldBeDayPart,
    WouldBePart,
    shadow_document,
    shadow_of,
)
from mooring.service.options import parse_address

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = ("crds/nodefacts.yaml", "crds/nodeshadows.yaml", "crds/nodestates.yaml", "publish.yaml", "publish-prune.yaml")
PROGRAMS = ("publish.yaml", "publish-prune.yaml", "shadow.yaml", "serve.yaml")


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8")))


def all_of(kind: str) -> list[dict[str, Any]]:
    return [one for file in FILES for one in documents(file) if one["kind"] == kind]


def pod_of(file: str) -> dict[str, Any]:
    [found] = [one["spec"] for one in documents(file) if one["kind"] in ("DaemonSet", "Deployment", "CronJob")]
    pod: dict[str, Any] = found.get("jobTemplate", {"spec": found})["spec"]["template"]["spec"]
    return pod


def arguments(file: str) -> tuple[str, dict[str, str]]:
    """Return the verb of a manifest's program, and its options with their values."""
    [container] = pod_of(file)["containers"]
    verb, *others = container["args"]
    return verb, {name: value for name, _, value in (one.partition("=") for one in others)}


@pytest.mark.parametrize("file", sorted({*FILES, *PROGRAMS}))
def test_manifests_have_known_fields_only(file: str) -> None:
    assert [mistakes(one) for one in documents(file)] == [[]] * len(documents(file))


def test_checker_finds_a_slip_of_the_pen() -> None:
    (daemon,) = all_of("DaemonSet")
    [container] = daemon["spec"]["template"]["spec"]["containers"]
    container["volumeMount"] = container.pop("resources")
    place = ".spec.template.spec.containers[0]"
    assert mistakes(daemon) == [f"{place}.resources: missing", f"{place}.volumeMount: unknown"]
    container["securityContext"]["privileged"] = "yes"
    assert mistakes(daemon) == [f"Expected `bool | null`, got `str` - at `${place}.securityContext.privileged`"]
    del container["securityContext"]["privileged"], daemon["spec"]["selector"]
    assert mistakes(daemon) == ["Object missing required field `selector` - at `$.spec`"]
    assert mistakes({**daemon, "kind": "Daemon"})[0].startswith("Cannot find resource kind 'Daemon'")


def test_rights_are_the_least() -> None:
    rules = {one["metadata"]["name"]: one["rules"] for one in all_of("ClusterRole")}
    found = {
        name: {
            (group, resource): tuple(rule["verbs"])
            for rule in given
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        for name, given in rules.items()
    }
    assert found == {
        "mooring-publish": {
            ("mooring.dev", "nodefacts"): ("create",),
            ("mooring.dev", "nodestates"): ("create", "patch"),
            ("topology.node.k8s.io", "noderesourcetopologies"): ("create", "patch"),
            ("", "nodes"): ("get",),
            ("", "pods"): ("list",),
        },
        "mooring-publish-devices": {("resource.k8s.io", "resourceslices"): ("list",)},
        "mooring-publish-wake": {("", "nodes"): ("patch",)},
        "mooring-prune": {("mooring.dev", "nodefacts"): ("list", "delete"), ("mooring.dev", "nodestates"): ("list",)},
    }


def test_the_right_to_patch_nodes_is_not_bound_and_is_bounded() -> None:
    assert "mooring-publish-wake" not in {one["roleRef"]["name"] for one in all_of("ClusterRoleBinding")}
    policies = {one["metadata"]["name"] for one in all_of("ValidatingAdmissionPolicy")}
    assert policies == {"mooring-publish-own-annotation", "mooring-publish-own-node"}


def test_bindings_name_accounts_and_roles_that_are_there() -> None:
    accounts = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in all_of("ServiceAccount")}
    roles = {one["metadata"]["name"] for one in all_of("ClusterRole")}
    for one in all_of("ClusterRoleBinding"):
        assert one["roleRef"]["name"] in roles
        assert {(subject["namespace"], subject["name"]) for subject in one["subjects"]} <= accounts
    assert {("mooring", pod_of(file)["serviceAccountName"]) for file in PROGRAMS[:2]} == accounts


@pytest.mark.parametrize("file", PROGRAMS)
def test_containers_write_to_the_folder_of_the_shadow_alone_and_have_no_privileges(file: str) -> None:
    pod = pod_of(file)
    assert not {name for name in ("hostNetwork", "hostPID") if pod.get(name)}
    [main] = pod["containers"]
    mounts = []
    for container in (*pod.get("initContainers", []), main):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        mounts += container.get("volumeMounts", [])
    writable = {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
    assert writable == ({"/host/shadow"} if file == "shadow.yaml" else set())
    assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod.get("volumes", [])}


@pytest.mark.parametrize(("file", "of"), [(file, file.partition(".")[0].partition("-")[0]) for file in PROGRAMS])
def test_arguments_are_options_of_the_verb(file: str, of: str) -> None:
    verb, given = arguments(file)
    assert verb == of
    assert given.keys() <= options_of(verb)


def test_the_shadow_keeps_its_counts_and_publishes_them() -> None:
    _, given = arguments("shadow.yaml")
    assert ("--publish" in given, given["--folder"]) == (True, "/host/shadow")


def test_the_page_is_root_nowhere_and_asks_everybody_for_a_token() -> None:
    [container] = pod_of("serve.yaml")["containers"]
    assert container["securityContext"]["runAsNonRoot"]
    address = parse_address(arguments("serve.yaml")[1]["--listen"], source="--listen")
    assert not ServeOptions(not_none(address)).is_loopback


def test_definitions_have_the_names_that_the_program_uses() -> None:
    found = {one["spec"]["names"]["kind"]: one for one in all_of("CustomResourceDefinition")}
    assert set(found) == {FACTS, STATE, SHADOW}
    for kind, one in found.items():
        assert one["metadata"]["name"] == f"{PLURALS[kind]}.{GROUP}"
        assert one["spec"]["names"]["plural"] == PLURALS[kind]
        assert (one["spec"]["group"], one["spec"]["scope"]) == (GROUP, "Cluster")
        assert [version["name"] for version in one["spec"]["versions"]] == [VERSION]


def schema_of(kind: str) -> dict[str, Any]:
    """Return a definition's schema, closed: an API server refuses to apply what is not declared."""
    (one,) = [found for found in all_of("CustomResourceDefinition") if found["spec"]["names"]["kind"] == kind]
    schema: dict[str, Any] = closed(one["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(part) for name, part in schema.items() if not name.startswith("x-kubernetes")}
    return {**made, "additionalProperties": False} if "properties" in made else made


def everything() -> Observation:
    """Return an observation in which every field is used."""
    facts = NodeFacts(INFO, CONFIG, MooringConfig())
    start = started_kubelet(INFO, CONFIG)
    devices = DeviceState(
        {"v/gpu": (Device("a", (0, 1)), Device("b", healthy=False))}, {"u": {"c": {"v/gpu": frozenset({"a"})}}}
    )
    keys = (PodKey("a", "b", "u"), PodKey("a", "c"))
    files = start.files
    state = NodeState("node", digest_of(facts), files, devices, keys, offline=0b1000, displaced={"u": {3: 4}})
    return Observation(facts, state, start.with_devices(devices).node)


def test_everything_that_is_written_is_declared() -> None:
    state, _ = documents_of(everything(), sequence=3, moment=1_700_000_000.0, owner="uid")
    for kind, document in ((FACTS, facts_document(everything().facts)), (STATE, state)):
        assert (document["apiVersion"], document["kind"]) == (API_VERSION, kind)
        jsonschema.validate(document, schema_of(kind))
    spec = schema_of(STATE)["properties"]["spec"]["properties"]
    assert set(state["spec"]) == set(spec), "and everything that is declared is written"


def test_every_count_of_a_shadow_is_declared() -> None:
    found = ShadowDocument(
        node="node",
        release="v1.37.1",
        since="2026-01-01T00:00:00Z",
        agreed=1,
        differs=30,
        unknown=0,
        counts=[ShadowCountPart("agreed", "admitted", "", 1, "v1.37.1")],
        differences=[ShadowDecisionPart("a/b", "admitted", "cpus", "2-3", "4" * 9999, "t", "v1.37.1")] * 30,
        blind=1,
        refused=0,
        would_be=WouldBePart(1, ["a/b"], ["a/c"], "t", [WouldBeDayPart("2026-01-01", 0, 1)], "0" * 12),
        days=[ShadowDayPart("2026-01-01", 31, 30, 0)],
        observed_at="2026-01-01T00:00:00Z",
        predicted=2,
        came_true=1,
    )
    made = shadow_document(found, "uid")
    jsonschema.validate(made, schema_of(SHADOW))
    assert set(made["status"]) == set(schema_of(SHADOW)["properties"]["status"]["properties"])
    name, read = shadow_of({**made, "status": {**made["status"], "later": 1}})
    assert (name, read.agreed, read.differences[0].kubelet, read.counts[0].release) == ("node", 1, "2-3", "v1.37.1")


def test_definition_refuses_what_is_not_declared() -> None:
    state, _ = documents_of(everything(), sequence=3, moment=None)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**state, "spec": {**state["spec"], "other": 1}}, schema_of(STATE))
