"""A name server that knows Services: where the cluster has no CoreDNS."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

_HEADER = struct.Struct(">HHHHHH")
_ANSWER, _NO_SUCH_NAME, _ADDRESS = 0x8180, 0x8183, 1


@contextlib.contextmanager
def name_server(address: str, find: Callable[[str, str], str]) -> Iterator[None]:
    """Answer questions for ``SERVICE.NAMESPACE.svc.cluster.local`` on port 53 until the end of the block.

    Args:
        address: where.
        find: returns the address of a Service, by name and namespace; the empty text if there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind((address, 53))
        thread = threading.Thread(target=_serve, args=(served, find), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", (address, 53))
            thread.join()


def _serve(served: socket.socket, find: Callable[[str, str], str]) -> None:
    while True:
        asked, client = served.recvfrom(512)
        if not asked:
            return
        served.sendto(_answer(asked, find), client)


def _answer(asked: bytes, find: Callable[[str, str], str]) -> bytes:
    number, *_ = _HEADER.unpack_from(asked)
    labels, at = [], _HEADER.size
    while asked[at]:
        labels.append(asked[at + 1 : at + 1 + asked[at]].decode())
        at += 1 + asked[at]
    end = at + 5
    kind = int.from_bytes(asked[at + 1 : at + 3], "big")
    is_service = labels[2:] == ["svc", "cluster", "local"]
    found = find(labels[0], labels[1]) if is_service else ""
    if not found:
        return _HEADER.pack(number, _NO_SUCH_NAME, 1, 0, 0, 0) + asked[_HEADER.size : end]
    # The name again is a pointer to the question.
    record = b"\xc0\x0c" + struct.pack(">HHIH", _ADDRESS, 1, 5, 4) + socket.inet_aton(found)
    count, record = (1, record) if kind == _ADDRESS else (0, b"")
    return _HEADER.pack(number, _ANSWER, 1, count, 0, 0) + asked[_HEADER.size : end] + record
