"""The entry point: finds the verb, and turns everything that can go wrong into one line and an exit code.

Source of the exit codes: docs/reference/command-line.md. Those above 2 are the usual ones of Unix: 70 is EX_SOFTWARE
of sysexits.h, 130 and 141 are what a shell reports for SIGINT and SIGPIPE.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from mooring import KUBELET_VERSION, __version__
from mooring.cli import output
from mooring.lazy import lazily

with lazily():
    import difflib
    import traceback

    from click import shell_completion

    from mooring.command import completion
    from mooring.engine.core import errors

BAD_INPUT = 2
DEFECT = 70
"""Exit code for an error of Mooring itself; the line requests a report."""
_INTERRUPTED = 130
_READER_GONE = 141
"""Exit code when the reader of a pipe went away: not 0, because no reader has the whole answer."""

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a stream that takes nothing fails with."""

TRACEBACK = "MOORING_TRACEBACK"
"""Environment variable that shows where an internal error came from."""

COMPLETION = "_MOORING_COMPLETE"
"""Environment variable by which shells request completions."""

PROGRAM = "mooring"
_PLUGIN = "kubectl mooring"
"""How people call the program when it is a plugin of kubectl."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Ask": {
        "demo": "Run an example that needs no input.",
        "plan": "Show what this node does with these pods.",
        "explain": "Explain why a pod was placed there, or rejected.",
        "whatif": "Change one thing and plan again, or find the nearest change.",
        "capacity": "Count how many more pods like this one fit.",
        "compare": "Compare configurations for the same pods.",
        "resize": "Show what happens if this pod is resized.",
        "upgrade": "Show what another kubelet release changes on this node.",
        "show": "Draw a machine and the owners of its CPUs.",
        "topology": "Show a machine as it is and as the kubelet sees it.",
        "machines": "List the machines that come with Mooring.",
        "replay": "Run recorded scenarios, and compare the answers.",
    },
    "This node": {
        "collect": "Pack machine, configuration, state and pods of this node into one file.",
        "doctor": "Check the kubelet's state files, and repair them.",
        "heal": "Before the kubelet starts: write a state on which it does.",
        "migrate": "Show how the agent takes over from this kubelet, step by step.",
        "agent": "Run the agent: pin the containers of this node.",
        "status": "Show the agent's status, or a shadow's counts.",
    },
    "A cluster": {
        "fleet": "Simulate a whole cluster: compare, size, what it does with its work.",
        "publish": "Publish what this node has allocated and what is left.",
        "extender": "Run the scheduler extender: filter nodes that reject a pod.",
        "play": "Play nodes at an API server that refuse pods like kubelets.",
        "dra": "Run the DRA driver: publish this node's CPUs as devices.",
        "deploy": "Run a task of the Helm chart's pods.",
    },
    "Watch": {
        "serve": "Show a node in the browser, live.",
        "shadow": "Check beside a kubelet, only reading, that its decisions are the engine's.",
        "record": "Record what kubelets do, as scenarios that replay.",
    },
    "About": {
        "version": "Show what is installed, and as which kubelets it decides.",
        "completion": "Print a shell completion script.",
    },
}
"""Group -> verb -> what ``mooring --help`` says; kept here so that help needs no import of the verbs."""
VERBS: Mapping[str, str] = {verb: about for verbs in GROUPS.values() for verb, about in verbs.items()}

_MODULES: Mapping[str, str] = {
    "agent": "agent.command",
    "collect": "answers.collect",
    "completion": "command.completion",
    "deploy": "cluster.deploy",
    "demo": "answers.plan:demo_command",
    "dra": "cluster.dra.command",
    "explain": "answers.explain",
    "extender": "cluster.extender.command",
    "fleet": "fleet.command",
    "heal": "answers.doctor.command:heal_command",
    "machines": "answers.topology:machines_command",
    "plan": "answers.plan",
    "play": "cluster.play.command",
    "publish": "cluster.publish",
    "record": "monitoring.shadow.commands:record_command",
    "replay": "answers.replay",
    "serve": "monitoring.serve.command",
    "shadow": "monitoring.shadow.commands:shadow_command",
    "show": "answers.show",
    "status": "answers.status",
    "topology": "answers.topology",
    "version": "command.version",
}
"""Verb -> module of its command, below ``mooring``; of all others it is ``answers.VERB.command``."""

EPILOG = """\b
Examples:
  mooring topology
  mooring plan -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring explain -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o svg --to node.svg
  mooring collect --to node.tar.gz

\b
Exit codes:
  0  done
  1  the answer is no: a pod is rejected, the kubelet would not start, a difference was found
  2  bad input or usage: one line on standard error names the place, the problem and the remedy
