"""The way to the API server: credentials and TLS through lightkube, errors as one type.

The HTTP client that lightkube configures is used directly: its typed client loads the certificates a second time, and
its watch waits for ever on a connection that died silently, asks again without a pause when the server ends it, and
cannot be interrupted.

A kubeconfig that lightkube cannot use is read once more, to name the field that is wrong: the client's own words are
those of a program, such as ``KeyError: 'clusters'``, or that a file is missing without saying which.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec
import yaml
from lightkube import KubeConfig
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as ServerConfig
from lightkube.config.models import Context, User
from lightkube.core.exceptions import ConfigError

from mooring.engine.core.errors import InputError, MooringError
from mooring.inputs.decoding.fields import within

_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""Lists of named entries, and the key in each that holds what is named (client-go, tools/clientcmd/api/v1)."""
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key")}
"""Files that are read when a connection is opened; a token file may come later."""
_PRINT = "compare it with what kubectl config view prints"
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
    def is_expired(self) -> bool:
        """Whether a resource version is too old to continue from."""
        return self.code == 410

    @property
    def may_pass(self) -> bool:
        """Whether the same request can succeed later."""
        # 401: the token expires while its replacement is on the way.
        return self.code in (0, 401, 408, 409, 429) or self.code >= 500


@dataclass(slots=True)
class Cluster:
    """An open way to one API server; used by one thread, closed by it."""

    http: httpx2.Client
    """With base URL, credentials and certificates set."""
    is_shared: bool = False
    """Whether others use it too, so that it stays open."""

    def close(self) -> None:
        """Close all connections."""
        if not self.is_shared:
            self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def cluster_of(config: SingleConfig, *, answer_time: float = ANSWER_TIME) -> Cluster:
    """Open the way to the API server of a configuration.

    Raises:
        InputError: its certificates or credentials cannot be used.
    """
    parameters = client_adapter.ConnectionParams(timeout=httpx2.Timeout(answer_time))
    with _configuration_errors(str(config.fname or ""), config.context_name):
        if (user := config.user) is not None and user.token_file is not None:
            # Against the folder of the kubeconfig (client-go, clientcmd), as lightkube does not
            config = config._replace(
                user=msgspec.structs.replace(user, token_file=str(config.abs_file(user.token_file)))
            )
        return Cluster(client_adapter.Client(config, parameters))


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
            "no access to the API server is configured, and this is not a pod with a service account",
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


def configuration_at(server: str, kubeconfig: str = "") -> SingleConfig:
    """Return the configuration for a server with the credentials and the authority of a file that names another one.

    Args:
        server: ``http://HOST:PORT`` or ``https://HOST:PORT``.
        kubeconfig: path of the file; without one there are no credentials.

    Raises:
        InputError: the file cannot be used.

    >>> configuration_at("http://127.0.0.1:10255").cluster.server
    'http://127.0.0.1:10255'
    """
    if kubeconfig:
        found = configuration_of(kubeconfig)
        return found._replace(cluster=msgspec.structs.replace(found.cluster, server=server))
    return SingleConfig("default", Context(cluster="default"), ServerConfig(server), User())


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


def asked(http: httpx2.Client, method: str, path: str, passing: Collection[int] = (), **more: Any) -> httpx2.Response:
    """Return the answer to a request.

    Args:
        http: with base URL and credentials.
        method: of the request.
        path: of the object or the collection.
        passing: HTTP codes that are answers too.
        more: query, content and headers, as the client takes them.

    Raises:
        ClusterError: the server says no with another code, or nothing.
    """
    with cluster_errors():
        response = http.request(method, path, **more)
        if response.status_code not in passing:
            check_response(response)
    return response


