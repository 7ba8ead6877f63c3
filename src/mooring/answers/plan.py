"""``mooring plan``: what would this node do with these pods? And ``mooring demo``, which asks that of an example."""

from __future__ import annotations

import shlex
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs import checks
from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, warn, write_answer
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import answering, plan_document, report
    from mooring.answers.base import check as checking
    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_text as text
    from mooring.documents import of_kubelet
    from mooring.engine.checkpoint import store
    from mooring.inputs.decoding import yaml_reader
    from mooring.views import html


if TYPE_CHECKING:
    from mooring.answers.base.plan import AnyPlan, Plan, Question

EPILOG = """\b
Examples:
  mooring plan -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  kubectl get pods -o json | mooring plan -f - --machine node.tar.gz --config kubelet.yaml
  mooring plan -f new.yaml --node node.tar.gz
  mooring plan -f new.yaml --active running.yaml --state copy-of-kubelet-root --config kubelet.yaml -o json
"""


@click.command("plan", cls=Verb, epilog=EPILOG)
@options.pods("Pods, workloads or lists, YAML or JSON; repeatable.", required=True)
@options.node_options("offline", "devices", "stop_at_crash")
@checks.alone
@options.text("--save-state", "DIR", "Write the state files as the kubelet writes them.", variable="save")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show each field of the configuration in force, and the file that sets it."
)
@options.output(
    ("text", "wide", "markdown", "json", "yaml", "html", "podresources", "metrics", "sarif", "junit"),
    "text",
)
@options.to_file
def command(save: str, form: str, to: str, inputs: NodeOptions, *, verbose: bool) -> int:
    """Admit pods in order on a node, and show the outcome of each.

    Exit code 1 when a pod is rejected or the kubelet would not start.
    """
    check_destination(to)
    if save:
        inputs = checks.with_running_kubelet(inputs)
        checks.check_save(save, inputs)
    read = read_inputs(inputs)
    question = question_from(read)
    plan = planning.make_plan(question)
    # Saved first: an answer that is on the screen is complete, with everything that was requested.
    if save and isinstance(plan, planning.Plan):
        # Empty texts never come up: a kubelet that started has made both files.
        store.StateFolder(store.make_folder(Path(save))).write_both(plan.files.cpu or "", plan.files.memory or "")
        warn(_restarted_later(question, plan))
    if form == "json":
        emit_document(plan_document.plan_json(plan), to)
    elif form == "yaml":
        emit_document(yaml_reader.yaml_text(plan_document.plan_document(plan)), to)
    elif form in checks.FORMS:
        node_types = [checking.NodeType(plan.machine.name, plan)]
        check = checks.check_of(node_types, question, read.manifests, inputs.template_paths, inputs.config)
        checks.emit_check(check, form, to)
    elif form == "html":
        emit_document(html.html_text(report.report_of(plan)), to)
    elif form in ("podresources", "metrics"):
        # These documents have no place for findings.
        warn(plan.findings)
        (emit if isinstance(plan, planning.RefusedPlan) else emit_document)(_view(plan, form), to)
    else:
        warn(plan.findings)
        effective = read.configuration.effective() if verbose else ()
        emit(text.plan_text(plan, effective, wide=form == "wide", to=to), to)
    return YES if plan.is_yes else NO


def _view(plan: AnyPlan, form: str) -> str:
    """Return the node after the plan as its API or its metrics would show it.

    A kubelet that does not start shows neither: then its refusal is the answer.
    """
    if isinstance(plan, planning.RefusedPlan):
        return plan.sentence
    if form == "metrics":
        from mooring.engine.node.metric_names import exposition  # noqa: PLC0415 - counted by then

        return exposition(plan.metrics)
    return json_text(of_kubelet.pod_resources_document(plan.kubelet.node))


def _restarted_later(question: Question, plan: Plan) -> list[Finding]:
    """Return what a restart of the kubelet does to the pods that a plan leaves on the node, beyond keeping them."""
    pods = tuple(one.pod for one in plan.answers if one.admitted and one.pod.uid not in plan.left)
    held = plan.kubelet.node.providers.devices.held
    after = planning.make_plan(
        replace(question, pods=(), active=pods, files=plan.files, held=held, findings=(), leaving={})
    )
    if isinstance(after, planning.RefusedPlan):
        return [
            Finding(
                "warning",
                answering.STATE_FILES,
                f"the kubelet does not start on them: {after.refusal.message}",
                answering.RESTART,
            )
        ]
    return [finding for finding in after.findings if finding.code == answering.RESTART]


DEMO_EPILOG = """\b
Examples:
  mooring demo
  mooring demo --to examples
"""
_DEMO_FILES = ("pods.yaml", "kubelet.yaml")
_DEMO_NODE = "-f {to}/pods.yaml --machine epyc-7763-2s-nps4 --config {to}/kubelet.yaml"
_DEMO_COMMANDS = (
    f"plan {_DEMO_NODE}",
    f"explain ai/inference {_DEMO_NODE}",
    f"show {_DEMO_NODE} -o svg --to {{to}}/node.svg",
)


@click.command("demo", cls=Verb, epilog=DEMO_EPILOG)
@click.option(
    "--to", default="mooring-demo", show_default=True, metavar="DIR", shell_complete=options.complete_folder,
    help="Where pods.yaml, kubelet.yaml and node.svg are written.",
)  # fmt: skip
@click.pass_context
def demo_command(context: click.Context, to: str) -> int:
    """Write example pods and a configuration, plan them, explain a rejection and draw the node.

    Each command is printed before it runs, so that it can be changed and typed again.
    """
    folder = Path(to)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _DEMO_FILES:
            content = resources.files(__package__).joinpath("demo", name).read_bytes()
            if not (folder / name).exists():
                write_answer(content, str(folder / name))
    except OSError as error:
        raise InputError(error.strerror or "cannot be written", source=to, field="--to") from None
    for line in _DEMO_COMMANDS:
        words = shlex.split(line.format(to=shlex.quote(to)))
        emit(f"$ mooring {shlex.join(words)}")
        verb = context.find_root().command
        verb.main(words, prog_name=context.find_root().info_name, standalone_mode=False)
        emit("")
    emit(f"The picture of the node is {to}/node.svg: open it in a browser. Change the files, and ask again.")
    return YES
