"""The manifests of accounts agree with their page, with the agent, and with one another."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.publisher.manifests import mistakes

from mooring.agent.pods.cluster import AgentAccount, own_accounts
from mooring.agent.pods.eviction import EFFECT, TAINT

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SWITCHES = ("pods", "events", "evict", "taint", "publish")


def daemon(rights: ModuleType, account: str) -> dict[str, Any]:
    [found] = [one for one in rights.documents("DaemonSet") if one["metadata"]["name"] == account]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_the_tables_of_the_page_are_those_of_the_manifests(rights: ModuleType) -> None:
    page = rights.PAGE.read_text(encoding="utf-8")
    assert rights.with_tables(page) == page
    assert all(f"`{account}`" in page for account in rights.accounts())


def test_a_changed_right_changes_the_page(rights: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = rights.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(rights, "rights_table", lambda: ["| other |"])
    assert "| other |" in rights.with_tables(page)


def test_every_switch_of_the_agent_has_an_account_of_the_name_that_the_agent_uses(rights: ModuleType) -> None:
    assert {account.value for account in AgentAccount} == {name for name in rights.accounts() if "agent" in name}
    for switch in SWITCHES:
        assert rights.accounts()[f"mooring-agent-{switch}"] == f"agent/{switch}.yaml"


@pytest.mark.parametrize("switch", SWITCHES)
def test_manifests_of_the_agent_have_known_fields_only(switch: str, rights: ModuleType) -> None:
    documents = rights.manifests()[f"agent/{switch}.yaml"]
    assert [mistakes(one) for one in documents] == [[]] * len(documents)


def test_every_account_that_writes_objects_of_nodes_has_a_policy_in_force(rights: ModuleType) -> None:
    bound = {one["spec"]["policyName"]: one["spec"] for one in rights.documents("ValidatingAdmissionPolicyBinding")}
    of_accounts = (one for one in rights.documents("ValidatingAdmissionPolicy") if "matchConditions" in one["spec"])
    for policy in of_accounts:
        assert bound[policy["metadata"]["name"]]["validationActions"] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"
    confined = {(policy.account, *resource) for policy in rights.policies() for resource in policy.resources}
    written = {
        (role.account, right.group, right.resource)
        for role in rights.roles()
        for right in role.rights
        if right.verb not in ("get", "list", "watch")
    }
    assert written - confined == {
        # Not of a node.
        ("mooring-extender", "coordination.k8s.io", "leases"),
        ("mooring-prune", "mooring.dev", "nodefacts"),
        ("mooring-extender", "", "pods/binding"),
        ("mooring-certificates", "", "secrets"),
        ("mooring-serve", "authentication.k8s.io", "tokenreviews"),
        ("mooring-serve", "authorization.k8s.io", "subjectaccessreviews"),
        ("mooring-leave", "apps", "daemonsets"),
        # What Kubernetes asks for beside resourceclaims/status.
        ("mooring-dra", "resource.k8s.io", "resourceclaims/driver"),
        ("mooring-dra", "resource.k8s.io", "resourceclaims/binding"),
    }


def test_the_policy_on_taints_is_about_the_taint_that_the_agent_writes(rights: ModuleType) -> None:
    policies = {one["metadata"]["name"]: one for one in rights.documents("ValidatingAdmissionPolicy")}
    policy = policies[AgentAccount.TAINT.value]
    text = " ".join(validation["expression"] for validation in policy["spec"]["validations"])
    assert text.count(f'taint.key != "{TAINT}" || taint.effect != "{EFFECT}"') == 2


def test_no_manifest_has_a_token_that_does_not_end(rights: ModuleType) -> None:
    # Those of certificates are made empty.
    assert all({"data", "stringData", "type"}.isdisjoint(one) for one in rights.documents("Secret"))
    assert all(one["automountServiceAccountToken"] is False for one in rights.documents("ServiceAccount"))


def test_a_pod_has_no_token_but_that_of_its_own_account_in_the_container_that_uses_it(rights: ModuleType) -> None:
    templates = [one["spec"]["template"] for kind in ("DaemonSet", "Deployment") for one in rights.documents(kind)]
    templates += [one["spec"]["jobTemplate"]["spec"]["template"] for one in rights.documents("CronJob")]
    assert len(templates) >= 9
    for pod in (template["spec"] for template in templates):
        assert pod["automountServiceAccountToken"] is False
        if "serviceAccountName" not in pod:  # the agent reads tokens of its accounts from the node
            assert not any("projected" in one for one in pod["volumes"])
            continue
        [token] = [one for one in pod["volumes"] if "projected" in one]
        assert 600 <= token["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] <= 3600
        [container] = pod["containers"]
        assert token["name"] in {one["name"] for one in container["volumeMounts"]}


def opened(pod: dict[str, Any], container: dict[str, Any]) -> set[str]:
    """Return what a container can open of its node: read-only without ``+w``, what is hidden with ``-``."""
    folders = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    mounts = container.get("volumeMounts", [])
    on_node = {one["mountPath"]: folders[one["name"]] for one in mounts if one["name"] in folders}
    of_node = (one for one in mounts if one["name"] in folders)
    found = {f"{folders[one['name']]}{'' if one.get('readOnly') else ' +w'}" for one in of_node}
    for mount in (one["mountPath"] for one in mounts if one["name"] == "nothing"):
        [(above, path)] = [(above, path) for above, path in on_node.items() if mount.startswith(f"{above}/")]
        found.add(f"-{path}{mount.removeprefix(above)}")
    return found


_KUBELET = "/var/lib/kubelet"
_HIDDEN = ("checkpoints", "pki", "plugins", "plugins_registry", "pods")
_OBSERVER = {_KUBELET, *(f"-{_KUBELET}/{name}" for name in _HIDDEN)}
_FOLDERS = {f"{_KUBELET}/checkpoints", f"{_KUBELET}/pki"}
OPENED = {
    "mooring-agent agent": {
        *("/var/lib/kubelet/config.yaml", "/var/run/nri", "/var/lib/mooring-tokens"),
        *("/sys/fs/cgroup +w", "/var/lib/mooring +w", "/run/mooring +w"),
    },
    "mooring-agent prepare": {f"{_KUBELET}/seccomp +w"},
    "mooring-dra dra": {
        *(f"{_KUBELET}/plugins/cpu.mooring.dev +w", f"{_KUBELET}/plugins_registry +w", "/var/run/cdi +w"),
        *(f"{_KUBELET}/config.yaml", "/run/mooring"),
    },
    "mooring-publish folders": _FOLDERS,
    "mooring-publish publish": _OBSERVER,
    "mooring-shadow folders": _FOLDERS,
    "mooring-shadow shadow": {*_OBSERVER, "/var/lib/mooring-shadow +w"},
    **{f"mooring-agent-{one} token": {f"/var/lib/mooring-tokens/mooring-agent-{one} +w"} for one in SWITCHES},
}
"""Pod and container -> what it can open of its node. Pods that are not named open nothing."""


def test_no_pod_opens_more_of_its_node_than_it_needs(rights: ModuleType) -> None:
    found: dict[str, set[str]] = {}
    for kind in ("DaemonSet", "Deployment", "CronJob", "Job"):
        for one in rights.documents(kind):
            spec = one["spec"].get("jobTemplate", one)["spec"]["template"]["spec"]
            for container in (*spec.get("initContainers", []), *spec["containers"]):
                found[f"{one['metadata']['name']} {container['name']}"] = opened(spec, container)
                if container["name"] == "folders":  # it only has the kubelet make the folders
                    assert (container["args"], container["securityContext"]["runAsUser"]) == (["version"], 65532)
    assert {name: what for name, what in found.items() if what or name in OPENED} == OPENED


def test_the_page_lists_what_pods_open_of_their_node(rights: ModuleType) -> None:
    page = rights.PAGE.read_text(encoding="utf-8")
    _, _, section = page.partition("## Files of a node")
    for name, what in OPENED.items():
        start = f"* `{name.replace(' ', '`, `')}`: "
        line = next((one for one in section.splitlines() if one.startswith(start)), "")
        assert all(f"`{one.strip('-').removesuffix(' +w')}`" in line for one in what), name


def test_the_example_names_the_token_files_that_the_manifests_write(rights: ModuleType) -> None:
    example = DEPLOY / "agent" / "kubeconfig.yaml"
    content = yaml.safe_load(example.read_text(encoding="utf-8"))
    own = own_accounts(str(example))
    assert set(own) == {AgentAccount.TAINT, AgentAccount.PUBLISH}
    files = {one["name"]: one["user"].get("tokenFile") for one in content["users"]}
    for account in own:
        volumes = daemon(rights, account.value)["volumes"]
        folders = [volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume]
        assert [f"{folder}/token" for folder in folders] == [files[account.value]]
