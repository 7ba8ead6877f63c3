"""Fields of the agent's document that are more than a text or a truth value: read, and checked."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from mooring.engine.core.errors import InputError
from mooring.engine.core.release import Release
from mooring.engine.releases.catalog import NEWEST_MINOR, minor_of, release_of
from mooring.inputs.decoding.fields import text_at
from mooring.service.options import duration_at

ANNOTATION_PREFIX = "mooring/"
"""Annotations of pods that the agent keeps in memory begin with it."""

_ANNOTATION = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The part of an annotation's name after the slash (Kubernetes, Labels and Selectors, syntax of keys)."""
_NODE_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NODE = 253
_LONGEST_SOCKET = 107  # sun_path of Linux has 108 bytes, the last of them a zero
_SHORTEST_SPAN = 10 * 10**6
_LONGEST_SPAN = 60 * 10**9

_SYSTEM_FOLDERS = re.compile(
    r"/|/(dev/shm|etc|home|media|mnt|opt|root|run|srv|tmp|var)|/var/(cache|lib|log|mail|opt|run|spool|tmp)"
)
"""Folders of the Filesystem Hierarchy Standard that programs share: a folder of the agent may lie in one of them."""
_SYSTEM_TREES = re.compile(r"/(bin|boot|dev(?!/shm/)|lib|lib32|lib64|libx32|proc|sbin|sys|usr)(/.*)?")
"""Folders in which nothing of the agent may lie."""


def is_of_system(folder: str) -> bool:
    """Return whether a folder belongs to the operating system and cannot be the agent's own.

    Args:
        folder: an absolute path.

    >>> is_of_system("/"), is_of_system("/var/lib/"), is_of_system("/proc/1/cwd"), is_of_system("/var/lib/mooring")
    (True, True, True, False)
    """
    path = "/" + posixpath.normpath(folder).lstrip("/")
    return bool(_SYSTEM_FOLDERS.fullmatch(path) or _SYSTEM_TREES.fullmatch(path))


def path_at(content: Mapping[str, Any], field: str) -> str:
    """Return an absolute path; it may be empty.

    Raises:
        InputError: it is none.
    """
    path = text_at(content, field)
    if path and (not path.startswith("/") or "\0" in path):
        raise InputError(f"{path!r:.80} is not an absolute path", field=field, remedy="begin it with /")
    return path


def folder_at(content: Mapping[str, Any], field: str) -> str:
    """Return a folder that is the agent's alone: files of other programs in it would be removed.

    Raises:
        InputError: it is none, or not deep enough to be the agent's own.
    """
    path = _required(path_at(content, field), field).rstrip("/")
    if len(path.split("/")) < 3 or ".." in path.split("/"):
        raise InputError(f"{path or '/'!r:.80} is not deep enough", field=field, remedy="name a folder below another")
    return path


def state_folder_at(content: Mapping[str, Any], field: str) -> str:
    """Return the folder of the state.

    Raises:
        InputError: it is none, or the agent would write its files in a folder of the system.
    """
    path = _required(path_at(content, field), field)
    if is_of_system(path):
        remedy = "name a folder of the agent's own, such as /var/lib/mooring"
        raise InputError(f"{path!r:.80} is a folder of the system", field=field, remedy=remedy)
    return path


def socket_at(content: Mapping[str, Any], field: str) -> str:
    """Return the path of a socket; it may be empty.

    Raises:
        InputError: it is none, or too long for one.
    """
    path = path_at(content, field)
    if len(path.encode(errors="surrogateescape")) > _LONGEST_SOCKET:
        raise InputError(f"longer than the {_LONGEST_SOCKET} bytes that a socket's path can have", field=field)
    return path


def runtime_socket_at(content: Mapping[str, Any], field: str) -> str:
    """Return the path of the runtime's socket.

    Raises:
        InputError: as :func:`socket_at`, or it is empty.
    """
    return _required(socket_at(content, field), field)


def _required(path: str, field: str) -> str:
    if not path:
        raise InputError("must not be empty", field=field)
    return path


def span_at(content: Mapping[str, Any], field: str) -> int:
    """Return a time in nanoseconds.

    Raises:
        InputError: it is none, too short to be kept, or too long to be meant.
    """
    span = duration_at(content, field)
    if not _SHORTEST_SPAN <= span <= _LONGEST_SPAN:
        raise InputError("must be between 10ms and 1m", field=field)
    return span


def plugin_index_at(content: Mapping[str, Any], field: str) -> str:
    """Return an index of a plugin.

    Raises:
        InputError: it is none.
    """
    text = text_at(content, field)
    if not (len(text) == 2 and text.isascii() and text.isdigit()):
        raise InputError(f"{text!r:.40} is not an index", field=field, remedy='write two digits, such as "50"')
    return text


def opt_out_annotation_at(content: Mapping[str, Any], field: str) -> str:
    """Return the name of an annotation that a pod can have; it may be empty.

    Raises:
        InputError: no pod can have it, or the agent would not keep it.
    """
    text = text_at(content, field)
    if text and not (text.startswith(ANNOTATION_PREFIX) and _ANNOTATION.fullmatch(text[len(ANNOTATION_PREFIX) :])):
        remedy = f"write one that begins with {ANNOTATION_PREFIX}, such as {ANNOTATION_PREFIX}opt-out"
        raise InputError(f"{text!r:.60} is not an annotation of the agent", field=field, remedy=remedy)
    return text


def node_name_at(content: Mapping[str, Any], field: str) -> str:
    """Return the name of a node; it may be empty.

    Raises:
        InputError: no node of a cluster has such a name (RFC 1123, in lower case).

    >>> node_name_at({"nodeName": "node-7.example"}, "nodeName")
    'node-7.example'
    """
    text = text_at(content, field)
    if text and (len(text) > _LONGEST_NODE or not all(_NODE_LABEL.fullmatch(one) for one in text.split("."))):
        remedy = "write it as kubectl get nodes does: lower-case letters, digits, - and ."
        raise InputError(f"{text!r:.60} is not a node name", field=field, remedy=remedy)
    return text


def release_at(content: Mapping[str, Any], field: str) -> Release:
    """Return a kubelet release.

    Raises:
        InputError: it is none, or not one that Mooring knows.

    >>> release_at({"kubeletVersion": "v1.34.4"}, "kubeletVersion").name
    '1.34'
    """
    text = text_at(content, field)
    release, minor = release_of(text, field), minor_of(text)
    if minor is not None and minor > NEWEST_MINOR:
        raise InputError(f"kubelet 1.{minor} is newer than all known releases", field=field, remedy=f"write {release}")
    return release


def refuse_same(paths: Mapping[str, str]) -> None:
    """Refuse one path for two sockets: the agent would listen where the runtime listens, and talk to itself.

    Args:
        paths: field -> path; empty ones are none.

    Raises:
        InputError: two are the same.
    """
    seen: dict[str, str] = {}
    for field, path in paths.items():
        if path and path in seen:
            raise InputError(f"is the path of {seen[path]} already", field=field, remedy="give each its own")
        seen[path] = field
