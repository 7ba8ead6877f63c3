"""The way to the API server: credentials and TLS through lightkube, errors as one type.

Lightkube's typed client writes. For watching the HTTP client that it configures is used directly, because lightkube's
own watch waits for ever on a connection that died silently, asks again without a pause when the server ends it, and
cannot be interrupted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import msgspec
from lightkube import Client, KubeConfig
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from mooring.core.errors import InputError, MooringError
from mooring.service.cluster.kubeconfig import refuse_kubeconfig

ANSWER_TIME = 10.0
"""Seconds for an ordinary request."""
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
LONGEST_PAUSE = 60.0
"""Seconds that a server can make the agent wait with Retry-After."""


class ClusterError(MooringError):
    """The API server cannot be reached, or says no.

    Attributes:
        code: HTTP status; 0 when there was no answer.
        pause: seconds to wait before the next try, as the server wishes; 0 when it does not say.
    """

    def __init__(self, message: str, *, code: int = 0, pause: float = 0.0) -> None:
        self.code = code
        self.pause = pause
        super().__init__(" ".join(message.split())[:500])

    @property
    def is_gone(self) -> bool:
        """Whether a resource version is too old to go on from."""
        return self.code == 410

    @property
    def may_pass(self) -> bool:
        """Whether the same request can succeed later."""
        # 401: the token expires while its replacement is on the way.
        return self.code in (0, 401, 408, 409, 429) or self.code >= 500


@dataclass(frozen=True, slots=True)
class Cluster:
    """An open way to one API server; used by one thread, closed by it."""

    http: httpx2.Client
    """With base URL, credentials and certificates set."""
    typed: Client

    def close(self) -> None:
        """Close all connections."""
        self.http.close()
        self.typed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cluster_of(config: SingleConfig, *, answer_time: float = ANSWER_TIME) -> Cluster:
    """Open the way to the API server of a configuration.

    Raises:
        InputError: its certificates or credentials cannot be used.
    """
    timeout = httpx2.Timeout(answer_time)
    with _configuration_errors(str(config.fname or ""), config.context_name):
        config = _with_absolute_token_file(config)
        return Cluster(
            client_adapter.Client(config, client_adapter.ConnectionParams(timeout=timeout)),
            Client(config=config, timeout=timeout, field_manager="mooring-agent"),
        )


def contexts_of(kubeconfig: str) -> frozenset[str]:
    """Return the names of all contexts of a file.

    Raises:
        InputError: it cannot be used.
    """
    with _configuration_errors(kubeconfig):
        return frozenset(KubeConfig.from_file(kubeconfig).contexts)


def configuration_of(kubeconfig: str | None, context: str | None = None) -> SingleConfig:
    """Return the configuration of a file, or of the service account of the pod in which the agent runs.

    Certificates that the file names are read when a cluster is opened; a token file is read at the first request, and
    again when the API server answers 401.

    Args:
        kubeconfig: path of the file.
        context: name of a context in it; the current one by default.

    Raises:
        InputError: there is none, or it cannot be used.
    """
    if not kubeconfig and not _TOKEN.exists():
        raise InputError(
            "no way to the API server is known: this is no pod with a service account",
            source="kubeconfig",
            remedy="give one with --kubeconfig FILE, or as kubeconfig in the configuration",
        )
    with _configuration_errors(kubeconfig or "service account", context):
        found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_service_account()
        config = found.get(context)
    if config is None or config.user is None:
        raise InputError(
            "the kubeconfig names no user", source=kubeconfig or "", remedy="set users and current-context"
        )
    return config


def _with_absolute_token_file(config: SingleConfig) -> SingleConfig:
    """Resolve a token file against the folder of the kubeconfig (client-go, clientcmd), as lightkube does not."""
    user = config.user
    if user is None or user.token_file is None:
        return config
    return config._replace(user=msgspec.structs.replace(user, token_file=str(config.abs_file(user.token_file))))


@contextmanager
def cluster_errors() -> Iterator[None]:
    """Turn every way in which a request can fail into a :class:`ClusterError`."""
    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise refusal_of(error.response, str(error)) from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ConfigError) as error:
        raise ClusterError(f"{type(error).__name__}: {error}") from None
    except ValueError as error:  # of JSON decoders
        raise ClusterError(f"the API server's answer cannot be read: {error}") from None


def check_response(response: httpx2.Response) -> None:
    """Raise what the response says, if it says no.

    Raises:
        ClusterError: the status is none of success.
    """
    if response.is_success:
        return
    response.read()
    raise refusal_of(response, response.text)


def refusal_of(response: httpx2.Response | None, text: str) -> ClusterError:
    """Return the error of a response."""
    if response is None:
        return ClusterError(text)
    wish = response.headers.get("Retry-After", "")
    pause = min(float(wish), LONGEST_PAUSE) if wish.isdecimal() else 0.0
    return ClusterError(f"status {response.status_code}: {text}", code=response.status_code, pause=pause)


def cut(response: httpx2.Response) -> None:
    """End a response that another thread is reading; the reader sees the end of the stream or an error."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        try:
            # The plain socket's way: closing TLS in order is for the thread that reads.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already


@contextmanager
def _configuration_errors(source: str, context: str | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the YAML library has error classes of its own
        refuse_kubeconfig(source, context)
        problem = f"is no usable kubeconfig: {type(error).__name__}: {error}"
        raise InputError(problem, source=source, remedy="try it with kubectl --kubeconfig") from None
