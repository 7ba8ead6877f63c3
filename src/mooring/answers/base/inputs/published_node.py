"""What ``mooring publish`` publishes: the kubelet of this computer, or a node that files describe."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mooring.cli.options import complete_file, text
from mooring.cli.output import warn
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import plan as planning
    from mooring.answers.base.inputs import checks
    from mooring.answers.base.inputs import configuration as configuration_inputs
    from mooring.answers.base.inputs import node as inputs
    from mooring.engine.releases.catalog import KubeletVersion, chosen_release
    from mooring.inputs.configuration import node_configuration, sources
    from mooring.inputs.machines import loader
    from mooring.published import facts_document as facts_documents
    from mooring.published import kubelet_source as kubelet_sources
    from mooring.published import naming, objects, writing
    from mooring.service import apiserver, podresources


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mooring.answers.base.plan import AnyPlan
    from mooring.cli.options import NodeOptions
    from mooring.engine.core.machine import Finding
    from mooring.inputs.configuration.sources import ConfigurationSource
    from mooring.published.kubelet_source import KubeletSource
    from mooring.published.naming import Names
    from mooring.published.objects import NodeFacts
    from mooring.service.apiserver import Cluster

KUBELET_ROOT = "/var/lib/kubelet"
_SOCKET = "pod-resources/kubelet.sock"

pod_resources_option = text(
    "--pod-resources",
    "PATH",
    f"Socket of the kubelet's PodResources API. Default: {_SOCKET} in its root directory.",
    complete_file,
)

KUBELET_PODS = "--kubelet-pods"
kubelet_pods_option = text(
    KUBELET_PODS,
    "URL",
    "Ask this kubelet for its pods, and no API server: http://127.0.0.1:10255, or https with --kubeconfig.",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as typed."""

    inputs: NodeOptions
    kubeconfig: str
    pod_resources: str
    dry_run: bool
    kubelet_pods: str = ""
    """Where the kubelet lists its pods, of a node without an API server."""

    @property
    def asks_cluster(self) -> bool:
        """Whether there is an API server that may be asked."""
        return not (self.dry_run or self.kubelet_pods)

    @property
    def is_described(self) -> bool:
        """Whether files describe the node, instead of the kubelet that runs on it."""
        files = self.inputs.machine or self.inputs.node or self.inputs.active
        return not self.pod_resources and bool(self.dry_run or files)

    @property
    def name(self) -> str:
        """Name of the node in the cluster."""
        return self.inputs.node_name or socket.gethostname().lower()


def described_node(asked: Asked) -> AnyPlan:
    """Return the node that files describe, with the pods that they say run on it.

    Raises:
        InputError: something cannot be read or understood.
    """
    return planning.make_plan(replace(inputs.question_of(asked.inputs), pods=()))


def described_name(asked: Asked) -> str:
    """Return the name of the node that files describe: as given, else that of its archive, else this computer's."""
    archive = inputs.read_node(asked.inputs.node)
    return asked.inputs.node_name or (archive.about.node if archive is not None else "") or asked.name


def kubelet_source(
    asked: Asked, names: Callable[[object], Names] | None = None
) -> tuple[KubeletSource, Callable[[], object]]:
    """Return the kubelet of this computer as a source, and how to close it.

    Args:
        asked: the options.
        names: asks which pod has which uid; the API server is asked by default.

    Raises:
        InputError: there is no root directory, or the configuration or the machine cannot be used.
    """
    for option, value in (("--node", asked.inputs.node), ("--active", asked.inputs.active)):
        if value:
            raise InputError("describes a node, and --pod-resources names one that runs", field=option)
    root = asked.inputs.state or KUBELET_ROOT
    checks.check_folder(root, "--state")

    warned: set[Finding] = set()

    def load() -> NodeFacts:
        config = asked.inputs.config or (f"{root}/config.yaml",)
        given = [one for path in config for one in sources.load_sources(path)]
        release = chosen_release(_versions(asked, given), nearest=asked.inputs.nearest_release)
        found = loader.load_machine(asked.inputs.machine)
        if found.info_error:
            raise InputError(f"cannot be described: {found.info_error}", source=found.name)
        configuration = node_configuration.configuration_of(given, release.release, found.info)
        if asked.inputs.strict:
            checks.check_strict(configuration.findings)
        findings = (*release.findings, *configuration.findings)
        warn(finding for finding in findings if finding not in warned)
        warned.update(findings)
        return objects.NodeFacts(facts_documents.essential(found.info), configuration.kubelet, configuration.mooring)

    attributes = load().mooring.device_attributes  # a mistake is reported now, not after the first pause
    asks_names = asked.asks_cluster and names is None
    api = naming.APINames(connector(asked.kubeconfig), asked.name) if asks_names else None
    path = asked.pod_resources or f"{root}/{_SOCKET}"
    client = podresources.PodResourcesClient(path)

    ends: list[Callable[[], object]] = [client.close, *([api.close] if api is not None else [])]
    lister: kubelet_sources.Lister = client
    if asked.asks_cluster:
        machine = loader.load_machine(asked.inputs.machine)
        listed = kubelet_sources.ListedSlices(connector(asked.kubeconfig), asked.name, machine.pci, attributes)
        lister = kubelet_sources.KubeletAndSlices(client, listed)
        ends.append(listed.close)

    def end() -> None:
        for close in ends:
            close()

    return kubelet_sources.KubeletSource(
        asked.name, Path(root), load, lister, socket=Path(path), names=names or api
    ), end


def connector(kubeconfig: str) -> Callable[[], Cluster]:
    """Return what opens the way to the API server.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    apiserver.configuration_of(kubeconfig or None)  # a mistake is reported now
    return lambda: apiserver.cluster_of(apiserver.configuration_of(kubeconfig or None))


def pods_connector(asked: Asked) -> Callable[[], Cluster]:
    """Return what opens the way to the kubelet that lists its pods.

    Raises:
        InputError: the address or the kubeconfig cannot be used.
    """
    address = urlsplit(asked.kubelet_pods)
    if address.scheme not in ("http", "https") or not address.hostname or address.path.strip("/") not in ("", "pods"):
        raise InputError(
            f"{asked.kubelet_pods!r:.80} is not the address of a kubelet",
            field=KUBELET_PODS,
            remedy="write http://127.0.0.1:10255 (readOnlyPort) or https://127.0.0.1:10250",
        )
    server = f"{address.scheme}://{address.netloc}"
    apiserver.configuration_at(server, asked.kubeconfig)  # a mistake is reported now
    return lambda: apiserver.cluster_of(apiserver.configuration_at(server, asked.kubeconfig))


def _versions(asked: Asked, given: Sequence[ConfigurationSource]) -> Iterator[KubeletVersion]:
    """Yield versions of the kubelet: of the option, of its Node object, of the program that is installed, of files."""
    yield configuration_inputs.requested_version(asked.inputs.kubelet_version)
    if asked.asks_cluster:
        registered = ""
        # Empty while the API server does not answer
        with suppress(apiserver.ClusterError), closing(connector(asked.kubeconfig)()) as cluster:
            registered = writing.node_kubelet_version(cluster.http, asked.name)
        yield KubeletVersion(registered, f"node {asked.name}")
    # The kubelet of this computer is the one that is published: a file may be older than it.
    yield KubeletVersion(configuration_inputs.installed_version(), "the kubelet of this computer")
    yield from configuration_inputs.configured_versions(given)
