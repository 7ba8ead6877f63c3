"""Unix sockets on which the agent listens: there with their permissions at once, and gone afterwards."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from mooring.engine.core.errors import InputError

MODE = 0o660
"""Permissions of a socket: its owner and its group may connect, which means to write."""

_KNOCKING = 1.0  # seconds


def socket_path(path: str) -> Path:
    """Return the path for a new socket, with its folder made and a dead socket in its place taken as no obstacle.

    Raises:
        InputError: something else lies there, another process listens there already, or the folder cannot be made.
    """
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        found = place.lstat().st_mode
    except FileNotFoundError:
        return place
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None
    if not stat.S_ISSOCK(found):
        raise InputError("exists and is not a socket", source=path, remedy="remove it, or name another path")
    if is_answered(path):
        raise InputError("another process listens there already", source=path, remedy="stop the other agent")
    return place


def is_answered(path: str) -> bool:
    """Tell whether a process accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(_KNOCKING)
        try:
            knocking.connect(path)
        except OSError:
            return False
    return True


def beside(place: Path) -> Path:
    """Return the path under which a socket is made before it takes its place, free of an earlier one.

    Raises:
        InputError: the folder cannot be written.
    """
    first = place.with_name(f".{os.getpid()}.{place.name[-40:]}")
    try:
        first.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(str(place), error) from None
    return first


def put_in_place(first: Path, place: Path) -> None:
    """Give a new socket its permissions and then its name, so that no client connects without them."""
    first.chmod(MODE)
    first.replace(place)


def listening(path: str) -> socket.socket:
    """Return a socket that listens on a path.

    Raises:
        InputError: as :func:`socket_path`, or the socket cannot be made.
    """
    place = socket_path(path)
    first = beside(place)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(first))
        put_in_place(first, place)
        made.listen()
    except (OSError, ValueError) as error:
        made.close()
        remove(str(first))
        raise _unusable(path, error) from None
    return made


def remove(path: str) -> None:
    """Remove a socket's name, if it is still there."""
    with suppress(OSError):
        Path(path).unlink(missing_ok=True)


def _unusable(path: str, error: OSError | ValueError) -> InputError:
    words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    remedy = "check the folder and its permissions"
    return InputError(f"no socket can be created there: {words.lower()}", source=path, remedy=remedy)
