"""``mooring extender``: tell the scheduler which nodes would admit a pod."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import YES, Verb, emit, needs_extra
from mooring.lazy import lazily

with lazily():
    from mooring.cluster.extender import options as extender_options
    from mooring.cluster.extender import run


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
        run.run_extender(config, kubeconfig, advertise)
    return YES
