"""A service account with the rights of a manifest, and a way to the API server in its name from one node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.e2e.kubelet.apiserver import APIServer, as_user

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
_RBAC = "apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "Namespace": "api/v1/namespaces",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
"""Kinds that say who may do what; the others of a manifest say what runs."""


def give_rights(api: APIServer, manifest: str, *more: dict[str, Any]) -> None:
    """Make everything in a manifest of ``deploy`` that is about rights, its namespace, and further objects.

    Args:
        api: as somebody who may do that.
        manifest: name of the file.
        more: objects of the same kinds.
    """
    files = ("namespace.yaml", manifest)
    objects = [one for file in files for one in yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8"))]
    for one in [*objects, *more]:
        if one["kind"] in _PATHS:
            metadata = one["metadata"]
            path = f"{_PATHS[one['kind']].format(metadata.get('namespace', ''))}/{metadata['name']}"
            api.apply(path, one)


def binding_of(role: str, account: str, namespace: str) -> dict[str, Any]:
    """Return the binding of a role to a service account, as the manifest asks people to write it."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def token_of(api: APIServer, account: str, namespace: str, bound: dict[str, str] | None) -> str:
    """Return a token of a service account.

    Args:
        api: as somebody who may ask for tokens.
        account: name of the service account.
        namespace: of it.
        bound: apiVersion, kind, name and uid of the object without which it ends; None for one that is not bound.
    """
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound} if bound else {},
    }
    token: str = api.post(f"api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)["status"]["token"]
    return token


def kubeconfig_of(api: APIServer, folder: Path, account: str, namespace: str, node: str) -> Path:
    """Return the file of a kubeconfig with a token of a service account, bound to a node as those of its pods are.

    Args:
        api: as somebody who may ask for tokens.
        folder: where the file is written.
        account: name of the service account.
        namespace: of it.
        node: a node that is registered.
    """
    uid = api.get(f"api/v1/nodes/{node}")["metadata"]["uid"]
    token = token_of(api, account, namespace, {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid})
    return as_user(api, folder / f"{account}.kubeconfig", {"token": token})
