"""Configurations and pods without anything that decides nothing here.

What is kept is named; whatever is not named is left out: environment, commands, images, volumes, tokens, certificates.

The configuration of a kubelet for a node archive: from the first source that has it, reduced to what decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import SourcePlace
from mooring.engine.extensions import interrupts
from mooring.engine.node import providers
from mooring.engine.plugins.shipped_annotated import CORE_KIND, HIDE_SIBLINGS, ISOLATED_CPUS, SPREAD_GROUP
from mooring.engine.releases.config_fields import CHECKED_FIELDS
from mooring.inputs.archive.reader import DEVICES, KUBELET_CONFIG, MOORING_CONFIG, json_bytes
from mooring.inputs.configuration import devices, kubelet_config, mooring_config
from mooring.inputs.configuration.kubelet_config import (
    API_VERSION,
    CONFIGZ,
    KIND,
    KNOWN,
    READ,
    FieldPlace,
    Layer,
    Tier,
    merged_layers,
)
from mooring.inputs.configuration.kubelet_flags import KubeletFlags
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.configuration.sources import DROP_IN_SUFFIX, ConfigurationSource
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import only, part_at
from mooring.inputs.machines.loader import machine_of
from mooring.inputs.machines.tree import Tree
from mooring.inputs.pods.pod_fields import SCALE_DOWN_ANNOTATION, SCALE_DOWN_FIELD
from mooring.inputs.pods.pods import MIRROR
from mooring.inputs.pods.workloads import PodObject, pod_objects

_POD_METADATA: Final = ("name", "generateName", "namespace", "uid")
_ANNOTATIONS: Final = (
    MIRROR, SCALE_DOWN_ANNOTATION, providers.ANNOTATION, interrupts.ANNOTATION, CORE_KIND,
    HIDE_SIBLINGS, ISOLATED_CPUS, SPREAD_GROUP,
)  # fmt: skip
"""Those that decide: of static pods, of extensions and of the plugins that are shipped."""
_CLAIM_ENTRY: Final = ("name", "resourceClaimName", "resourceClaimTemplateName")
_POD_SPEC: Final = ("priority", "priorityClassName", "restartPolicy", SCALE_DOWN_FIELD)
_POD_STATUS: Final = ("phase", "qosClass", "reason", "startTime")
_CONTAINER: Final = ("name", "restartPolicy")
_AMOUNTS: Final = ("requests", "limits")
_LONGEST_NAME: Final = 63
"""Longer names of unknown fields are no misspellings."""


_KEPT = READ.union(one.name.partition(".")[0] for one in CHECKED_FIELDS) - {"preloadedImagesVerificationAllowlist"}
"""What the managers read, and what decides whether a kubelet starts, but names of images."""


def reduced_configuration(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a KubeletConfiguration with the fields that the managers and the checks of a start read.

    Of fields that no kubelet knows the name is kept, because a misspelt one explains a lot.

    >>> reduced_configuration({"cpuManagerPolicy": "static", "tlsPrivateKeyFile": "/key.pem", "cpuManagerPolcy": "x"})
    {'apiVersion': 'kubelet.config.k8s.io/v1beta1', 'kind': 'KubeletConfiguration', 'cpuManagerPolicy': 'static', \
'cpuManagerPolcy': None}
    """
    inner = content.get(CONFIGZ)
    fields = inner if isinstance(inner, dict) else content
    kept: dict[str, Any] = {"apiVersion": fields.get("apiVersion", API_VERSION), "kind": KIND}
    kept |= {name: fields[name] for name in sorted(_KEPT & fields.keys())}
    return kept | {name: None for name in fields if name not in KNOWN and len(name) <= _LONGEST_NAME}


def reduced_pods(documents: Iterable[object], node: str = "") -> list[dict[str, Any]]:
    """Return the pods of documents in the order in which they were started, each with what decides about it.

    Args:
        documents: with pods.
        node: pods that are bound to another node are left out; empty to keep all.

    Raises:
        InputError: something in a document is no object of Kubernetes.
    """
    found = (pod for document in documents for pod in pod_objects(document))
    plain = (pod.content for pod in found if isinstance(pod, PodObject) and pod.replicas is None)
    here = (pod for pod in plain if not node or (part_at(pod, "spec").get("nodeName") or node) == node)
    return sorted(map(_reduced_pod, here), key=_order)


