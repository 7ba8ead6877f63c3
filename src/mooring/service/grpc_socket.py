"""A gRPC service on a Unix socket, whose name appears when it can be asked and goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent import futures

import grpc
from google.protobuf.message import Message

from mooring.core.errors import InputError
from mooring.service import sockets

THREADS = 2
WAITING = 16
"""Requests at once; more are refused with RESOURCE_EXHAUSTED."""
_GRACE = 1.0  # seconds for requests under way when the service is closed


class GRPCSocket:
    """Serves until it is closed."""

    def __init__(
        self,
        path: str,
        service: str,
        methods: Mapping[str, grpc.RpcMethodHandler[Message, Message]],
        *,
        what: str,
        option: str,
    ) -> None:
        """Begin to serve.

        Args:
            path: of the socket.
            service: full name of the service.
            methods: by name.
            what: is served, in words.
            option: names the path in the configuration.

        Raises:
            InputError: there can be no such socket.
        """
        place = sockets.socket_path(path)
        first = sockets.beside(place)
        self._path = path
        self._server = grpc.server(futures.ThreadPoolExecutor(THREADS, service), maximum_concurrent_rpcs=WAITING)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, dict(methods)),))
        try:
            self._server.add_insecure_port(f"unix:{first}")
            self._server.start()
            sockets.put_in_place(first, place)
        except (OSError, RuntimeError) as error:
            self._server.stop(None)
            sockets.remove(str(first))
            problem = f"{what} cannot be served there: {error}"
            raise InputError(problem, source=path, remedy=f"check {option}") from None

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        self._server.stop(_GRACE).wait()
        sockets.remove(self._path)
