"""What Python programs and notebooks use: inputs from what one has, plans, explanations, pictures.

``from mooring import load_machine, load_config, load_pods, plan, explain, Node, Pod, CPUSet``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mooring.answers.base import pods as planned_pods
from mooring.answers.base.plan import AnyPlan, Plan, Question, make_plan
from mooring.cli.options import NodeOptions
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.node_configuration import NodeConfiguration, configuration_of
from mooring.inputs.configuration.sources import load_sources, sources_of
from mooring.inputs.decoding.documents import documents_in, load_documents
from mooring.inputs.decoding.fields import Document, kind_of
from mooring.inputs.machines import loader
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.launched_pods import with_instance_types
from mooring.inputs.pods.pod_files import pods_of
from mooring.lazy import lazily

with lazily():
    import mooring.answers.explain as explaining
    from mooring.answers.base import picture
    from mooring.answers.base.inputs import node as reading
    from mooring.views.svg import picture as drawing

if TYPE_CHECKING:
    from mooring.documents.explanation import ExplanationDocument

Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
"""A path, the text of a file, or its content as a mapping."""
Pods: TypeAlias = "Source | Pod | Iterable[Source | Pod]"
"""One source of pods, or several; a pod is itself."""


def load_machine(source: Source | Machine = "live") -> Machine:
    """Return a machine: a shipped name, a path, compact text, the text of a file, or a MachineInfo as a mapping.

    Raises:
        InputError: there is no such machine, or it cannot be understood.
    """
    if isinstance(source, Machine):
        return source
    content = _content(source, "machine")
    return loader.machine_in(content, "machine") if isinstance(content, bytes) else loader.load_machine(content)


def load_config(*sources: Source) -> NodeConfiguration:
    """Return what configures a kubelet and Mooring: of files, texts and mappings; without any, the kubelet's defaults.

    Raises:
        InputError: one of them cannot be used, or a configuration appears twice.
    """
    given: list[Any] = []
    for source in sources:
        content = _content(source, "config")
        given += sources_of(documents_in(content, "config")) if isinstance(content, bytes) else load_sources(content)
    return configuration_of(given)


def load_pods(sources: Pods, config: NodeConfiguration | None = None) -> list[Pod]:
    """Return pods in order, of files, folders, texts and mappings: pods, workloads, lists of them.

    Args:
        sources: one or several; a Pod is itself.
        config: whose feature gates decide what a pod may say; without one those of a kubelet by default.

    Raises:
        InputError: a file cannot be used, a pod is not valid, or two pods have the same uid.
    """
    configured = config or load_config()
    return _pods(sources, PodGates.of_node(configured.kubelet, configured.mooring))


def _pods(sources: Pods, gates: PodGates) -> list[Pod]:
    found: list[Pod] = []
    documents: list[Document] = []
    for source in sources if isinstance(sources, Iterable) and not isinstance(sources, (str, Mapping)) else [sources]:
        if isinstance(source, Pod):
            found += [*pods_of(with_instance_types(documents), gates=gates), source]
            documents = []
        else:
            content = _content(source, "pods")
            documents += documents_in(content, "pods") if isinstance(content, bytes) else load_documents(content)
    return [*found, *pods_of(with_instance_types(documents), gates=gates)]


def plan(
    machine: Source | Machine = "live",
    config: Source | NodeConfiguration | None = None,
    pods: Pods = (),
    *,
    active: Pods = (),
    node: str | os.PathLike[str] = "",
) -> AnyPlan:
    """Return what a node does with pods, in order: a Plan, or a RefusedPlan where its kubelet would not start.

    Args:
        machine: a machine, or what :func:`load_machine` takes.
        config: a configuration, or what :func:`load_config` takes; without one the kubelet's defaults.
        pods: pods to admit, or what :func:`load_pods` takes.
        active: pods that run already.
        node: an archive of ``mooring collect``, which has machine, configuration, state files and running pods.

    Raises:
        InputError: an argument cannot be understood; it is named.
    """
    if node:
        asked = reading.question_of(NodeOptions(node=os.fspath(node)))
        gates = PodGates.of_node(asked.config, asked.mooring)
        return make_plan(replace(asked, pods=(*asked.pods, *_pods(pods, gates))))
    if config is None or isinstance(config, NodeConfiguration):
        configured = config or load_config()
    else:
        configured = load_config(config)
    known = load_machine(machine)
    return make_plan(
        Question(
            known,
            configured.kubelet,
            configured.mooring,
            tuple(load_pods(pods, configured)),
            tuple(load_pods(active, configured)),
            devices=offered_devices(configured.devices, known),
            preferences=configured.preferences,
            findings=configured.findings,
        )
    )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pod of a plan was admitted or rejected. Printed, it is the text of ``mooring explain``."""

    document: ExplanationDocument
    """That of ``mooring explain -o json``: code, why, remedy, story."""
    circumstances: str
    """By what rules it was decided, in one line."""

    def __str__(self) -> str:
        return explaining.explain_text(self.document, to="text").rstrip()

    def __repr__(self) -> str:
        document = self.document
        return f"<Explanation [{document.code}] {document.namespace}/{document.name}: {document.why}>"


def explain(made: AnyPlan, pod: str) -> Explanation:
    """Explain the decision about a pod of a plan.

    Args:
        made: the plan.
        pod: the pod's name as the command line takes it, such as ``ai/inference`` or ``ai/inference/server``.

    Raises:
        InputError: the name means no pod, or several.
    """
    named = planned_pods.find(planned_pods.pods_of(made), pod)
    story = planned_pods.explain(made, named.pod, named.container)
    topology = made.kubelet.settings.topology if isinstance(made, Plan) else None
    document = planned_pods.explanation_document(story, made.machine.name, topology, release=made.release)
    return Explanation(document, story.circumstances)


def node_svg(node: Node) -> str:
    """Return a node as a picture; empty where its machine is not known."""
    info = node.settings.info
    if info is None:
        return ""
    kubelet = Kubelet(info, MooringConfig(), node, None, None)
    return drawing.svg_text(picture.plan_view(Plan(Machine("node", info), (), kubelet, kubelet, ())))


Node.drawn_by = node_svg


def _content(source: Source, argument: str) -> str | bytes:
    """Return a path or a name as it is, and the bytes of a text or a mapping."""
    if isinstance(source, Mapping):
        return msgspec.json.encode(source)
    if isinstance(source, os.PathLike):
        return os.fspath(source)
    if not isinstance(source, str):
        raise InputError(f"must be a path, the text of a file or a mapping, not {kind_of(source)}", source=argument)
    return source.encode() if "\n" in source or source.lstrip().startswith(("{", "[")) else source
