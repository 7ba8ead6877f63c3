"""A gRPC service on a Unix socket, whose name appears when it can be asked and goes with it.

A peer that may connect may also send bytes that are no message. That is one line in the log and an error for the peer:
neither a traceback nor an event of the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from mooring.core.errors import InputError
from mooring.service import sockets


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a service does at once."""

    threads: int = 2
    waiting: int = 16
    """Requests at once; more are refused with RESOURCE_EXHAUSTED."""
    grace: float = 1.0
    """Seconds for requests under way when the service is closed."""


@dataclass(frozen=True, slots=True)
class Method:
    """A unary method: the class of its requests, and what answers one."""

    request: type[Message]
    answer: Callable[[Any], Message]


class CallRefusedError(Exception):
    """The answer to a call is an error of gRPC.

    Attributes:
        code: of gRPC.
        text: for the caller.
    """

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(text)


class GRPCSocket:
    """Serves until it is closed."""

    def __init__(
        self,
        path: str,
        service: str,
        methods: Mapping[str, Method],
        log: Any,
        *,
        what: str,
        option: str,
        limits: Limits | None = None,
    ) -> None:
        """Begin to serve.

        Args:
            path: of the socket.
            service: full name of the service.
            methods: by name.
            log: of the daemon.
            what: is served, in words.
            option: names the path in the configuration.
            limits: of requests at once.

        Raises:
            InputError: there can be no such socket.
        """
        limits = limits or Limits()
        place = sockets.socket_path(path)
        first = sockets.beside(place)
        self._path, self._grace = path, limits.grace
        workers = futures.ThreadPoolExecutor(limits.threads, service)
        self._server = grpc.server(workers, maximum_concurrent_rpcs=limits.waiting)
        handlers = {name: _handler(f"{service}/{name}", method, log) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
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
        # gRPC removes nothing: the socket has another name than the one it was made with.
        sockets.remove(self._path)
        self._server.stop(self._grace).wait()


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Bytes of a peer that are no message."""

    problem: str


def _handler(name: str, method: Method, log: Any) -> grpc.RpcMethodHandler[Message, Message]:
    def read(data: bytes) -> Any:
        # An exception here would be logged by gRPC itself, with a traceback.
        try:
            return method.request.FromString(data)
        except DecodeError as error:
            return _Malformed(f"{len(data)} bytes are no {method.request.DESCRIPTOR.name}: {error}")

    def called(asked: Any, context: grpc.ServicerContext) -> Message:
        if isinstance(asked, _Malformed):
            log.warning("a malformed gRPC request was refused", method=name, problem=asked.problem)
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, asked.problem)
        try:
            return method.answer(asked)
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        except Exception as error:
            log.exception("internal error; the gRPC request was refused", method=name)
            code, text = grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"
        _abort(context, code, text)

    return grpc.unary_unary_rpc_method_handler(called, request_deserializer=read, response_serializer=_serialized)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError("abort does not return")
