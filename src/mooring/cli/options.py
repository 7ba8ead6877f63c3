"""Options that verbs share: machine, configuration, manifests, state; and how a shell completes their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from mooring.cli.output import check_destination
from mooring.lazy import dataclass, lazily

with lazily():
    from click import shell_completion

    from mooring.engine.core import errors
    from mooring.engine.releases import catalog
    from mooring.inputs.machines import loader as catalogue
    from mooring.inputs.pods import pod_files

if TYPE_CHECKING:
    from mooring.inputs.archive.reader import NodeArchive


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The shared options as typed."""

    manifests: Sequence[str] = ()
    machine: str = ""
    """What ``--machine`` names, one a line."""
    config: Sequence[str] = ()
    state: str = ""
    active: Sequence[str] = ()
    node: str = ""
    """A node archive; what the other options name comes from there instead."""
    offline: str = ""
    """CPUs that are offline; with the extension cpu-hotplug they go offline when the running pods are back."""
    strict: bool = False
    """Whether unknown fields are refused."""
    node_name: str = ""
    """Name of the node whose pods are taken of those that are active."""
    stop_at_crash: bool = False
    """Whether pods after one on which the kubelet crashes are not asked."""
    kubelet_version: str = ""
    """The kubelet release that decides; empty for the node's own."""
    nearest_release: bool = False
    """Whether the oldest known release decides for an older kubelet."""
    template_paths: Sequence[str] = ()
    """``KIND=PATH`` of pod templates that are not recognized."""
    inject: Sequence[str] = ()
    """Files with the containers that webhooks add to marked pods of the manifests."""
    devices: str = ""
    """``kubelet`` or ``follow``: who decides about devices; empty where the configuration says it."""
    alone: bool = False
    """Whether each pod of the manifests ends before the next is asked about."""
    debug_image: str = ""
    """Image of the pod that collects a node of the cluster about which nothing is published."""
    named: Sequence[str] = ()
    """Pods that the verb is asked about, even if they have ended."""
    running: NodeArchive | None = None
    """The node of the cluster that ``node`` names, or of the kubelet that runs on this computer."""
    left_out: frozenset[str] = frozenset()
    """Of ``config``, ``state`` and ``active`` those given as ``none``."""

    @property
    def describes_node(self) -> bool:
        """Tell whether there is more than a machine: then a kubelet is to be started on it."""
        given = self.manifests or self.active or self.state or self.config or self.node
        return bool(given) or self.running is not None

    @property
    def words(self) -> tuple[str, ...]:
        """The options as they are typed, so that a command with them is asked about the same node and pods.

        >>> NodeOptions(["pods.yaml"], machine="cores=8", strict=True).words
        ('-f', 'pods.yaml', '--machine', 'cores=8', '--strict')
        """
        given = (
            ("-f", self.manifests),
            ("--pod-template-path", self.template_paths),
            ("--inject", self.inject),
            ("--machine", self.machine.split("\n")),
            ("--config", self.config),
            ("--state", [self.state]),
            ("--active", self.active),
            ("--node", [self.node]),
            ("--debug-image", [self.debug_image]),
            ("--node-name", [self.node_name]),
            ("--kubelet-version", [self.kubelet_version]),
            ("--offline", [self.offline]),
            ("--devices", [self.devices]),
        )
        flags = (
            ("--nearest-release", self.nearest_release),
            ("--strict", self.strict),
            ("--alone", self.alone),
            ("--stop-at-crash", self.stop_at_crash),
        )
        left_out = [(f"--{part}", ["none"]) for part in sorted(self.left_out)]
        words = [
            word for option, values in (*given, *left_out) for value in values if value for word in (option, value)
        ]
        return (*words, *(flag for flag, is_given in flags if is_given))


_Function = TypeVar("_Function", bound=Callable[..., Any])


_Completion: TypeAlias = Callable[[click.Context, click.Parameter, str], list[shell_completion.CompletionItem]]


def _completes(kind: str) -> _Completion:
    return lambda _context, _parameter, incomplete: [shell_completion.CompletionItem(incomplete, type=kind)]


complete_file, complete_folder = _completes("file"), _completes("dir")
"""Let the shell complete a file, a directory."""


