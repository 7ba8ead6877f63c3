"""What the options of a verb name is refused before anything is computed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.cli.options import NodeOptions
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.inputs import running
    from mooring.inputs.archive import reader
    from mooring.inputs.configuration import kubelet_config
    from mooring.inputs.decoding import api_fields
    from mooring.inputs.pods import cluster_objects

if TYPE_CHECKING:
    from mooring.engine.core.pod import Pod

STANDARD_INPUT = "-"


def check_standard_input(options: NodeOptions) -> None:
    """Refuse to read standard input twice, or where there is none.

    Raises:
        InputError: two options name it, or it is closed.
    """
    named = [
        option
        for option, sources in (
            ("-f", options.manifests),
            ("--active", options.active),
            ("--config", options.config),
            ("--inject", options.inject),
            ("--machine", options.machine.split("\n")),
        )
        for source in sources
        if source == STANDARD_INPUT
    ]
    check_open(named)
    if len(named) > 1:
        raise InputError(
            "can be read only once",
            source="standard input",
            field=" and ".join(dict.fromkeys(named)),
            remedy="give all but one of them a file",
        )


def check_open(wanted: Sequence[object]) -> None:
    """Refuse to read standard input where there is none.

    Raises:
        InputError: it is closed.
    """
    if wanted and sys.stdin is None:
        raise InputError("is closed", source="standard input", remedy="open it, or name a file")


def check_folder(folder: str, option: str, *, may_be_missing: bool = False) -> None:
    """Refuse what is no directory.

    Raises:
        InputError: naming the option.
    """
    path = Path(folder)
    try:
        missing, is_folder = not path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(reason.lower(), source=folder, field=option, remedy="check the path") from None
    remedy = "name a kubelet root directory or a copy of one"
    if missing and not may_be_missing:
        raise InputError("no such directory", source=folder, field=option, remedy=remedy)
    if not missing and not is_folder:
        raise InputError("is not a directory", source=folder, field=option, remedy=remedy)


def check_save(save: str, options: NodeOptions, archives: Sequence[str] = ()) -> None:
    """Refuse a directory that cannot take the state files, before anything is computed.

    Args:
        save: the directory.
        options: of the node, with the kubelet that runs on this computer if it is meant.
        archives: values of ``--node``, where it is given more than once.

    Raises:
        InputError: it is no directory, or the one of the node's own state files: these are never written.
    """
    check_folder(save, "--save-state", may_be_missing=True)
    read = [("--state", options.state)]
    for node in (options.node, *archives):
        read += [("--node", node), ("--node", str((Path(node) / reader.CPU_STATE).parent))] if node else []
    if options.running is not None and options.running.kubelet is not None:
        read.append(("the running kubelet", running.state_folder(options.running.kubelet)))
    for owner, folder in read:
        if folder and os.path.realpath(save) == os.path.realpath(folder):
            raise InputError(
                f"is also the directory of {owner}, whose files are never written",
                source=save,
                field="--save-state",
                remedy="name another directory",
            )


def check_distinct(active: Sequence[Pod], pods: Sequence[Pod], where: str) -> None:
    """Refuse a pod that is to be admitted and runs already.

    Raises:
        InputError: naming the pod.
    """
    running = {pod.uid for pod in active}
    for pod in pods:
        if pod.uid in running:
            raise InputError(
                f"the pod {pod.namespace}/{pod.name} (uid {pod.uid}) is also {where}",
                source="-f",
                remedy="a pod is either running or to be admitted: remove it from one of the two",
            )


def check_strict(noticed: Sequence[Finding]) -> None:
    """Refuse fields that their type does not have, and values that no kubelet takes.

    Raises:
        InputError: naming the first.
    """
    refused = (
        api_fields.UNKNOWN_CONFIGURATION_FIELD,
        api_fields.UNKNOWN_POD_FIELD,
        kubelet_config.UNKNOWN_VALUE,
        cluster_objects.TOO_LARGE,
    )
    unknown = [one for one in noticed if one.code in refused]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise InputError(f"{unknown[0].message}{more}", remedy="without --strict it is a warning")
