"""``mooring extender``: tell the scheduler which nodes would admit a pod."""

from __future__ import annotations

import click

from mooring.cli.options import complete_file
from mooring.cli.output import YES, emit
from mooring.core.errors import InputError

EPILOG = """\b
Examples:
  mooring extender --config /etc/mooring/extender.yaml
  mooring extender --config extender.yaml --kubeconfig ~/.kube/config
  mooring extender --config extender.yaml --check
"""


@click.command("extender", epilog=EPILOG)
@click.option(
    "--config", "config", required=True, metavar="FILE", shell_complete=complete_file, help="ExtenderConfiguration."
)
@click.option(
    "--kubeconfig",
    "kubeconfig",
    default="",
    metavar="FILE",
    shell_complete=complete_file,
    help="How to reach the API server. Default: the configuration's kubeconfig, else the pod's service account.",
)
@click.option("--check", is_flag=True, help="Read the configuration, say whether it can be used, and end.")
def command(config: str, kubeconfig: str, *, check: bool) -> int:
    """Be a scheduler extender until SIGTERM or SIGINT: filter, prioritize, preempt and bind.

    It runs the engine on what nodes have published with mooring publish or mooring agent, and on what was bound since.
    """
    try:
        if check:
            from mooring.scheduling.extender.options import load_extender_options  # noqa: PLC0415 - only then

            options = load_extender_options(config)
            emit(f"The configuration can be used; the extender would listen on {options.host}:{options.port}.")
            return YES
        from mooring.scheduling.extender.run import run_extender  # noqa: PLC0415 - needs the extra

        run_extender(config, kubeconfig)
    except ModuleNotFoundError as error:
        if (error.name or "mooring").startswith("mooring"):
            raise
        raise InputError(
            f"the package {error.name} is missing",
            source="mooring extender",
            remedy="install its packages: pip install '.[kube]' in a clone of Mooring",
        ) from None
    return YES