def anonymous_pods(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return pods under made-up names; equal names stay equal, and uids stay, because state files name them.

    The groups that pods are spread by have names of their own, which are made up too.

    >>> [pod["metadata"] for pod in anonymous_pods([{"metadata": {"name": "web-0", "namespace": "shop", "uid": "1"}}])]
    [{'name': 'pod-1', 'namespace': 'namespace-1', 'uid': '1'}]
    """
    given = list(pods)
    names = _made_up("pod", (pod["metadata"].get("name", "") for pod in given))
    spaces = _made_up("namespace", (pod["metadata"].get("namespace", "") for pod in given))
    groups = _made_up("group", (pod["metadata"].get("annotations", {}).get(SPREAD_GROUP, "") for pod in given))
    renamed = []
    for pod in given:
        metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
        metadata["name"] = names[metadata.get("name", "")]
        metadata["namespace"] = spaces[metadata.get("namespace", "")]
        annotations = metadata.get("annotations", {})
        if SPREAD_GROUP in annotations:
            group = groups[annotations[SPREAD_GROUP]]
            metadata["annotations"] = {**annotations, SPREAD_GROUP: group}
        renamed.append({**pod, "metadata": metadata})
    return renamed


def made_up_namespaces(pods: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return the names that :func:`anonymous_pods` gives to the namespaces of pods."""
    return _made_up("namespace", (pod["metadata"].get("namespace", "") for pod in pods))


def pod_list(pods: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a v1 PodList."""
    return {"apiVersion": "v1", "kind": "PodList", "items": list(pods)}


def _made_up(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}-{number}" for number, name in enumerate(sorted(set(names)), 1)}


def _order(pod: Mapping[str, Any]) -> tuple[bool, str, str, str]:
    started = pod.get("status", {}).get("startTime")
    metadata = pod["metadata"]
    # Times are texts of one form, which sort as what they mean; what was not started yet comes last.
    return not started, str(started), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _reduced_pod(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec, status = (part_at(content, part) for part in ("metadata", "spec", "status"))
    kept = only(metadata, _POD_METADATA)
    if annotations := only(part_at(metadata, "annotations"), _ANNOTATIONS):
        kept["annotations"] = annotations
    inner = only(spec, _POD_SPEC)
    claims = _listed(spec, "resourceClaims", _CLAIM_ENTRY)
    for name in ("initContainers", "containers"):
        items = spec.get(name)
        if isinstance(items, list):
            inner[name] = [_reduced_container(item, f"spec.{name}", claims) for item in items]
    if "resources" in spec:
        inner["resources"] = only(part_at(spec, "resources"), _AMOUNTS)
    if "overhead" in spec:
        inner["overhead"] = spec["overhead"]
    inner |= claims
    reduced: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": inner}
    told = only(status, _POD_STATUS) | _listed(status, "resourceClaimStatuses", _CLAIM_ENTRY)
    if extended := part_at(status, "extendedResourceClaimStatus"):
        mappings = _listed(extended, "requestMappings", ("containerName", "resourceName", "requestName"))
        told["extendedResourceClaimStatus"] = only(extended, ("resourceClaimName",)) | mappings
    return {**reduced, "status": told} if told else reduced


def _reduced_container(item: object, field: str, claims: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise InputError("must be a mapping", field=field, remedy="give pods as kubectl prints them")
    kept = only(item, _CONTAINER) | _listed(item, "restartPolicyRules", ("action",))
    mounts = _listed(item, "volumeMounts", ("bindMountOptions",))
    if any(mounts.get("volumeMounts", ())):
        kept |= mounts
    if "resources" in item:
        resources = part_at(item, "resources")
        used = _listed(resources, "claims", ("name", "request")) if claims else {}
        kept["resources"] = only(resources, _AMOUNTS) | used
    return kept


def _listed(content: Mapping[str, Any], field: str, names: Iterable[str]) -> dict[str, Any]:
    """Return a field with a list of mappings, each with these names only; nothing without it."""
    items = content.get(field)
    if not isinstance(items, list) or not items:
        return {}
    return {field: [only(item, names) for item in items if isinstance(item, dict)]}


_PLACES: Final = {mooring_config.KIND: MOORING_CONFIG, devices.KIND: DEVICES}
"""Kind -> its place in an archive."""


Found: TypeAlias = tuple[dict[str, bytes], str, str]
"""Files of one part, where they came from, and what is missing."""


def found_configuration(
    tree: Tree, given: Sequence[ConfigurationSource], configz: object, flags: KubeletFlags | None, root: str
) -> Found:
    """Return the configuration: of ``--config``, else as the running kubelet tells it, else of its files and flags.

    Args:
        tree: the computer.
        given: what ``--config`` names.
        configz: what the running kubelet answered; None when it was not asked.
        flags: of the running kubelet; None when none runs.
        root: the kubelet's root directory.

    Raises:
        InputError: a document of ``--config`` is no configuration, or a second one of its kind.
    """
    if given:
        # What is packed whole is known to hold nothing but what its kind may hold.
        found = configuration_of(given, machine=machine_of(tree, "").info)
        files = _reduced(found.merged) if found.layers else {}
        for source in given:
            content = source.document.content
            if isinstance(content, dict) and content.get("kind") in _PLACES:
                files |= {_PLACES[str(content["kind"])]: json_bytes(content)}
        missing = "" if KUBELET_CONFIG in files else f"no {kubelet_config.KIND} in --config"
        return files, "--config", missing
    if isinstance(configz, dict) and kubelet_config.is_kubelet_config(configz):
        return _reduced(configz), "/configz", ""
    return _of_files(tree, flags, f"{root}/config.yaml")


def _reduced(content: Mapping[str, Any]) -> dict[str, bytes]:
    return {KUBELET_CONFIG: json_bytes(reduced_configuration(content))}


def _of_files(tree: Tree, flags: KubeletFlags | None, usual: str) -> Found:
    """Read what the running kubelet's command line names, or the file where most installers put it."""
    named = flags.config if flags and flags.config else ""
    # A kubelet that runs without --config has no file, whatever lies about.
    paths = [named] if named else [] if flags else [usual]
    files = len(paths)
    if flags and flags.config_dir:
        paths += _drop_ins(tree, flags.config_dir.strip("/"))
    layers = []
    for number, path in enumerate(paths):
        found = _read(tree, path)
        if isinstance(found, str):
            # Half a configuration is worse than none: it looks like one.
            return {}, "", found
        layers.append(
            Layer(Tier.FILE if number < files else Tier.DROP_IN, found, partial(FieldPlace, SourcePlace(path)))
        )
    if flags:
        layers.append(Layer(Tier.FLAGS, flags.fields, partial(FieldPlace, SourcePlace("the command line"))))
    content = merged_layers(layers, has_file=files > 0)
    origins = [f"/{path.lstrip('/')}" for path in paths[:1]] + (["flags"] if flags and flags.fields else [])
    return _reduced(content), " and ".join(origins) or "defaults", ""


def _drop_ins(tree: Tree, folder: str) -> list[str]:
    """Return the drop-ins of a folder in the order in which the kubelet reads them."""
    found = []
    for name in sorted(tree.names(folder)):
        path = f"{folder}/{name}"
        if tree.is_dir(path):
            found += _drop_ins(tree, path)
        elif name.endswith(DROP_IN_SUFFIX):
            found.append(path)
    return found


def _read(tree: Tree, path: str) -> dict[str, Any] | str:
    """Return the mapping in a file, or why there is none."""
    data = tree.data(path.lstrip("/"))
    if data is None:
        reason = "cannot be read" if tree.exists(path.lstrip("/")) else "is not there"
        return f"{path} {reason}"
    try:
        contents = [one.content for one in documents_in(data, path) if isinstance(one.content, dict)]
    except InputError as error:
        return f"{path}: {error.problem}"
    return contents[0] if contents else f"{path} holds no mapping"
