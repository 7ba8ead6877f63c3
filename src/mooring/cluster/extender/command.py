"""``mooring extender``: tell the scheduler which nodes would admit a pod."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import YES, Verb, emit, needs_extra
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from msgspec import structs

    from mooring.cluster.extender import options as extender_options
    from mooring.cluster.extender import run
    from mooring.service import apiserver, daemon, http, lease, logs
    from mooring.service import options as service_options

if TYPE_CHECKING:
    from mooring.service.apiserver import Cluster

EPILOG = """\b
Examples:
  mooring extender --config /etc/mooring/extender.yaml
  mooring extender --config extender.yaml --kubeconfig ~/.kube/config
  mooring extender --config extender.yaml --check
"""


@click.command("extender", cls=Verb, epilog=EPILOG)
@options.configuration("ExtenderConfiguration.")
@options.kubeconfig("the configuration's kubeconfig, or else the pod's service account")
@click.option("--advertise", default="", metavar="NAME", help="Name in the Lease; by default the host's with the port.")
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
def command(config: str, kubeconfig: str, advertise: str, *, check: bool) -> int:
    """Run a scheduler extender until SIGTERM or SIGINT: filter, prioritize, preempt and bind.

    It runs the engine on what nodes published with mooring publish or mooring agent, and on the pods bound since.
    """
    with needs_extra("kube", source="mooring extender"):
        if check:
            asked = extender_options.load_extender_options(config)
            emit(f"The configuration can be used; the extender would listen on {asked.listen}.")
            return YES
        run_extender(config, kubeconfig, advertise)
    return YES


def run_extender(config: str, kubeconfig: str, advertise: str = "") -> None:
    """Be the extender until SIGTERM or SIGINT.

    Args:
        config: its file.
        kubeconfig: in place of the file's.
        advertise: name of this replica in the Lease; by default the host's with the port.

    Raises:
        InputError: it cannot begin.
        ClusterError: the Lease is lost.
    """
    extender_with = run.extender_with  # first, so that a package that is missing is named before a mistake in the file
    asked = extender_options.load_extender_options(config)
    asked = structs.replace(asked, kubeconfig=kubeconfig or asked.kubeconfig)
    configuration = apiserver.configuration_of(asked.kubeconfig or None)
    log = logs.start_log(asked.log_format, service_options.LogLevel.INFO, name="mooring.extender")

    def connect() -> Cluster:
        try:
            return apiserver.cluster_of(configuration)
        except InputError as error:
            raise apiserver.ClusterError(str(error)) from None

    apiserver.cluster_of(configuration).close()  # mistakes in the credentials are reported at once
    election = None
    if asked.lease.name:
        connected = partial(apiserver.cluster_of, configuration, answer_time=lease.ANSWER_TIME)
        name = advertise or f"{socket.gethostname()}:{asked.listen.port}"
        election = lease.Election(
            *lease.lease_at(connected, asked.lease.namespace, asked.lease.name), name, time.monotonic
        )

    def report(about: str, problem: str) -> None:
        log.warning(problem, about=about)

    traces = logs.open_traces("mooring-extender", os.environ, log.warning)
    extender = extender_with(asked, connect, report, election=election, traces=traces)
    with ExitStack() as opened:
        if traces is not None:
            opened.callback(traces.close)
        if asked.health_address is not None:
            listener = http.listener_at(asked.health_address, "choose another address", field="healthAddress")
            opened.callback(http.HTTPServer(listener, extender.service.health, run.limits_of(asked)).close)
        if asked.webhook_address is not None:
            opened.callback(run.serve(asked, extender.service.webhook, report=report, is_webhook=True).close)
        server = run.serve(asked, extender.service.app, report=report)
        opened.callback(extender.stop)
        with closing(server), daemon.short_turns(), daemon.stop_signals() as stop:
            extender.start()
            log.info("extender started", listen=str(asked.listen), tls=bool(asked.tls.certificate))
            if election is None:
                stop.wait()
            else:
                election.take_part(lambda: extender.has_listed and not extender.hang(), stop, report)
        if election is not None:
            extender.service.finish_binds()
            with suppress(apiserver.ClusterError):
                election.release()
    log.info("extender stopped")
