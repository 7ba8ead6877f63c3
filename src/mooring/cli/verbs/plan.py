"""``mooring plan``: what would this node do with these pods?"""

from __future__ import annotations

from pathlib import Path

import click

from mooring.cli import options
from mooring.cli.answer import NO, YES, emit, json_text, warn
from mooring.cli.inputs import NodeOptions, plan_of
from mooring.planner.plan import Plan, plan_document

EPILOG = """\b
Examples:
  mooring plan -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  kubectl get pods -o json | mooring plan -f - --machine node.tar.gz --config kubelet.yaml
  mooring plan -f new.yaml --active running.yaml --state copy-of-kubelet-root --config kubelet.yaml -o json
"""


@click.command("plan", epilog=EPILOG)
@options.node_inputs
@click.option(
    "--save-state",
    "save",
    default="",
    metavar="DIR",
    help="Write the state files that the kubelet would have written.",
)
@options.output(("text", "wide", "json", "yaml"), "text")
@options.to_file
def command(
    manifests: tuple[str, ...],
    machine: str,
    config: tuple[str, ...],
    state: str,
    active: tuple[str, ...],
    save: str,
    form: str,
    to: str,
) -> int:
    """Admit pods in order on a node and say what becomes of each.

    Exit code 1 when a pod is rejected or the kubelet would not start.
    """
    plan = plan_of(NodeOptions(manifests, machine, config, state, active))
    if form in ("json", "yaml"):
        document = plan_document(plan)
        emit(json_text(document) if form == "json" else _yaml(document), to)
    else:
        warn(plan.findings)
        emit(_text(plan, wide=form == "wide", plain=bool(to)), to)
    if save and plan.refusal is None:
        _save(plan, save)
    return YES if plan.is_yes else NO


def _yaml(document: object) -> str:
    from mooring.manifest.yaml_writer import yaml_text  # noqa: PLC0415 - only for this format

    return yaml_text(document)


def _text(plan: Plan, *, wide: bool, plain: bool) -> str:
    from mooring.cli.plan_text import plan_text  # noqa: PLC0415 - rich is not needed for JSON

    return plan_text(plan, wide=wide, plain=plain)


def _save(plan: Plan, folder: str) -> None:
    from mooring.checkpoint.store import StateFolder, make_folder  # noqa: PLC0415 - only where it is asked for

    files = StateFolder(make_folder(Path(folder)))
    if plan.files.cpu is not None:
        files.write_cpu(plan.files.cpu)
    if plan.files.memory is not None:
        files.write_memory(plan.files.memory)
