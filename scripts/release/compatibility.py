"""What programs of others rely on: written down for each release, and compared with what this one has.

    python scripts/release/compatibility.py            compare with every release; exit code 1 names what broke
    python scripts/release/compatibility.py --write    write down this version's

The files in ``tests/documents/released`` have members and types of JSON documents and custom resources, codes, metrics
with types and labels, verbs with their options. Additions are compatible; what is missing or has another type is not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import click
import yaml
from prometheus_client import CollectorRegistry

from mooring import __version__
from mooring.agent.metrics import (
    AgentMetrics,
    device_gauges,
)
from mooring.agent.state import AgentState
from mooring.agent.status import (
    Published,
    Snapshot,
)
from mooring.cluster.dra.plugin import DriverMetrics
from mooring.cluster.extender.service import ExtenderMetrics
from mooring.command.main import cli
from mooring.documents.schemas import kinds, schema
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.metric_names import METRICS, SCALE_DOWN_METRICS
from mooring.explanations.codes import all_codes
from mooring.inputs.machines.loader import load_machine
from mooring.published.publisher import Publisher
from mooring.service.http import ProgramMetrics

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "documents" / "released"
Surface = dict[str, dict[str, str]]
"""Area -> name -> type, in words."""


def surface() -> Surface:
    """Return what this version has."""
    return {
        "members of JSON documents": dict(sorted(_documents())),
        "fields of custom resources": dict(sorted(_custom_resources())),
        "codes": dict.fromkeys(all_codes(), "code"),
        "metrics": dict(sorted(_metrics())),
        "options": dict(sorted(_options())),
    }


def breaks(old: Surface, new: Surface, version: str) -> list[str]:
    """Return one line for everything that an older version had and that is missing or of another type.

    >>> breaks({"codes": {"MOOR-101": "code", "MOOR-102": "code"}}, {"codes": {"MOOR-101": "code"}}, "1.0.0")
    ['codes: MOOR-102 was in 1.0.0 and is missing']
    >>> breaks({"metrics": {"a_total": "counter"}}, {"metrics": {"a_total": "gauge", "b": "gauge"}}, "1.0.0")
    ['metrics: a_total was counter in 1.0.0 and is gauge']
    """
    found = []
    for area, names in old.items():
        for name, type_ in names.items():
            now = new.get(area, {}).get(name)
            if now is None:
                found.append(f"{area}: {name} was in {version} and is missing")
            elif now != type_:
                found.append(f"{area}: {name} was {type_} in {version} and is {now}")
    return found


def released() -> dict[str, Surface]:
    """Return version -> what it had, for all that were written down."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def _documents() -> Iterator[tuple[str, str]]:
    """Yield each member of each struct once; structs of several documents have one definition."""
    for kind in kinds():
        found = schema(kind)
        parts = {kind: found, **found["$defs"]}
        for name, part in parts.items():
            for member, value in part.get("properties", {}).items():
                optional = "" if member in part.get("required", ()) else ", can be left out"
                yield f"{name}.{member}", f"{_json_type(value)}{optional}"


def _json_type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "const" in value:
        return json.dumps(value["const"])
    if "anyOf" in value:
        return " or ".join(sorted(_json_type(one) for one in value["anyOf"]))
    if value.get("type") == "array":
        return f"list of {_json_type(value.get('items', {}))}"
    if isinstance(value.get("additionalProperties"), dict):
        return f"object of {_json_type(value['additionalProperties'])}"
    return str(value.get("type", "anything"))


def _custom_resources() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            if version["served"]:
                name = f"{spec['names']['kind']}.{spec['group']}/{version['name']}"
                yield name, f"{spec['scope']}, {spec['names']['plural']}"
                yield from _fields(name, version["schema"]["openAPIV3Schema"])


def _fields(place: str, part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in part.get("properties", {}).items():
        required = ", required" if name in part.get("required", ()) else ""
        yield f"{place}.{name}", f"{value.get('type', 'anything')}{required}"
        yield from _fields(f"{place}.{name}", value)
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            yield f"{place}[]", str(part[key].get("type", "anything"))
            yield from _fields(f"{place}[]", part[key])


def _no_cluster() -> NoReturn:
    raise AssertionError("nothing is published")


def _metrics() -> Iterator[tuple[str, str]]:
    for metric in (*METRICS, *SCALE_DOWN_METRICS):
        yield metric.name, _metric_type(metric.type.value, metric.labels)
    info = load_machine("small-1s8").info
    kubelet = cast("Kubelet", start_kubelet(info, KubeletConfig(), MooringConfig(), StateTexts()))
    agent = AgentMetrics(Published(Snapshot(load_machine("small-1s8"), AgentState(kubelet))))
    publisher = Publisher(lambda: None, _no_cluster, "")
    publisher.written_at = 0.0
    programs: tuple[ProgramMetrics, ...] = (agent, ExtenderMetrics(dict), DriverMetrics(lambda: True))
    for program in programs:
        yield from _registered(program._registry)  # noqa: SLF001 - programs show their numbers, not their names
    for family in (
        *(family for program in programs for family in program.seen()),
        *device_gauges(AgentState(kubelet)),
        *publisher.collect(),
    ):
        yield family.name, _metric_type(family.type, getattr(family, "_labelnames", ()))


def _registered(registry: CollectorRegistry) -> Iterator[tuple[str, str]]:
    for collector in registry._collector_to_names:  # noqa: SLF001 - as above
        for family in collector.collect():
            labels: tuple[str, ...] = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            yield family.name, _metric_type(family.type, labels)


def _metric_type(kind: str, labels: tuple[str, ...]) -> str:
    return kind + (f" by {', '.join(sorted(labels))}" if labels else "")


def _options() -> Iterator[tuple[str, str]]:
    """Yield verbs, and their options with what they take."""
    waiting: list[tuple[str, click.Command]] = [("mooring", cli)]
    while waiting:
        path, command = waiting.pop()
        yield path, "verb"
        context = command.context_class(command, info_name=path)
        for parameter in command.params:
            for option in parameter.opts:
                takes = "a flag" if getattr(parameter, "is_flag", False) else "a value"
                name = f"{path} {option}" if option.startswith("-") else f"{path} {option.upper()}"
                yield name, f"{takes}, required" if parameter.required else takes
        if isinstance(command, click.Group):
            below = ((name, command.get_command(context, name)) for name in command.list_commands(context))
            waiting += [(f"{path} {name}", one) for name, one in below if one is not None]


def main() -> int:
    """Compare, or write."""
    if "--write" in sys.argv:
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(surface(), indent=0, ensure_ascii=False)
        (FOLDER / f"{__version__}.json").write_text(re.sub(r"\n\}", "}", text) + "\n", encoding="utf-8")
        return 0
    now = surface()
    found = [line for version, old in released().items() for line in breaks(old, now, version)]
    print("\n".join(found) or f"compatible with {', '.join(released())}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