"""


_HINTS = {
    "plan": "; manifests are given with -f FILE",
    "show": "; manifests are given with -f FILE",
    "topology": "; a machine is given with --machine MACHINE",
}
"""Verb -> hint for a name that was typed without its option."""


class _Verbs(click.Group):
    """A group whose verbs are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all verbs."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        module, _, name = _MODULES.get(cmd_name, f"answers.{cmd_name}.command").partition(":")
        command = getattr(import_module(f"mooring.{module}"), name or "command")
        if not isinstance(command, click.Command):
            raise TypeError(f"the verb {cmd_name} has no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb, and name the nearest one for a misspelt one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS:
            near = difflib.get_close_matches(name, VERBS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; verbs are {', '.join(sorted(VERBS))}"
            raise click.UsageError(f"no such verb: {name!r:.80}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[shell_completion.CompletionItem]:
        """Complete verbs without importing them, and options."""
        names = [name for name in sorted(VERBS) if name.startswith(incomplete)]
        verbs = [shell_completion.CompletionItem(name, help=VERBS[name]) for name in names]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the verbs without importing them."""
        width = max(map(len, VERBS))
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(width), about) for verb, about in verbs.items()])


@click.group(
    cls=_Verbs,
    epilog=EPILOG,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message=f"%(prog)s %(version)s (decisions of kubelet {KUBELET_VERSION})")
def cli() -> None:
    """Mooring: the kubelet's CPU, memory, device and topology managers, with no cluster."""


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def kubectl_main() -> None:
    """Run the command line as ``kubectl mooring``: kubectl starts the program ``kubectl-mooring``."""
    sys.exit(run(sys.argv[1:], _PLUGIN))


def kubectl_complete_main() -> None:
    """Answer kubectl, which starts ``kubectl_complete-mooring`` to complete ``kubectl mooring``."""
    completion.complete_for_kubectl(cli, sys.argv[1:])


def run(arguments: Sequence[str], program: str = PROGRAM) -> int:
    """Run one command line and return its exit code. Errors become one line on standard error and are never raised.

    Args:
        arguments: what follows the program's name.
        program: how the person called it, for usage lines.
    """
    instruction = os.environ.get(COMPLETION)
    if instruction:
        return completion.answer(instruction)
    # What no terminal of this encoding can show is escaped: an answer with a strange name is better than none.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    with output.unfailing(sys.stderr):
        try:
            # click's own main() has other exit codes: it answers 1 to a closed pipe and treats an EOFError as an
            # interrupt.
            with cli.make_context(program, list(arguments)) as context:
                code = cli.invoke(context)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            output.drop_unwritten(sys.stdout)
            return _READER_GONE
        except (KeyboardInterrupt, click.Abort, Exception) as error:  # noqa: BLE001 - the last place to say something
            return _complain(error, arguments, program)
        return code if isinstance(code, int) else 0


def _complain(error: BaseException, arguments: Sequence[str], program: str) -> int:
    """Say what went wrong, and return the exit code."""
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        # Help and version are printed by click; all else that is written has its own line for this.
        error = output.unprintable(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        output.tell("")
        return _INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        output.tell(error.format_message())
    elif isinstance(error, click.ClickException):
        output.tell(_usage_line(error, arguments, program))
    elif isinstance(error, errors.MooringError):
        output.tell(f"mooring: {error}")
    else:
        _report_defect(error)
        return DEFECT
    return BAD_INPUT


def _usage_line(error: click.ClickException, arguments: Sequence[str], program: str) -> str:
    """Return a mistake in the command line as one line that ends with where to look."""
    context = getattr(error, "ctx", None)
    verb = next((word for word in arguments if word in VERBS), "")
    command = context.command_path if context is not None else f"{program} {verb}".rstrip()
    message = " ".join(error.format_message().split()).rstrip(".")
    hint = _HINTS.get(verb, "") if message.startswith(("Got unexpected extra argument", "Missing option '-f'")) else ""
    return f"{command}: {message[:1].lower()}{message[1:]}{hint}; see {command} --help"


def _report_defect(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        file = trace.tb_frame.f_code.co_filename.replace(os.sep, "/")
        place = f" in {file[file.rfind('mooring/') :] if 'mooring/' in file else file}:{trace.tb_lineno}"
    what = " ".join(f"{type(error).__name__}: {error}".split())
    output.tell(
        f"mooring: internal error{place}: {what:.300}; this is a defect of Mooring: please report it with the command "
        f"and its input ({TRACEBACK}=1 shows more)"
    )
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