def among(names: Callable[[], Iterable[str]], *, after: str = "") -> _Completion:
    """Let the shell complete one of some names, or several with the sign ``after`` between them."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[shell_completion.CompletionItem]:
        before, sign, begun = incomplete.rpartition(after) if after else ("", "", incomplete)
        chosen = before.split(after) if after else ()
        found = (name for name in names() if name.startswith(begun) and name not in chosen)
        return [shell_completion.CompletionItem(f"{before}{sign}{name}") for name in found]

    return complete


def complete_pod(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[shell_completion.CompletionItem]:
    """Complete the name of a pod of ``-f``, with its namespace or without."""
    try:
        pods = pod_files.load_pods([one for one in context.params.get("manifests") or () if one != "-"])
    except (errors.MooringError, OSError):
        return []
    whole = [name for pod in pods if (name := f"{pod.namespace}/{pod.name}").startswith(incomplete)]
    names = whole or [pod.name for pod in pods if pod.name.startswith(incomplete)]
    return [shell_completion.CompletionItem(name) for name in names]


complete_release = among(lambda: catalog.RELEASES, after=",")
"""Let the shell complete releases of the kubelet."""


def _complete_machine(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[shell_completion.CompletionItem]:
    """Complete the name of a shipped machine; what begins none of them is a file."""
    named = [
        shell_completion.CompletionItem(name, help=shipped.description)
        for name, shipped in catalogue.SHIPPED.items()
        if name.startswith(incomplete)
    ]
    return named or complete_file(context, parameter, incomplete)


def text(
    name: str, metavar: str, meaning: str, complete: Callable[..., Any] | None = None, variable: str = "", **more: Any
) -> Callable[[_Function], _Function]:
    """Return an option with one text, empty by default, with several or a required one; ``more`` is for click."""
    given = more if more.keys() & {"multiple", "required"} else {"default": "", **more}
    variable = variable or name.lstrip("-").replace("-", "_")
    return click.option(name, variable, metavar=metavar, shell_complete=complete, help=meaning, **given)


def texts(*words: Any, **more: Any) -> Callable[[_Function], _Function]:
    """Return an option with any number of texts; otherwise as :func:`text`."""
    return text(*words, multiple=True, **more)


def flag(name: str, meaning: str) -> Callable[[_Function], _Function]:
    """Return an option without a value."""
    return click.option(name, is_flag=True, help=meaning)


def number(name: str, allowed: range, meaning: str, *, default: int | None = None) -> Callable[[_Function], _Function]:
    """Return an option with a number of a range."""
    kind = click.IntRange(allowed.start, allowed.stop - 1)
    return click.option(name, type=kind, default=default, show_default=default is not None, help=meaning)


machine = texts(
    "--machine",
    "MACHINE",
    "A shipped name, compact text (sockets=2 numa=4 cores=16 ...), a sysfs folder or tarball, or a file: "
    "MachineInfo, lscpu -J, lstopo XML, numactl -H, virsh capabilities, NodeResourceTopology; - is standard input. "
    "Amounts such as memory=64Gi or node0.hugepages-1Gi=8 may follow. Repeatable where each completes the others, such "
    "as lscpu and numactl. Default: this computer.",
    _complete_machine,
    callback=lambda _context, _parameter, values: "\n".join(values),
)


def pods(meaning: str, *, required: bool = False) -> Callable[[_Function], _Function]:
    """Return the option ``-f`` with the one that goes with it; the verb says what it does with the pods."""
    manifests = click.option(
        "-f",
        "--filename",
        "manifests",
        multiple=True,
        required=required,
        metavar="FILE|DIR|-",
        shell_complete=complete_file,
        help=meaning,
    )
    return lambda function: manifests(_template_paths(_inject(function)))


_template_paths = texts(
    "--pod-template-path",
    "KIND=PATH",
    "Where objects of a kind have a pod template or a pod spec, such as InferenceService=spec.predictor, if it is not "
    "found; repeatable.",
    variable="template_paths",
)

_inject = texts(
    "--inject",
    "FILE",
    "Containers that a webhook, such as a mesh's, adds to pods of -f that are marked for it; repeatable.",
    complete_file,
)

config = texts(
    "--config",
    "FILE|DIR|-",
    "What configures the kubelet: KubeletConfiguration, /configz, a vendor's file, a folder of drop-ins, flags; "
    "and MooringConfiguration. Repeatable. Default: the kubelet's own.",
    complete_file,
)

state = text(
    "--state",
    "DIR",
    "A kubelet root directory whose state files the plan continues from; it is never written.",
    complete_folder,
)

active = texts(
    "--active",
    "FILE|DIR|-",
    "Pods that are already running; repeatable. Nodes among them name their kubelet's release.",
    complete_file,
)

node = text(
    "--node",
    "FILE|NAME",
    "A node archive of mooring collect, or a node of the cluster, instead of --machine, --config, --state and "
    "--active; each of these options replaces that part. Default: for root, the kubelet that runs on this computer; "
    "none leaves it out.",
    complete_file,
)

debug_image = text(
    "--debug-image",
    "IMAGE",
    "If nothing is published about a node of the cluster: collect it in a pod of this image, such as busybox, without "
    "asking.",
)

offline = text(
    "--offline",
    "CPUS",
    "CPUs, such as 3,7, that are offline when the kubelet starts; with the extension cpu-hotplug they go offline "
    "after the running pods are admitted again.",
)

strict = flag("--strict", "Refuse fields that pods and configurations do not have, with exit code 2.")

name_of_node = text(
    "--node-name",
    "NAME",
    "Which node's pods to take. Default: the archive's, the named pod's, all pods', or this computer's.",
)

devices = click.option(
    "--devices",
    type=click.Choice(["kubelet", "follow"]),
    default=None,
    callback=lambda _context, _parameter, value: value or "",
    help="kubelet: one merge of devices, CPUs and memory, without devices of claims. follow: devices come first, and "
    "CPUs and memory follow them, as with the node agent. Default: follow with the extension device-alignment.",
)

stop_at_crash = flag(
    "--stop-at-crash",
    "Do not ask about pods after one on which the kubelet crashes. Default: go on without that pod.",
)

kubelet_version = text(
    "--kubelet-version",
    "VERSION",
    "Decide as the kubelet of this release, such as 1.34 or v1.34.4-eks-1. Default: the node's own where it is "
    "known, else the newest.",
    complete_release,
)

nearest_release = flag(
    "--nearest-release",
    "Decide as the oldest known release for a kubelet that is older.",
)


_NODE: Mapping[str, Callable[..., Any]] = {
    "machine": machine,
    "config": config,
    "state": state,
    "active": active,
    "node": node,
    "debug_image": debug_image,
    "node_name": name_of_node,
    "kubelet_version": kubelet_version,
    "nearest_release": nearest_release,
    "strict": strict,
}
"""The options that describe a node, in the order of ``--help``."""
_PLANNED: Mapping[str, Callable[..., Any]] = {"offline": offline, "devices": devices, "stop_at_crash": stop_at_crash}
_FIELDS = frozenset(field.name for field in fields(NodeOptions))


def node_options(*planned: str, without: Sequence[str] = ()) -> Callable[[_Function], Callable[..., Any]]:
    """Add the options that describe a node; the verb receives all shared options as one argument, ``inputs``.

    Options of the same names that the verb declares itself, such as ``-f``, are in ``inputs`` as well.

    Args:
        planned: names of further options, of those that only some plans have.
        without: names of options that the verb has in another form, or not at all.
    """
    chosen = [option for name, option in _NODE.items() if name not in without]
    chosen += [_PLANNED[name] for name in planned]

    def add(function: _Function) -> Callable[..., Any]:
        @wraps(function)
        def with_inputs(**given: Any) -> Any:
            shared = {name: given.pop(name) for name in _FIELDS & given.keys()}
            return function(inputs=NodeOptions(**shared), **given)

        for option in reversed(chosen):
            with_inputs = option(with_inputs)
        return with_inputs

    return add


def output(formats: tuple[str, ...], default: str) -> Callable[[_Function], _Function]:
    """Return the option ``-o`` with the given formats."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(formats), default=default, show_default=True, help="Output format."
    )


