"""The extender's file, its verb and its manifests."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.agent.pods.fault_injector import kubeconfig
from tests.cli.command import mooring, options_of

from mooring.cluster.extender.options import FIELDS, KIND, ExtenderOptions, UnknownNodes, Weights
from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import within
from mooring.service.options import Address, read_options

ROOT = Path(__file__).parents[2]
WRONG: list[dict[str, Any]] = [
    {"listen": "8888"},
    {"listen": "host:99999"},
    {"unknownNodes": "maybe"},
    {"maxStateAge": "soon"},
    {"assumedFor": "-1s"},
    {"requestTime": 4},
    {"maxBodyMiB": 0},
    {"maxRequests": 5000},
    {"weights": {"alignment": "much"}},
    {"weights": {"alignment": -1}},
    {"weights": {"allocated": 1}},
    {"tls": {"certificate": "only.crt"}},
    {"tls": {"clientCA": "ca.crt"}},
    {"tls": {"password": "x"}},
    {"apiVersion": "mooring/v9"},
    {"maxStatAge": "1m"},
]


@pytest.mark.parametrize("content", WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_mistakes_are_reported_in_one_line(content: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught, within(source="extender.yaml"):
        read_options({"kind": KIND, **content}, ExtenderOptions)
    assert str(caught.value).startswith("extender.yaml: ")
    assert "\n" not in str(caught.value)


def test_every_field_is_read() -> None:
    content: dict[str, Any] = {
        "listen": "[::1]:9000",
        "healthAddress": "[::]:9001",
        "webhookAddress": "[::]:9002",
        "tls": {"certificate": "a", "key": "b", "clientCA": "c"},
        "lease": {"namespace": "n", "name": "l"},
        "kubeconfig": "k",
        "deviceClaims": True,
        "unknownNodes": "deny",
        "maxStateAge": "10m",
        "assumedFor": "1m",
        "requestTime": "2s",
        "maxBodyMiB": 1,
        "maxRequests": 2,
        "weights": {"mostAllocated": 1},
        "logFormat": "console",
    }
    assert set(content) == set(FIELDS)
    found = read_options(content, ExtenderOptions)
    assert (found.listen, found.tls.client_ca, found.kubeconfig) == (Address("::1", 9000), "c", "k")
    assert (found.unknown_nodes, found.longest_state_age, found.assumed_for) == (UnknownNodes.DENY, 600, 60)
    assert (found.request_time, found.largest_body, found.requests_at_once) == (2, 2**20, 2)
    assert found.weights == Weights(0, 0, 0, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "extender.yaml"
    made.write_text(f"kind: {KIND}\n", encoding="utf-8")
    return made


def test_the_verb_checks_a_file(file: Path) -> None:
    file.write_text(f"kind: {KIND}\nlisten: 127.0.0.1:9999\n", encoding="utf-8")
    answer = mooring("extender", "--config", file, "--check")
    assert (answer.code, answer.out.count("127.0.0.1:9999")) == (0, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"kind: {KIND}\ntls:\n  certificate: a\n  keys: b\n", ":4:3: tls.keys: is not known; did you mean key?"),
        ("kind: Another\n", KIND),
        (f"kind: {KIND}\nlease:\n  name: x\n", "namespace and name belong together"),
        (f"kind: {KIND}\nwebhookAddress: 0.0.0.0:8889\n", "webhookAddress: needs a certificate"),
    ],
)
def test_the_verb_names_what_is_wrong_with_a_file(file: Path, text: str, words: str) -> None:
    file.write_text(text, encoding="utf-8")
    assert words in mooring("extender", "--config", file, "--check", code=2).complaint


def test_a_kubeconfig_that_cannot_be_used_is_reported_before_anything_begins(file: Path) -> None:
    answer = mooring("extender", "--config", file, "--kubeconfig", file.parent / "none", code=2)
    assert "is not a usable kubeconfig" in answer.complaint


def test_an_address_that_is_taken_is_reported_in_one_line(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file.write_text(f"kind: {KIND}\nlisten: 127.0.0.1:{taken.getsockname()[1]}\n", encoding="utf-8")
        answer = mooring("extender", "--config", file, "--kubeconfig", kubeconfig(file.parent / "kubeconfig", 9))
    assert answer.code == 2
    assert "cannot be listened on" in answer.complaint


@pytest.fixture(scope="module")
def deployed() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((ROOT / "deploy" / "extender.yaml").read_text(encoding="utf-8"))
    # Of each kind the first: others are for options.
    return {document["kind"]: document for document in reversed(list(documents))}


def test_the_extender_may_read_what_it_needs_and_bind_and_nothing_else(deployed: dict[str, dict[str, Any]]) -> None:
    rights = {
        (group, resource): rule["verbs"]
        for rule in deployed["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert rights == {
        ("mooring.dev", "nodefacts"): ["list", "watch"],
        ("mooring.dev", "nodestates"): ["list", "watch"],
        ("", "pods"): ["get", "list", "watch"],
        ("", "pods/binding"): ["create"],
        ("coordination.k8s.io", "leases"): ["get", "update"],
    }
    names = [rule.get("resourceNames") for rule in deployed["ClusterRole"]["rules"] if "leases" in rule["resources"]]
    assert names == [[deployed["Lease"]["metadata"]["name"]]]


def test_replicas_share_the_lease_and_a_configuration_that_can_be_read(deployed: dict[str, dict[str, Any]]) -> None:
    spec = deployed["Deployment"]["spec"]
    assert spec["replicas"] == 1  # helm --wait waits for all to be ready, and one is
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"][0] == "extender"
    assert {one for one in container["args"] if one.startswith("--")} <= options_of("extender")
    content = yaml.safe_load(deployed["ConfigMap"]["data"]["extender.yaml"])
    options = read_options(content, ExtenderOptions)
    lease = deployed["Lease"]["metadata"]
    assert (lease["namespace"], lease["name"]) == (options.lease.namespace, options.lease.name)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert options.health_address is not None
    assert ports == {"https": options.listen.port, "health": options.health_address.port}
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("readiness", "liveness")}
    assert probes["readiness"] == {"path": "/readyz", "port": "health"}
    assert probes["liveness"] == {"path": "/healthz", "port": "health"}
    # Only the leader is ready: neither a rollout nor a budget may wait for another one.
    assert spec["strategy"] == {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "100%"}}
    assert "PodDisruptionBudget" not in deployed
    documents = yaml.safe_load_all((ROOT / "deploy" / "scheduler.yaml").read_text(encoding="utf-8"))
    (scheduler,) = [one["data"]["scheduler.yaml"] for one in documents if one["kind"] == "ConfigMap"]
    (told,) = yaml.safe_load(scheduler)["extenders"]
    assert float(told["httpTimeout"].removesuffix("s")) > options.request_time
    verbs = {"filter", "prioritize", "preempt", "bind"}
    assert {told[f"{name}Verb"] for name in verbs} == verbs