def asked_json(
    http: httpx2.Client, method: str, path: str, passing: Collection[int] = (), **more: Any
) -> dict[str, Any]:
    """Return the object with which a request is answered; an empty one for a code that passes.

    Raises:
        ClusterError: as :func:`asked`, or the answer is no object.
    """
    response = asked(http, method, path, passing, **more)
    with cluster_errors():
        return msgspec.json.decode(response.content, type=dict[str, Any]) if response.is_success else {}


@dataclass(slots=True)
class ClusterOnDemand:
    """A way to an API server that is opened when it is first needed, and again after it was closed; of one thread."""

    connect: Callable[[], Cluster]
    """Opens it, again after a failure, so that renewed credentials are read."""
    _open: Cluster | None = None

    @property
    def is_open(self) -> bool:
        """Whether something was asked since it was closed."""
        return self._open is not None

    @property
    def http(self) -> httpx2.Client:
        """With base URL, credentials and certificates set."""
        if self._open is None:
            self._open = self.connect()
        return self._open.http

    def close(self) -> None:
        """Close all connections."""
        if self._open is not None:
            self._open.close()
            self._open = None


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
        _refuse_kubeconfig(source, context)
        problem = f"is not a usable kubeconfig: {type(error).__name__}: {error}"
        raise InputError(problem, source=source, remedy="try it with kubectl --kubeconfig") from None


def _refuse_kubeconfig(path: str, context: str | None = None) -> None:
    """Look for a mistake in a kubeconfig.

    Args:
        path: of the file. A relative path in it is seen from its folder, as kubectl sees it.
        context: that is used; the current one by default.

    Raises:
        InputError: there is one that can be corrected; returns when none of these is found.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", source=path, remedy="name a kubeconfig, which is YAML") from None
    except (OSError, ValueError):
        return
    with within(source=path):
        try:
            found = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
            raise InputError(f"is not YAML{line}: {error.problem}", remedy=_PRINT) from None
        except yaml.YAMLError as error:
            raise InputError(f"is not YAML: {error}", remedy=_PRINT) from None
        if not isinstance(found, dict):
            raise InputError("is not a kubeconfig: it has no fields", remedy=_PRINT)
        _refuse(found, Path(path).parent, context)


def _refuse(document: Mapping[str, Any], folder: Path, context_name: str | None) -> None:
    name = context_name or document.get("current-context")
    if not isinstance(name, str) or not name:
        raise InputError("names no context", field="current-context", remedy="kubectl config use-context NAME sets it")
    context = _entry(document, "contexts", name, "current-context")
    for section in ("clusters", "users"):
        kind = _SECTIONS[section]
        wanted = context.get(kind)
        if not isinstance(wanted, str):
            raise InputError(f"names no {kind}", field=f"contexts[{name}].{kind}", remedy=_PRINT)
        entry = _entry(document, section, wanted, f"contexts[{name}].{kind}")
        for field in _FILES[kind]:
            _refuse_file(entry, field, f"{section}[{wanted}]", folder)


def _entry(document: Mapping[str, Any], section: str, name: str, asked_by: str) -> Mapping[str, Any]:
    entries = document.get(section)
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise InputError("is not a list of entries", field=section, remedy=_PRINT)
    for one in entries:
        if one.get("name") == name:
            found = one.get(_SECTIONS[section])
            if isinstance(found, dict):
                return found
            raise InputError("has no fields", field=f"{section}[{name}].{_SECTIONS[section]}", remedy=_PRINT)
    raise InputError(
        f"{name!r:.80} is not among {section}", field=asked_by, remedy=f"add it there, or name one of {section}"
    )


def _refuse_file(entry: Mapping[str, Any], field: str, where: str, folder: Path) -> None:
    named = entry.get(field)
    if named is None or entry.get(f"{field}-data"):
        return
    if not isinstance(named, str):
        raise InputError("is not a path", field=f"{where}.{field}", remedy="name a file")
    try:
        (folder / named).read_bytes()
    except (OSError, ValueError) as error:
        words = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{named} cannot be read: {words}", field=f"{where}.{field}", remedy="name another") from None
