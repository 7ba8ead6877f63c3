"""gRPC's own part of a service on a Unix socket.

A peer that may connect may also send bytes that are no message. That is one line in the log and an error for the peer:
neither a traceback nor an event of the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from mooring.engine.core.errors import InputError
from mooring.service import daemon
from mooring.service.grpc_socket import CallLimits, CallRefusedError, Code, Method, Methods
from mooring.service.logs import Log


def serve(path: str, service: str, methods: Methods, log: Log, limits: CallLimits) -> Callable[[], object]:
    """Serve on a socket that replaces what has the name now; return what ends that.

    Raises:
        OSError: the socket cannot be made.
        RuntimeError: as above.
    """
    place = Path(path)
    first = daemon.beside(place)
    workers = futures.ThreadPoolExecutor(limits.threads, service)
    server = grpc.server(workers, maximum_concurrent_rpcs=limits.waiting)
    for key, method in methods.items():
        own, _, name = key.rpartition("/")
        handlers = {name: _handler(f"{own or service}/{name}", method, log)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(own or service, handlers),))
    try:
        server.add_insecure_port(f"unix:{first}")
        server.start()
        daemon.put_in_place(first, place)
    except (OSError, RuntimeError):
        server.stop(None)
        daemon.remove(str(first))
        raise
    return lambda: server.stop(limits.grace).wait()


def serve_at_once(
    path: str, service: str, methods: Methods, log: Log, limits: CallLimits, remedy: str
) -> Callable[[], object]:
    """Serve on a new socket, for a client that treats the appearance of its name as the start of the service.

    Args:
        path: of the socket.
        service: full name of the service.
        methods: by name.
        log: of the daemon.
        limits: of requests at once.
        remedy: for a socket that cannot be made.

    Returns:
        What ends it and removes the name.

    Raises:
        InputError: there can be no such socket.
    """
    daemon.socket_path(path)
    try:
        end = serve(path, service, methods, log, limits)
    except (OSError, RuntimeError) as error:
        raise InputError(f"no socket can be created there: {error}", source=path, remedy=remedy) from None

    def close() -> None:
        daemon.remove(path)
        end()

    return close


_Request = TypeVar("_Request", bound=Message)


def _handler(name: str, method: Method[_Request], log: Log) -> grpc.RpcMethodHandler[Message, Message]:
    def read(data: bytes) -> Any:
        # An exception here would be logged by gRPC itself, with a traceback; a text says what is wrong with the bytes.
        try:
            return method.request.FromString(data)
        except DecodeError as error:
            return f"{len(data)} bytes are no {method.request.DESCRIPTOR.name}: {error}"

    def called(asked: _Request | str, context: grpc.ServicerContext) -> Message | Iterator[Message]:
        if isinstance(asked, str):
            log.warning("a malformed gRPC request was refused", method=name, problem=asked)
            _abort(context, "INVALID_ARGUMENT", asked)
        try:
            return method.answer(asked)
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        except Exception as error:
            log.exception("internal error; the gRPC request was refused", method=name)
            code, text = "INTERNAL", f"internal error: {type(error).__name__}"
        _abort(context, code, text)

    def written(answer: Message) -> bytes:
        return answer.SerializeToString()

    kind = grpc.unary_stream_rpc_method_handler if method.is_stream else grpc.unary_unary_rpc_method_handler
    return kind(called, request_deserializer=read, response_serializer=written)


def _abort(context: grpc.ServicerContext, code: Code, text: str) -> NoReturn:
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("abort does not return")
