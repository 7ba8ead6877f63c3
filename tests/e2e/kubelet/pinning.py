"""The agent beside a kubelet that leaves CPUs and memory alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.containerd.agent_process import AgentProcess, agent_on
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.cases import Case
from tests.e2e.kubelet.kubelet import NO_POLICIES, Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until


@dataclass(frozen=True, slots=True)
class Pinned:
    """A node on which the agent decides."""

    kubelet: Kubelet
    agent: AgentProcess

    def holds(self, uid: str) -> bool:
        """Tell whether the agent holds a pod back."""
        return any(pod["uid"] == uid for pod in self.agent.status()["held"])

    def says_no(self, uid: str) -> bool:
        """Tell whether the agent holds a pod back, or the kubelet refuses it because of the node's sums."""
        return self.holds(uid) or self.kubelet.refused(uid)


@contextlib.contextmanager
def pinned(
    node: Runtime,
    program: Path,
    case: Case,
    machine: Path | None,
    *,
    api: APIServer | None = None,
    extensions: Sequence[str] = (),
    program_of_agent: Sequence[str] = (),
    beside: Mapping[str, Any] = NO_POLICIES,
    **options: Any,
) -> Iterator[Pinned]:
    """Run the agent with the policies of a case, and a kubelet with none, until the end of the block.

    Args:
        node: their containerd.
        program: the kubelet.
        case: says what the agent decides by; reservations stay in the kubelet's file.
        machine: folder with the files of the machine; None for this computer as it is.
        api: where pods come from; without, they come from the kubelet's manifest folder.
        extensions: of the agent.
        program_of_agent: in place of ``mooring``.
        beside: policies of the kubelet.
        options: further fields of the agent's configuration.
    """
    kubeconfig = None if api is None else api.kubeconfig
    policies = {**beside, **case.reservations}
    with kubelet_on(node, program, case.name, policies, machine=machine, kubeconfig=kubeconfig) as kubelet:
        if api is not None:
            until(lambda: api.has_node(case.name), "the node is registered")
        with agent_beside(
            node,
            kubelet,
            case,
            machine,
            api=api,
            extensions=extensions,
            program_of_agent=program_of_agent,
            **options,
        ) as made:
            yield made


@contextlib.contextmanager
def agent_beside(
    node: Runtime,
    kubelet: Kubelet,
    case: Case,
    machine: Path | None,
    *,
    api: APIServer | None = None,
    extensions: Sequence[str] = (),
    program_of_agent: Sequence[str] = (),
    **options: Any,
) -> Iterator[Pinned]:
    """Run the agent beside a kubelet that runs already; the arguments are those of :func:`pinned`."""
    source = {"podManifests": str(kubelet.manifests)} if api is None else {"kubeconfig": str(api.kubeconfig)}
    text = _configuration(node, kubelet, case.policies, extensions, {**source, **options})
    settings = {"program": program_of_agent} if program_of_agent else {}
    with agent_on(node, machine="" if machine is None else str(machine), configuration=text, **settings) as agent:
        yield Pinned(kubelet, agent)


def _configuration(
    node: Runtime,
    kubelet: Kubelet,
    policies: Mapping[str, Any],
    extensions: Sequence[str],
    options: Mapping[str, Any],
) -> str:
    documents: list[Mapping[str, Any]] = [
        {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", **policies},
        {
            "kind": "AgentConfiguration",
            "apiVersion": "mooring/v1alpha1",
            "kubeletConfig": str(kubelet.configuration),
            "logLevel": "debug",
            "metricsAddress": "",
            "nodeName": kubelet.name,
            "nriSocket": str(node.nri_socket),
            "podResourcesSocket": "",
            "kubeletPodResourcesSocket": str(kubelet.pod_resources),
            "stateDir": str(node.folder / "state-of-agent"),
            "assignedDir": str(node.folder / "assigned"),
            "statusSocket": str(node.folder / "agent.sock"),
            **options,
        },
        {"kind": "MooringConfiguration", "apiVersion": "mooring/v1alpha1", "extensions": list(extensions)},
    ]
    return "\n---\n".join(json.dumps(one, indent=1) for one in documents)
