"""What the texts of the agent's document may be, where the field alone or together with others says so."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from mooring.core.errors import InputError

ANNOTATION_PREFIX = "mooring/"
"""Annotations of pods that the agent keeps in memory begin with it."""

_ANNOTATION = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The part of an annotation's name after the slash (Kubernetes, Labels and Selectors, syntax of keys)."""
_NODE_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NODE = 253

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


def state_folder(text: str) -> str:
    """Return the folder of the state.

    Raises:
        InputError: the agent would write its files in a folder of the system.
    """
    if is_of_system(text):
        remedy = "name a folder of the agent's own, such as /var/lib/mooring"
        raise InputError(f"{text!r:.80} is a folder of the system", field="stateDir", remedy=remedy)
    return text


def plugin_index(text: str) -> str:
    """Return an index of a plugin.

    Raises:
        InputError: it is none.
    """
    if not (len(text) == 2 and text.isascii() and text.isdigit()):
        raise InputError(f"{text!r:.40} is no index", field="pluginIndex", remedy='write two digits, such as "50"')
    return text


def opt_out_annotation(text: str) -> str:
    """Return the name of an annotation that a pod can have; an empty text is one too.

    Raises:
        InputError: no pod can have it, or the agent would not keep it.
    """
    if text and not (text.startswith(ANNOTATION_PREFIX) and _ANNOTATION.fullmatch(text[len(ANNOTATION_PREFIX) :])):
        remedy = f"write one that begins with {ANNOTATION_PREFIX}, such as {ANNOTATION_PREFIX}opt-out"
        raise InputError(f"{text!r:.60} is no annotation of the agent", field="optOutAnnotation", remedy=remedy)
    return text


def node_name(text: str) -> str:
    """Return the name of a node; an empty text is one too.

    Raises:
        InputError: no node of a cluster has such a name (RFC 1123, in lower case).

    >>> node_name("node-7.example")
    'node-7.example'
    """
    if text and (len(text) > _LONGEST_NODE or not all(_NODE_LABEL.fullmatch(one) for one in text.split("."))):
        remedy = "write it as kubectl get nodes does: lower-case letters, digits, - and ."
        raise InputError(f"{text!r:.60} is no name of a node", field="nodeName", remedy=remedy)
    return text


def refuse_same(paths: Mapping[str, str]) -> None:
    """Refuse one path for two sockets: the agent would stand where the runtime is to be, and talk to itself.

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
