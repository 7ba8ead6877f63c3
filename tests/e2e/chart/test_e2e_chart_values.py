"""``helm template`` with every value of the chart: each program's pods have what its values name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.containerd.runtime import SCRIPT

CHART = SCRIPT.parents[1] / "charts" / "mooring"
PROGRAMS = {
    "agent": "mooring-agent",
    "publisher": "mooring-publish",
    "shadow": "mooring-shadow",
    "serve": "mooring-serve",
    "extender": "mooring-extender",
    "scheduler": "mooring-scheduler",
    "dra": "mooring-dra",
}
EVERYWHERE = {
    "nodeSelector": {"pool": "pinned"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "podAnnotations": {"example.com/team": "platform"},
    "podLabels": {"team": "platform"},
    "extraVolumes": [{"name": "extra", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
    "resources": {"requests": {"cpu": "11m"}},
}


@pytest.fixture(scope="module")
def helm() -> Path:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        parts = importlib.import_module("e2e_kube_parts")
        return Path(parts.helm())
    except importlib.import_module("e2e_parts").UnavailableError as why:
        pytest.skip(str(why))
    finally:
        sys.path.remove(str(SCRIPT.parent))


def rendered(helm: Path, values: Mapping[str, Any], *words: str) -> list[Any]:
    done = subprocess.run(
        [helm, "template", "mooring", CHART, "--namespace", "mooring", "-f", "-", *words],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def test_each_program_takes_the_values_of_its_pods(helm: Path) -> None:
    values: dict[str, Any] = {name: {"enabled": True, **EVERYWHERE} for name in PROGRAMS}
    with_affinity = [name for name in PROGRAMS if name not in {"publisher", "shadow"}]
    for name in with_affinity:
        values[name]["affinity"] = {"podAntiAffinity": {}}
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in rendered(helm, values)
        if one["kind"] in {"DaemonSet", "Deployment"}
    }
    for program, name in PROGRAMS.items():
        metadata, spec = pods[name]["metadata"], pods[name]["spec"]
        assert metadata["labels"] == {"app.kubernetes.io/name": name, "team": "platform"}
        assert metadata["annotations"]["example.com/team"] == "platform"
        assert spec["nodeSelector"]["pool"] == "pinned"
        assert spec["tolerations"] == EVERYWHERE["tolerations"]
        assert ("podAntiAffinity" in spec.get("affinity", {})) == (program in with_affinity)
        assert {"name": "extra", "emptyDir": {}} in spec["volumes"]
        container = spec["containers"][0]
        assert {"name": "extra", "mountPath": "/extra"} in container["volumeMounts"]
        assert container["resources"]["requests"]["cpu"] == "11m"


def test_own_labels_and_annotations_are_not_replaced(helm: Path) -> None:
    values = {"agent": {"podAnnotations": {"mooring/without-agent": "false"}}}
    agent = next(
        one
        for one in rendered(helm, values)
        if one["kind"] == "DaemonSet" and one["metadata"]["name"] == "mooring-agent"
    )
    assert agent["spec"]["template"]["metadata"]["annotations"] == {"mooring/without-agent": "true"}


def test_every_switch_alone_makes_a_chart(helm: Path) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    switches = [(path, not value) for path, value in leaves(values) if isinstance(value, bool)]
    assert len(switches) > 15
    for path, value in switches:
        one: Any = value
        for name in reversed(path):
            one = {name: one}
        assert rendered(helm, one), path


def test_nothing_decides_where_pods_go_by_default(helm: Path) -> None:
    names = {one["metadata"]["name"] for one in rendered(helm, {}) if one["kind"] in {"Deployment", "DaemonSet"}}
    accounts = {"mooring-agent-pods", "mooring-agent-events", "mooring-agent-publish"}
    assert names == {"mooring-agent", "mooring-publish", *accounts}


def test_the_units_of_mooring_heal_are_put_on_the_node_and_taken_away(helm: Path, tmp_path: Path) -> None:
    units = {"mooring-heal.service", "mooring-heal-report.service"}
    for action, expected in (
        ("install", {*units, *(f"kubelet.service.wants/{name}" for name in units)}),
        ("remove", set()),
    ):
        values = {"publisher": {"heal": action}, "image": {"repository": "registry.example/mooring", "tag": "1"}}
        documents = {(one["kind"], one["metadata"]["name"]): one for one in rendered(helm, values)}
        pod = documents["DaemonSet", "mooring-publish"]["spec"]["template"]["spec"]
        (task,) = pod["initContainers"]
        assert {"name": "units", "hostPath": {"path": "/etc/systemd/system", "type": "Directory"}} in pod["volumes"]
        for name, text in documents["ConfigMap", "mooring-heal"]["data"].items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / "units").mkdir(exist_ok=True)
        folders = {"/heal/heal.py": str(tmp_path / "heal.py"), "/units": str(tmp_path / "units")}
        words = [folders.get(word, word) for word in task["command"]]
        for _ in range(2):  # at every start of the pod
            subprocess.run([sys.executable, *words[1:]], check=True)
        found = {str(one.relative_to(tmp_path / "units")): one for one in (tmp_path / "units").rglob("*.service")}
        assert set(found) == expected
        for unit in found.values():
            assert " registry.example/mooring:1 mooring-heal" in unit.read_text(encoding="utf-8")


def test_the_webhook_fails_open_leaves_out_its_own_namespace_and_brings_no_rights(helm: Path) -> None:
    values: dict[str, Any] = {"extender": {"enabled": True}, "certificates": {"by": "job"}}
    rules = [{"apiGroups": ["batch.volcano.sh"], "apiVersions": ["*"], "resources": ["jobs"], "operations": ["CREATE"]}]
    on = {**values, "webhook": {"enabled": True, "caBundle": "QUJD", "rules": rules}}
    [found] = [one for one in rendered(helm, on) if one["kind"] == "ValidatingWebhookConfiguration"]
    for webhook in found["webhooks"]:
        assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Ignore", "None", 2)
        own, label = webhook["namespaceSelector"]["matchExpressions"]
        assert (own["operator"], own["values"]) == ("NotIn", ["kube-system", "mooring"])
        assert (label["key"], label["operator"] == "In") == ("mooring.dev/admission", "deny" in webhook["name"])
        assert webhook["clientConfig"]["caBundle"] == "QUJD"
        assert webhook["clientConfig"]["service"]["path"].endswith("deny") == ("deny" in webhook["name"])
        assert rules[0] in webhook["rules"]
    kinds = {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount"}
    rights, others = ([one for one in rendered(helm, given) if one["kind"] in kinds] for given in (on, values))
    assert rights == others


def test_the_webhook_waits_for_an_authority(helm: Path) -> None:
    values = {"extender": {"enabled": True}, "webhook": {"enabled": True}}
    kind = "ValidatingWebhookConfiguration"
    assert kind not in {one["kind"] for one in rendered(helm, values)}
    [found] = [one for one in rendered(helm, values, "--api-versions", "cert-manager.io/v1") if one["kind"] == kind]
    assert found["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "mooring/mooring-extender"}
