"""``mooring migrate``: what happens when the agent replaces this kubelet's managers, step by step?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb
from mooring.documents.plan import PlacementPart
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import clean
from mooring.engine.core.release import NEWEST
from mooring.engine.releases.config_fields import POLICY_FIELDS
from mooring.explanations.phrases import plural
from mooring.lazy import lazily
from mooring.views.console import indented

with lazily():
    from mooring.answers.base import plan as planning
    from mooring.answers.migrate import migration as migrating
    from mooring.cli import terminal
    from mooring.engine.node import settings


EPILOG = """\b
Examples:
  mooring migrate
  mooring migrate --node node.tar.gz
  mooring migrate --node n1 --drain
  mooring migrate --state copy-of-kubelet-root --config kubelet.yaml --active running.yaml -o json
"""


@click.command("migrate", cls=Verb, epilog=EPILOG)
@options.node_options()
@options.flag("--drain", "Evict the pods first. Default: in place, they run on.")
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str, inputs: NodeOptions, *, drain: bool) -> int:
    """Show how the agent takes over from the kubelet's CPU and memory managers on a node, and the way back.

    Checks come first; each step has its commands and what it does to the running pods, computed for this node. Nothing
    is executed.

    Exit code 1 when a check fails.
    """
    read = read_inputs(inputs)
    question = question_from(read)
    archive = read.archive
    node = read.options.node_name or ("" if archive is None else archive.about.node)
    root = (archive.kubelet_root if archive is not None else "") or KUBELET_ROOT
    devices = None if archive is None else archive.devices().record
    document = migration_document(migrating.migration_of(question, devices, drained=drain), node, root)
    terminal.print_answer(form, to, document, migration_parts(document), document.findings)
    return YES if document.passed else NO


AGENT_FILE = "/etc/mooring/agent.yaml"
KUBELET_ROOT = "/var/lib/kubelet"
COPY = "/var/lib/mooring-rollback"
"""Where the kubelet's files are kept for the way back."""


MEMORY_ANEW = "Memory nodes are decided anew in the order in which the runtime lists the pods: others may come of it."
"""Seen with containerd 2.1.9, which lists them in any order; CPUs are taken over from its record."""
MEMORY_STAYS = "A kubelet sets memory nodes only when it creates a container: those that run may use every node."
"""Source: spec: memory-manager.md section 8."""

_WITHOUT_MANAGERS = "cpuManagerPolicy: none, memoryManagerPolicy: None, no cpuManagerPolicyOptions"


def migration_document(migration: migrating.Migration, node: str, root: str) -> migrating.MigrationDocument:
    """Return the document.

    Args:
        migration: what was computed.
        node: the node's name; empty where it is not known.
        root: the kubelet's root directory.
    """
    named = node or "NODE"
    return migrating.MigrationDocument(
        node=node,
        machine=migration.question.machine.name,
        kubelet=migration.question.mooring.release.tag,
        way="drain" if migration.drained else "in place",
        passed=all(check.passed for check in migration.checks),
        checks=list(migration.checks),
        containers=list(migration.containers),
        shared_pool=str(migration.shared_pool),
        steps=list(_steps(migration, named, root)),
        rollback=list(_rollback(migration, named, root)),
        findings=migration.diagnosis.findings,
    )


def _rollback(migration: migrating.Migration, node: str, root: str) -> tuple[migrating.MigrationStepPart, ...]:
    """Return the steps back to the kubelet's managers."""
    answers = migration.rollback.answers
    names = plural(sum(one.admitted for one in answers), "pod")
    back = (
        f"On the copied files the kubelet starts, and {names} of now get back the CPUs that they have now.",
        *((MEMORY_STAYS,) if migration.question.config.memory_manager_policy != "None" else ()),
        "Pods that were created since are not in these files: drain the node first if there are any.",
    )
    anew = ("The kubelet starts without state files and places the pods that come anew.",)
    files = shlex.join(["cp", "-a", f"{COPY}/config.yaml", _config_file(root)])
    written = (f"{COPY}/{name}" for name in _written(migration.question.config))
    state = shlex.join(["cp", "-a", *written, f"{root}/"])
    return (
        _away(migration, node, ()),
        _step(
            "Stop the agent and release what it pins",
            (
                "systemctl disable --now mooring-agent",
                shlex.join(["mooring", "agent", "--config", AGENT_FILE, "--leave"]),
            ),
            ("Running containers get every CPU and memory node, without a restart.",),
        ),
        _step(
            "Let the kubelet manage CPUs and memory again",
            ("systemctl stop kubelet", files, *(() if migration.drained else (state,)), "systemctl start kubelet"),
            anew if migration.drained else back,
        ),
        _step("Let pods come", (shlex.join(["kubectl", "uncordon", node]),), ()),
    )


