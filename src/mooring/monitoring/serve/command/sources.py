"""Where a page's node comes from: the status of an agent, or what the options describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mooring.answers.base.inputs.checks import STANDARD_INPUT
from mooring.answers.base.inputs.node import question_of
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.agent import options as agent_options
    from mooring.agent.status import api
    from mooring.agent.status import picture as status_picture
    from mooring.answers.base.inputs import running as running_inputs
    from mooring.monitoring.serve import agent_status, node_plan, shadowed, watched
    from mooring.monitoring.serve import history as histories

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.cli.options import NodeOptions
    from mooring.monitoring.serve.recording import KeptMoments
    from mooring.monitoring.serve.snapshot import NodeSnapshot


def agent_source(socket: str) -> Callable[[], NodeSnapshot]:
    """Return what asks an agent.

    Raises:
        InputError: no agent answers.
    """
    path = socket or agent_options.STATUS_SOCKET
    machine = api.ask_machine(path)

    def source() -> NodeSnapshot:
        document = api.ask_status(path)
        return agent_status.snapshot_of_status(status_picture.status_view(machine, document), document)

    return source


def described_source(inputs: NodeOptions) -> Callable[[], NodeSnapshot]:
    """Return what reads the node that options describe; without any, that of the kubelet of this computer."""

    def read() -> tuple[NodeSnapshot, list[Path]]:
        asked = running_inputs.with_running_kubelet(inputs)
        kubelet = asked.running.kubelet if asked.running is not None else None
        folders = [inputs.state, *([running_inputs.state_folder(kubelet)] if kubelet is not None else [])]
        files = [Path(folder) / name for folder in folders if folder for name in watched.STATE_FILES]
        files += [Path(name) for name in (*inputs.manifests, *inputs.active, *inputs.config, inputs.node) if name]
        return node_plan.snapshot_of(question_of(asked)), files

    return watched.WatchedNode(read)


def check_rereadable(inputs: NodeOptions) -> None:
    """Refuse standard input: a live page reads the node again and again, and standard input is empty the second time.

    Raises:
        InputError: an option names it.
    """
    if STANDARD_INPUT in (*inputs.manifests, *inputs.active, *inputs.config, inputs.machine):
        problem = "can be read only once, and the page reads the node periodically"
        raise InputError(problem, source="standard input", remedy="name a file, or write one page with --export")


def kept_moments(history: str, recordings: str, report: Callable[[str], object]) -> KeptMoments | None:
    """Return the moments before the page's start; None where no folder is named.

    Args:
        history: folder of the page's own timeline.
        recordings: folder of a shadow.
        report: receives why a moment cannot be kept.

    Raises:
        InputError: the folder cannot be used.
    """
    if history:
        return histories.SnapshotHistory(Path(history), report)
    return shadowed.ShadowedMoments(Path(recordings)) if recordings else None
