"""What the accounts of ``deploy`` may do, as their manifests say: tables of docs/reference/rights.md, facts for tests.

Run by hand or by ``make docs``, it writes the tables of the page.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "reference" / "rights.md"
NAMESPACE = "mooring"
SCHEDULER = "mooring-scheduler"
OWN_NODE = "its own node only"
READING = ("get", "list", "watch")
_USER = f"system:serviceaccount:{NAMESPACE}:"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    """With its subresource: ``pods/eviction``."""
    verb: str
    name: str = ""
    """Of the only object, where the rule names one."""


@dataclass(frozen=True, slots=True)
class Role:
    """A ClusterRole, or a Role of the namespace."""

    name: str
    is_local: bool
    """Whether it is a Role."""
    account: str
    """The account that it is for."""
    is_bound: bool
    """Whether the manifest binds it; if not, it is for an option that people switch on."""
    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A ValidatingAdmissionPolicy about one account."""

    name: str
    account: str
    resources: frozenset[tuple[str, str]]
    """API group and resource."""
    messages: tuple[str, ...]
    """What it says when it denies a request."""


@functools.cache
def manifests() -> dict[str, list[dict[str, Any]]]:
    """Return the documents of every manifest that goes to a cluster, by path below ``deploy``."""
    found = {}
    for file in sorted(DEPLOY.rglob("*.yaml")):
        documents = list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
        if all("metadata" in document for document in documents):  # the others are files of programs
            found[str(file.relative_to(DEPLOY))] = documents
    return found


def documents(kind: str) -> list[dict[str, Any]]:
    """Return all documents of a kind."""
    return [document for file in manifests().values() for document in file if document["kind"] == kind]


def accounts() -> dict[str, str]:
    """Return each account and its manifest; not the scheduler's, whose roles are Kubernetes'."""
    return {
        document["metadata"]["name"]: name
        for name, file in manifests().items()
        for document in file
        if document["kind"] == "ServiceAccount" and document["metadata"]["name"] != SCHEDULER
    }


def roles() -> list[Role]:
    """Return all roles, each with the account that it is for: the bound one, or the one whose name its own extends."""
    bindings = documents("ClusterRoleBinding") + documents("RoleBinding")
    bound = {one["roleRef"]["name"]: one["subjects"][0]["name"] for one in bindings}
    found = []
    for document in documents("ClusterRole") + documents("Role"):
        name = document["metadata"]["name"]
        account = bound.get(name) or max((one for one in accounts() if name.startswith(f"{one}-")), key=len)
        found.append(Role(name, document["kind"] == "Role", account, name in bound, tuple(_rights(document))))
    return found


def policies() -> list[Policy]:
    """Return all admission policies."""
    found = []
    of_accounts = (one for one in documents("ValidatingAdmissionPolicy") if "matchConditions" in one["spec"])
    for document in of_accounts:
        spec = document["spec"]
        [account] = {
            match[1]
            for condition in spec["matchConditions"]
            if (match := re.fullmatch(rf'request.userInfo.username == "{_USER}(\S+)"', condition["expression"]))
        }
        resources = {
            (group, resource)
            for rule in spec["matchConstraints"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        messages = tuple(validation["message"] for validation in spec["validations"])
        found.append(Policy(document["metadata"]["name"], account, frozenset(resources), messages))
    return found


def rights_table() -> list[str]:
    """Return a list: what each account may do, and which policies confine its writes."""
    rows = []
    for role in sorted(roles(), key=lambda one: (one.account, one.name)):
        account = f"`{role.account}` (`{accounts()[role.account]}`)" if role.is_bound else f"with role `{role.name}`"
        verbs: dict[str, list[str]] = {}
        for right in role.rights:
            resource = f"`{right.resource}`" + (f" of `{right.name}`" if right.name else "")
            verbs.setdefault(resource, []).append(right.verb)
        alike: dict[str, list[str]] = {}
        for resource, each in verbs.items():
            alike.setdefault(", ".join(each), []).append(resource)
        may = "; ".join(f"{', '.join(resources)}: {each}" for each, resources in alike.items())
        written = {(right.group, right.resource) for right in role.rights if right.verb not in READING}
        names = [one.name for one in policies() if one.account == role.account and one.resources & written]
        confined = f" (confined by {', '.join(f'`{name}`' for name in names)})" if names else ""
        rows.append(f"* {account}{', in its namespace' if role.is_local else ''}: {may}{confined}")
    return rows


def policies_table() -> list[str]:
    """Return a list: what policies require beside the account's own node, which all do."""
    besides = {policy.name: [text for text in policy.messages if OWN_NODE not in text] for policy in policies()}
    if any(besides[policy.name] == list(policy.messages) for policy in policies()):
        raise SystemExit(f"a policy has no rule that ends with: {OWN_NODE}")
    return [f"* `{name}`: {'; '.join(texts)}." for name, texts in besides.items() if texts]


def with_tables(text: str) -> str:
    """Return the text of the page with its tables as the manifests have them now."""
    for name, table in (("rights", rights_table()), ("policies", policies_table())):
        begin, end = f"<!-- {name}: written by scripts/rights.py -->\n", f"\n<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{PAGE.name}: no place for the table of {name}")
        text = before + begin + "\n".join(table) + end + after
    return text


def main() -> int:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    made = with_tables(text)
    if made != text:
        PAGE.write_text(made, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: tables written")
    return 0


def _rights(document: dict[str, Any]) -> Iterator[Right]:
    for rule in document["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield from (Right(group, resource, verb, name) for verb in rule["verbs"])


if __name__ == "__main__":
    sys.exit(main())
