"""``mooring deploy``: what pods of the Helm chart do beside Mooring's programs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.options import complete_file, complete_folder
from mooring.cli.output import NO, YES, Verb, emit, needs_extra
from mooring.lazy import lazily
from mooring.service.daemon import stop_signals

with lazily():
    from mooring.cluster import deployment
    from mooring.service import apiserver


if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC

EPILOG = """\b
Examples:
  mooring deploy certificates --namespace mooring
  mooring deploy leave --namespace mooring --kubeconfig admin.conf
  mooring deploy check --cpus 2
"""
_namespace = click.option("--namespace", default="mooring", show_default=True, metavar="NAME", help="Of the chart.")
_kubeconfig = options.kubeconfig("the service account of the pod")


def _file(name: str, about: str) -> Callable[[FC], FC]:
    return click.option(name, required=True, metavar="FILE", shell_complete=complete_file, help=about)


def _folder(name: str, about: str) -> Callable[[FC], FC]:
    return click.option(name, required=True, metavar="DIR", shell_complete=complete_folder, help=about)


@click.group("deploy", epilog=EPILOG, subcommand_metavar="TASK [ARGS]...")
def command() -> None:
    """Run a task of the Helm chart's pods, whose image has no shell."""


@command.command("prepare", cls=Verb)
@_file("--profile", "Seccomp profile of the agent.")
@_folder("--profiles", "The kubelet's directory of seccomp profiles.")
@_file("--kubeconfig", "Where the kubeconfig is written.")
@_file("--authority", "Certificate authority of the API server.")
@_folder("--tokens", "Directory with a directory for each account.")
@click.option("--account", "accounts", required=True, multiple=True, metavar="NAME", help="An account. Repeatable.")
def prepare(
    profile: str, profiles: str, kubeconfig: str, authority: str, tokens: str, accounts: tuple[str, ...]
) -> int:
    """Write what the agent needs on its node: its seccomp profile and a kubeconfig."""
    deployment.write_profile(Path(profile), Path(profiles))
    content = deployment.kubeconfig_of_pod(accounts, Path(tokens), Path(authority), os.environ)
    deployment.write_kubeconfig(Path(kubeconfig), content)
    return YES


@command.command("token", cls=Verb)
@_file("--from", "The projected token.")
@_file("--to", "Where the agent reads it.")
def token(**paths: str) -> int:
    """Copy a token to the node once a minute, until SIGTERM or SIGINT."""
    with stop_signals() as stop:
        deployment.keep_token(Path(paths["from"]), Path(paths["to"]), stop)
    return YES


@command.command("certificates", cls=Verb)
@_namespace
@_kubeconfig
def certificates(namespace: str, kubeconfig: str) -> int:
    """Make the certificates of extender and scheduler, or renew them when a third of their time is left."""
    with needs_extra("kube", source="mooring deploy certificates"):
        with apiserver.cluster_of(apiserver.configuration_of(kubeconfig or None)) as cluster:
            written = deployment.renew_secrets(cluster, namespace, datetime.now(UTC))
        emit(f"Written: {', '.join(written)}." if written else "No certificate is due.")
    return YES


@command.command("leave", cls=Verb)
@_namespace
@_kubeconfig
@click.option("--timeout", default=600, show_default=True, metavar="SECONDS", help="Time for all nodes.")
def leave(namespace: str, kubeconfig: str, timeout: int) -> int:
    """Stop the agent on every node, return all CPUs, memory nodes and CFS quotas to containers, and wait for it."""
    with (
        needs_extra("kube", source="mooring deploy leave"),
        apiserver.cluster_of(apiserver.configuration_of(kubeconfig or None)) as cluster,
    ):
        nodes = deployment.leave(cluster, namespace, float(timeout))
    emit("The agent has left 1 node." if nodes == 1 else f"The agent has left {nodes} nodes.")
    return YES


@command.command("wait", cls=Verb)
def wait() -> int:
    """Do nothing until SIGTERM or SIGINT."""
    with stop_signals() as stop:
        stop.wait()
    return YES


@command.command("check", cls=Verb)
@click.option("--cpus", required=True, type=click.IntRange(min=1), metavar="COUNT", help="CPUs that it must have.")
def check(cpus: int) -> int:
    """Print the CPUs on which this container may run; exit code 1 unless they are as many as it must have."""
    allowed = sorted(os.sched_getaffinity(0))
    emit(f"CPUs of this container: {','.join(map(str, allowed))}")
    return YES if len(allowed) == cpus else NO
