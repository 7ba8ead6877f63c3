"""The status API: documents over HTTP on a Unix socket; :mod:`mooring.service.status_client` reads them.

``/status`` is the agent now, ``/machine`` the machine as the engine sees it, in cAdvisor's form. Any HTTP client can
read both, such as ``curl --unix-socket SOCKET http://agent/status``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import to_builtins

from mooring.agent.status.snapshot import AgentCounts, SnapshotProvider
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.service.daemon import present_moment
from mooring.service.pages import JSON, Page, Pages
from mooring.service.status_client import MACHINE, STATUS


def status_pages(provider: SnapshotProvider, counts: Callable[[], AgentCounts]) -> Pages:
    """Return the pages of the socket."""

    def status() -> Page:
        # Late: an agent that is not asked needs neither the document nor the pictures that it shares words with.
        from mooring.agent.status.status_document import status_document  # noqa: PLC0415 - as said above

        return _json(to_builtins(status_document(provider.snapshot(), counts(), present_moment())))

    def machine() -> Page:
        found = provider.snapshot().machine
        info = machine_info_document(found.info, info_error=found.info_error)
        return _json({"name": found.name, "note": "", "info": info})

    return {STATUS: status, MACHINE: machine}


def _json(document: dict[str, Any]) -> Page:
    return Page(f"{json.dumps(document)}\n".encode(), JSON)
