"""Write the manifests of ``deploy`` and the chart's README from the chart ``charts/mooring``: ``make deploy``.

Without Helm, ``kubectl apply -f`` and Kustomize take them. Roles of options are there and bound to no account; what
belongs to Helm alone stays out. With ``--check`` nothing is written, and a difference is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from e2e_kube_parts import helm
from e2e_parts import UnavailableError, run

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "mooring"
DEPLOY = ROOT / "deploy"
README = CHART / "README.md"
BASE = (
    "certificates.by=job",
    "dra.enabled=true",
    "extender.enabled=true",
    "namespace.create=true",
    "pinningPolicy.enabled=true",
    "pinningPolicy.threadsPerCore=2",
    "scheduler.enabled=true",
    "serve.enabled=true",
    "shadow.enabled=true",
)
OPTIONS = (
    *BASE,
    "agent.agentConfiguration.failClosed=true",
    "agent.agentConfiguration.onRejection=evict",
    "agent.mooringConfiguration.extensions={device-alignment}",
    "dra.immediate=true",
    "extender.deviceClaims=true",
    "publisher.devices=true",
    "publisher.wake=true",
    "shadow.devices=true",
)
ACCOUNTS = ("evict", "events", "pods", "publish", "taint")
FILES = {
    **{f"mooring-agent-{name}": f"agent/{name}.yaml" for name in ACCOUNTS},
    "mooring-agent": "agent/agent.yaml",
    "mooring-prune": "publish-prune.yaml",
    "mooring-publish": "publish.yaml",
    "mooring-certificates": "certificates.yaml",
    "mooring-ca": "certificates.yaml",
    "mooring-dra": "dra.yaml",
    "mooring-cpu": "dra.yaml",
    "mooring-extender": "extender.yaml",
    "mooring-leave": "leave.yaml",
    "mooring-pinning": "pinning-policy.yaml",
    "mooring-serve": "serve.yaml",
    "mooring-shadow": "shadow.yaml",
    "mooring-kube-scheduler": "scheduler.yaml",
    "mooring-volume-scheduler": "scheduler.yaml",
    "mooring-scheduler": "scheduler.yaml",
}
"""Beginning of an object's name -> its file."""
OF_KINDS = {
    "Namespace": "namespace.yaml",
    "NetworkPolicy": "network-policies.yaml",
    "Secret": "certificates.yaml",
}
BASES = {
    "kustomization.yaml": (
        "namespace.yaml", "crds/nodefacts.yaml", "crds/nodeshadows.yaml", "crds/nodestates.yaml", "publish.yaml",
        "publish-prune.yaml", "certificates.yaml", "extender.yaml", "scheduler.yaml", "network-policies.yaml",
    ),
    "agent/kustomization.yaml": ("agent.yaml", "events.yaml", "pods.yaml", "publish.yaml"),
}  # fmt: skip
"""Kustomizations: publisher, extender and scheduler; the agent beside them."""

ABOUT = """\
# The chart mooring

<!-- Made by make deploy from Chart.yaml, values.yaml and values.schema.json. -->

{about}.

```sh
kubectl create namespace mooring
kubectl label namespace mooring pod-security.kubernetes.io/enforce=privileged
helm install mooring charts/mooring --namespace mooring --wait
```

It needs Kubernetes {kubernetes}, and the image on the nodes or in a registry.
[The guide](../../docs/how-to/install-with-helm.md) leads to a pinned pod.
[The reference](../../docs/reference/chart.md) says what runs, with which certificates and rights.

By default: the agent on nodes with the label `mooring.dev/agent=true`, and the publisher on the others.
Scheduling changes with `extender.enabled` and `scheduler.enabled`.

## Values

A value that is not listed is refused.

| value | default | |
|---|---|---|
{rows}
"""
"""README of the chart."""