def configuration(meaning: str) -> Callable[[_Function], _Function]:
    """Return the required option ``--config`` of a daemon."""
    return text("--config", "FILE", meaning, complete_file, required=True)


def kubeconfig(default: str) -> Callable[[_Function], _Function]:
    """Return the option ``--kubeconfig``; the verb says what its default is."""
    return text("--kubeconfig", "FILE", f"How to reach the API server. Default: {default}.", complete_file)


def node_name(default: str, variable: str | None = None) -> Callable[[_Function], _Function]:
    """Return the option ``--node-name``, also read from an environment variable; the verb says what its default is."""
    return text("--node-name", "NAME", f"Name of the node in the cluster. Default: {default}.", envvar=variable)


def kubelet_root(meaning: str, default: str = "") -> Callable[[_Function], _Function]:
    """Return the option ``--kubelet-root``."""
    return text("--kubelet-root", "DIR", meaning, complete_folder, default=default, show_default=bool(default))


agent_socket = text(
    "--socket", "PATH", "The status socket of the agent. Default: /run/mooring/status.sock.", complete_file
)

to_file = text(
    "--to",
    "FILE",
    "Write the output to a file instead of the terminal; - is standard output.",
    complete_file,
    callback=lambda _context, _parameter, to: check_destination(to),
)
