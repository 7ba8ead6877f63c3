"""What is true of the chart without Helm: versions, schema, and that deploy was made from it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from mooring import __version__
from mooring.agent.pods.cluster import AgentAccount
from mooring.cluster.extender.options import FIELDS as EXTENDER_FIELDS
from mooring.service.agent_options import FIELDS as AGENT_FIELDS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "mooring"
# Decided by paths, by the other switches and by the node.
OF_THE_CHART = {
    *("assignedDir", "claimsSocket", "kubeconfig", "kubeletConfig", "kubeletPodResourcesSocket", "nodeName"),
    *("nriSocket", "podManifests", "podResourcesSocket", "stateDir", "statusSocket"),
    *("deviceClaims", "healthAddress", "lease", "listen", "tls", "webhookAddress"),
}


def read(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text(encoding="utf-8"))


VALUES, SCHEMA = read("values.yaml"), read("values.schema.json")


def paths(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


def test_the_schema_takes_the_values_and_names_the_same() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)

    def declared(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
        for name, about in schema.get("properties", {}).items():
            yield f"{above}{name}"
            if isinstance(about, dict):
                yield from declared(about, f"{above}{name}.")

    free = ("agent.agentConfiguration.", "agent.kubeletConfiguration.", "extender.configuration.")
    resources = re.compile(r"\.resources\.")
    given = {path for path in paths(VALUES) if not path.startswith(free) and not resources.search(path)}
    known = {path for path in declared(SCHEMA) if not path.startswith(free) and ".items." not in path}
    assert given == known - {"global"}


@pytest.mark.parametrize(
    "path", ["replicass", "extender.replcas", "agent.agentConfiguration.faleClosed", "scheduler.resources.limit"]
)
def test_a_misspelt_value_is_refused_with_its_name(path: str) -> None:
    *above, name = path.split(".")
    wrong: dict[str, Any] = {name: True}
    for one in reversed(above):
        wrong = {one: wrong}
    with pytest.raises(jsonschema.ValidationError, match=f"'{name}' was unexpected"):
        jsonschema.validate(wrong, SCHEMA)


def test_the_schema_knows_the_fields_of_the_programs() -> None:
    agent = SCHEMA["properties"]["agent"]["properties"]["agentConfiguration"]["properties"]
    extender = SCHEMA["properties"]["extender"]["properties"]["configuration"]["properties"]
    assert set(agent) == set(AGENT_FIELDS) - OF_THE_CHART
    assert set(extender) == set(EXTENDER_FIELDS) - OF_THE_CHART


def test_the_readme_is_made_from_the_schema_and_describes_every_value(script: ModuleType) -> None:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    assert readme == script.readme(), "run make deploy"
    for path in paths(VALUES):
        if not re.search(r"kubeletConfiguration\.|resources\.", path):
            assert re.search(rf"^\| `{re.escape(path)}` \| [^|]* \| .+ \|$", readme, re.MULTILINE), path


def test_the_image_of_artifact_hub_is_this_version() -> None:
    annotations = read("Chart.yaml")["annotations"]
    assert [one["image"] for one in yaml.safe_load(annotations["artifacthub.io/images"])] == [
        f"ghcr.io/OWNER/mooring:{__version__}"
    ]
    crds = {one["name"] for one in yaml.safe_load(annotations["artifacthub.io/crds"])}
    assert crds == {f"{file.stem}.mooring.dev" for file in (CHART / "files").glob("node*.yaml")}


def test_the_chart_has_every_account_of_the_agent() -> None:
    text = (CHART / "templates" / "accounts.yaml").read_text(encoding="utf-8")
    for account in AgentAccount:
        assert f'define "{account.value}.rules"' in text


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    folder = ROOT / "scripts"
    sys.path.append(str(folder))
    try:
        spec = importlib.util.spec_from_file_location("deploy_manifests", folder / "deploy_manifests.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(folder))


def test_deploy_was_made_from_the_chart_as_it_is(script: ModuleType) -> None:
    for name, resources in script.BASES.items():
        file = ROOT / "deploy" / name
        assert f"sha256:{script.digest()})" in file.read_text(encoding="utf-8"), "run make deploy"
        assert all((file.parent / one).is_file() for one in resources)
