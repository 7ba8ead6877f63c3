"""Where a page's node comes from: the status of an agent, or what the options describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.cli.inputs import question_of
from mooring.lazy import lazily

with lazily():
    from mooring.agent import options as agent_options
    from mooring.agent.status import api
    from mooring.agent.status import picture as status_picture
    from mooring.cli import running_inputs
    from mooring.serve import agent_status, node_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.cli.options import NodeOptions
    from mooring.serve.snapshot import NodeSnapshot


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

    def source() -> NodeSnapshot:
        return node_plan.snapshot_of(question_of(running_inputs.with_running_kubelet(inputs)))

    return source
