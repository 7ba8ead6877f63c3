"""The status of an agent, asked over HTTP on its Unix socket: ``/status`` is the agent now, ``/machine`` its machine.

The machine is as the engine sees it, in cAdvisor's form. Any HTTP client can read both, such as
``curl --unix-socket SOCKET http://agent/status``.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.inspect import DictType, ListType, Metadata, StructType, Type, type_info

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.machineinfo_json import parse_machine_info

if TYPE_CHECKING:
    from mooring.documents.status import StatusDocument

STATUS_SOCKET = "/run/mooring/status.sock"
"""Default path of the agent's status socket, where ``mooring status`` asks too."""


STATUS = "/status"
MACHINE = "/machine"
SECONDS = 5.0
"""How long an answer may take."""
LONGEST_ANSWER = 64 * 1024**2
"""Bytes; the document of 1000 pods has less than a hundredth of it."""


def ask_status(path: str) -> dict[str, Any]:
    """Return what the agent behind a socket says of itself.

    Raises:
        InputError: no process answers, or with something else.
    """
    # Late: the agent serves these pages and needs no document before it is asked.
    from mooring.documents.status import KIND  # noqa: PLC0415 - as said above

    try:
        document = json.loads(_asked(path, STATUS))
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise _stranger(path)
    return document


def read_status(document: Mapping[str, Any]) -> StatusDocument:
    """Return a status as this version knows it, without what only a newer agent's has.

    Raises:
        InputError: it lacks what this version has.
    """
    from mooring.documents.status import StatusDocument  # noqa: PLC0415 - as above

    try:
        return msgspec.convert(_known(document, type_info(StatusDocument)), StatusDocument)
    except msgspec.ValidationError as error:
        problem = f"the status lacks what a picture needs ({error})"
        raise InputError(problem, source="the agent", remedy="use the same version of mooring as the agent") from None


def _known(value: Any, kind: Type) -> Any:
    """Return a value without members that its type does not have."""
    match kind, value:
        case Metadata(), _:
            return _known(value, kind.type)
        case StructType(), dict():
            fields = {one.encode_name: one.type for one in kind.fields}
            return {name: _known(member, fields[name]) for name, member in value.items() if name in fields}
        case ListType(), list():
            return [_known(one, kind.item_type) for one in value]
        case DictType(), dict():
            return {name: _known(one, kind.value_type) for name, one in value.items()}
    return value


def ask_machine(path: str) -> Machine:
    """Return the machine as the agent behind a socket sees it.

    Raises:
        InputError: no process answers, or with something else.
    """
    described = parse_machine_info(_asked(path, MACHINE), path)
    return Machine(described.name, described.info)


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("agent", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def _asked(path: str, page: str) -> bytes:
    connection = _UnixConnection(path)
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        data = answer.read(LONGEST_ANSWER + 1)
    except (OSError, ValueError) as error:
        words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        problem = f"the agent cannot be asked: {words.lower() or type(error).__name__}"
        may_not = isinstance(error, PermissionError)
        remedy = "ask as root, or as a member of the socket's group" if may_not else "check the agent's log"
        known = (words for kinds, words in _FAILURES.items() if isinstance(error, kinds))
        problem, remedy = next(known, (problem, remedy))
        raise InputError(problem, source=path, remedy=remedy) from None
    except HTTPException:
        raise _stranger(path) from None
    finally:
        connection.close()
    if answer.status != 200:
        raise InputError(f"the agent answers {answer.status}", source=path, remedy="try again")
    if len(data) > LONGEST_ANSWER:
        raise InputError("the answer is too long", source=path, remedy="name the agent's socket")
    return data


def _stranger(path: str) -> InputError:
    return InputError("is not served by an agent", source=path, remedy="name the agent's socket")


_FAILURES: Mapping[tuple[type[Exception], ...], tuple[str, str]] = {
    (FileNotFoundError, ConnectionRefusedError): (
        "no agent listens there",
        "start mooring agent, or name its socket with --socket",
    ),
    (TimeoutError,): (f"no answer within {SECONDS:.0f} seconds", "check the agent's log"),
    # Who is turned away may be so before it has asked: then nothing is left to be read.
    (BrokenPipeError, ConnectionResetError): ("the agent closed the connection", "try again"),
}
"""Errors of a connection -> problem and remedy."""