def _config_file(root: str) -> str:
    return f"{root.rstrip('/')}/config.yaml"


def agent_file(config: KubeletConfig, file: str, kubelet: str) -> str:
    """Return the agent's file with the policies of a kubelet.

    Args:
        config: of the kubelet as it is.
        file: the kubelet's, from which the agent takes reservations and gates.
        kubelet: release as which the engine decides, such as ``1.34``; empty for the newest.
    """
    fields = sorted((one.name, one.of(config)) for one in POLICY_FIELDS)
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields if value]
    own = [f"kubeletConfig: {json.dumps(file)}", *([f'kubeletVersion: "{kubelet}"'] if kubelet else [])]
    return "\n".join(
        [
            "apiVersion: kubelet.config.k8s.io/v1beta1",
            "kind: KubeletConfiguration",
            *lines,
            "---",
            "apiVersion: mooring/v1alpha1",
            "kind: AgentConfiguration",
            *own,
            "",
        ]
    )


def _step(
    title: str, commands: tuple[str, ...], outcome: tuple[str, ...], files: dict[str, str] | None = None
) -> migrating.MigrationStepPart:
    """Return a step with its commands, what happens in sentences, and the files to write before."""
    return migrating.MigrationStepPart(title, files or {}, list(commands), list(outcome))


def _steps(migration: migrating.Migration, node: str, root: str) -> Iterator[migrating.MigrationStepPart]:
    question = migration.question
    release = question.mooring.release
    config = _config_file(root)
    text = agent_file(question.config, config, "" if release == NEWEST else release.name)
    yield _step(
        "Install the agent, and do not start it",
        ("ls -l /var/run/nri/nri.sock", "mooring --version"),
        ("The agent decides by the kubelet's policies of now.",),
        {AGENT_FILE: text},
    )
    stay = plural(len(question.active), "running pod")
    yield _away(
        migration,
        node,
        (f"Of {stay} those of DaemonSets and static pods stay; the others are evicted.",)
        if migration.drained
        else (f"{stay} stay and run on.",),
    )
    copied = (f"{root}/{name}" for name in _written(question.config))
    yield _step(
        "Copy the kubelet's files for the way back",
        (shlex.join(["mkdir", "-p", COPY]), shlex.join(["cp", "-a", config, *copied, f"{COPY}/"])),
        (),
    )
    plan, agent = migration.without_managers, migration.agent
    admitted = sum(one.admitted for one in plan.answers)
    starts = f"The kubelet starts and readmits {admitted} of {plural(len(plan.answers), 'running pod')}."
    if error := planning.start_error(plan):
        starts = f"The kubelet does not start: {error}"
    refused = f"With the state files left in place it would not start: {migration.with_files}"
    yield _step(
        "Disable the kubelet's own managers",
        (
            "systemctl stop kubelet",
            f"# in {clean(config)}: {_WITHOUT_MANAGERS}",
            shlex.join(["rm", "-f", f"{root}/{settings.CPU_FILE}", f"{root}/{settings.MEMORY_FILE}"]),
            "systemctl start kubelet",
        ),
        (
            starts,
            *([refused] if migration.with_files else []),
            "Running containers keep their cpusets; containers that start now run on every CPU.",
        ),
    )
    yield _step("Start the agent", ("systemctl enable --now mooring-agent",), tuple(_takeover_lines(migration)))
    ready: tuple[str, ...] = ()
    if agent is not None:
        ready = (f"mooring status prints ready, and CPUs {migrating.exclusive_cpus(agent) or 'none'} as exclusive.",)
    yield _step("Verify, and let pods come", ("mooring status", shlex.join(["kubectl", "uncordon", node])), ready)