def digest() -> str:
    """Return the digest of the chart's files, which every kustomization names."""
    found = hashlib.sha256()
    for file in sorted(one for one in CHART.rglob("*") if one.is_file() and one != README):
        found.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def readme() -> str:
    """Return the chart's README: every value with its default and the schema's description."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    rows = [f"| `{path}` | {default} | {about} |" for path, default, about in _values(schema, schema, values, "")]
    return ABOUT.format(about=chart["description"], kubernetes=chart["kubeVersion"], rows="\n".join(rows))


def _values(
    schema: Mapping[str, Any], node: Mapping[str, Any], values: Any, above: str
) -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of every value below a node of the schema."""
    for name, given in node["properties"].items():
        about = schema["$defs"][given["$ref"].rpartition("/")[2]] if "$ref" in given else given
        value = values.get(name) if isinstance(values, Mapping) else None
        leaf = "$ref" in given or "properties" not in about
        default = "" if value is None or not leaf else f"`{json.dumps(value)}`"
        choices = [f"`{choice}`" for choice in about.get("enum", ())]
        yield above + name, default, about["description"] + (f" One of {', '.join(choices)}." if choices else "")
        if not leaf:
            yield from _values(schema, about, value, f"{above}{name}.")


def manifests(program: Path) -> dict[str, str]:
    """Return the text of every file of ``deploy`` that is made, by path below it."""
    base, options = _rendered(program, BASE), _rendered(program, OPTIONS)
    texts: dict[str, list[str]] = {}
    for key, text in options.items():
        kind, name = key
        account = any(name == f"mooring-agent-{one}" for one in ACCOUNTS)
        if key in base or kind == "ClusterRole" or account:
            texts.setdefault(_file_of(kind, name), []).append(base.get(key, text))
    made = {file: "---\n".join(documents) for file, documents in texts.items()}
    for file, resources in BASES.items():
        made[file] = (
            f"# Made by make deploy from charts/mooring (sha256:{digest()}).\n"
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
            + "".join(f"  - {name}\n" for name in resources)
        )
    return dict(sorted(made.items()))


def _rendered(program: Path, values: Sequence[str]) -> Mapping[tuple[str, str], str]:
    """Return the text of each document, by kind and name."""
    sets = [word for value in values for word in ("--set", value)]
    words = [str(program), "template", "mooring", str(CHART), "--namespace", "mooring", *sets]
    done = run(words)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = {}
    for text in re.split(r"^---$", done.stdout, flags=re.MULTILINE):
        document: Any = yaml.safe_load(text)
        if document and document["metadata"]["name"] != "mooring-test":
            found[document["kind"], document["metadata"]["name"]] = _plain(text)
    return found


def _plain(text: str) -> str:
    """Return a document without what is Helm's."""
    text = re.sub(r"^# Source: .*\n|[ \t]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(app.kubernetes.io/managed-by: Helm|helm.sh/.*)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^  annotations:\n(?!    )", "", text, flags=re.MULTILINE)
    text = re.sub(r"^  name: mooring-certificates-1$", "  name: mooring-certificates", text, flags=re.MULTILINE)
    return re.sub(r"\n{2,}", "\n", text).strip() + "\n"


def _file_of(kind: str, name: str) -> str:
    if kind == "CustomResourceDefinition":
        return f"crds/{name.partition('.')[0]}.yaml"
    if kind in OF_KINDS:
        return OF_KINDS[kind]
    return next(file for beginning, file in FILES.items() if name.startswith(beginning))


def main(words: Sequence[str]) -> int:
    """Write or check; return the exit code."""
    try:
        made = manifests(helm())
    except UnavailableError as why:
        print(f"SKIPPED deploy: {why}")
        return 0
    files = {DEPLOY / name: text for name, text in made.items()} | {README: readme()}
    different = [file for file, text in files.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" in words:
        for file in different:
            print(f"{file.relative_to(ROOT)} is not what the chart makes; run make deploy")
        return int(bool(different))
    for file in different:
        file.parent.mkdir(exist_ok=True)
        file.write_text(files[file], encoding="utf-8")
        print(f"{file.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