def _written(config: KubeletConfig) -> tuple[str, ...]:
    """Return the state files that a kubelet writes."""
    return (settings.CPU_FILE,) if config.memory_manager_policy == "None" else (settings.CPU_FILE, settings.MEMORY_FILE)


def _away(migration: migrating.Migration, node: str, outcome: tuple[str, ...]) -> migrating.MigrationStepPart:
    if migration.drained:
        return _step("Drain the node", (shlex.join(["kubectl", "drain", node, "--ignore-daemonsets"]),), outcome)
    return _step("Keep pods away", (shlex.join(["kubectl", "cordon", node]),), outcome)


def _takeover_lines(migration: migrating.Migration) -> Iterator[str]:
    if migration.agent is None:
        yield "Not asked: a check has failed."
        return
    for one in migration.containers:
        name = f"{one.namespace}/{one.name}/{one.container}"
        match migrating.TakeoverOutcome(one.outcome):
            case migrating.TakeoverOutcome.KEPT:
                yield f"{name} keeps {_held(one.before)}."
            case migrating.TakeoverOutcome.MOVED:
                yield f"{name} moves while it runs: {_held(one.before)} before, {_held(one.after)} afterwards."
            case migrating.TakeoverOutcome.WAITS:
                yield f"{name} runs in the shared pool until there is room: {one.reason}"
            case migrating.TakeoverOutcome.SHARED:
                pass
    for name, cpus in migrating.ended_containers(migration.agent, migration.question.active):
        yield f"{name} has ended, and CPUs {cpus} are kept for it until its pod ends."
    if migration.question.config.memory_manager_policy != "None":
        yield MEMORY_ANEW
    shared = sum(one.outcome == migrating.TakeoverOutcome.SHARED for one in migration.containers)
    yield f"{plural(shared, 'container')} in the shared pool: CPUs {migration.shared_pool or 'none'}."


def _held(one: PlacementPart) -> str:
    cpus = f"CPUs {one.cpus}" if one.cpus else "no CPUs of its own"
    return f"{cpus}, memory of NUMA nodes {one.mems}" if one.mems else cpus


_INDENT = 3


def migration_parts(migration: migrating.MigrationDocument) -> Iterator[RenderableType]:
    """Yield the migration for people."""
    name = clean(migration.node or migration.machine)
    yield Text.assemble((name, "bold"), f": from the kubelet's managers to the agent, {migration.way}")
    failed = [check for check in migration.checks if not check.passed]
    verdict = f"Do not start: {failed[0].name}." if failed else "Every check has passed. Nothing was changed."
    yield Text(verdict, "bold red" if failed else "bold")
    yield Text("")
    for check in migration.checks:
        word, style = ("ok    ", "green") if check.passed else ("FAILED", "bold red")
        yield Text.assemble((word, style), f" {check.name}: {clean(check.message)}")
    yield from _section("Steps", migration.steps)
    yield from _section("The way back", migration.rollback)


def _section(title: str, steps: Iterable[migrating.MigrationStepPart]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold")
    for number, step in enumerate(steps, 1):
        yield Text("")
        yield Text(f"{number}. {step.title}")
        for path, content in step.files.items():
            yield indented(f"{path}:", "dim", by=_INDENT)
            yield indented(clean_lines(content), by=5)
        for command in step.commands:
            # In one line whatever the terminal's width: it is there to be copied, and a padding would cut it off.
            yield Text(" " * _INDENT + clean(command), "cyan", no_wrap=True, overflow="ignore")
        for line in step.outcome:
            yield indented(f"→ {clean(line)}", by=_INDENT)


def clean_lines(content: str) -> str:
    """Return a text with its lines, and nothing that a terminal would obey."""
    return "\n".join(clean(line) for line in content.rstrip("\n").split("\n"))
