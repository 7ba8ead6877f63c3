"""A pod on a node of the cluster that packs what a node archive needs, and is deleted.

It is like the pod of ``kubectl debug node``, but only reads, has a name that is known before it is created, and ends by
itself. Its image needs a shell and the programs of busybox, and may have Mooring.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from mooring.answers.base.inputs.cluster_node import PATIENCE, Kubectl, NoAnswerError
from mooring.cli.output import warn
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.archive.collect import KUBELET_ROOT, CollectRequest, collect
from mooring.inputs.archive.reader import ABOUT, CLUSTER
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.machines.archive import folders_above, read_archive
from mooring.inputs.machines.capture import CPU_LINKS, GROUP_FILES, INITIATORS, ISOLATION, MACHINE, NAMES
from mooring.inputs.machines.isolation import ROOT as GROUPS
from mooring.inputs.machines.tree import kubelet_arguments

IMAGE: Final = "busybox:stable"
_START: Final = 120
"""Seconds that a pod may take to start, its image included."""
_LIFE: Final = 600
"""Seconds after which the pod ends by itself, should nothing delete it."""
_MOST_WORDS: Final = 500
_PATTERNS: Final = (
    *(one for one in (*MACHINE, *ISOLATION, *NAMES, INITIATORS, CPU_LINKS) if not one.startswith("proc/self/")),
    *(f"{GROUPS}{'/*' * depth}/{name}" for depth in range(6) for name in GROUP_FILES),
    *(f"{KUBELET_ROOT.lstrip('/')}/{name}" for name in ("config.yaml", "*_manager_state", DEVICE_FILE)),
)
"""What is packed besides files that the kubelet's command line names; of the packing process itself nothing."""
_SCRIPT: Final = r"""
command -v mooring >/dev/null && exec mooring collect --root "$host" --no-kubectl --node-name "$node" --to -
cd "$host" && out=$(mktemp -d) && mkdir -p $out/node/proc && exec 3>$out/folders 4>$out/files 5>$out/links || exit 1
printf 'Architecture: %s\n' "$(uname -m)" >$out/node/proc/hwloc-nofile-info
for process in proc/[0-9]*; do
  read -r name <$process/comm || continue
  case $name in kubelet|irqbalance) set -- "$@" $process/comm $process/status $process/cmdline ;; *) continue ;; esac
  for word in $(tr '\0=' '\n\n' <$process/cmdline); do
    case $flag in
      --config) set -- "$@" "${word#/}" ;;
      --config-dir) set -- "$@" "${word#/}/*" "${word#/}/*/*" ;;
      --root-dir) set -- "$@" "${word#/}/*_manager_state" "${word#/}/device-plugins/kubelet_internal_checkpoint" ;;
    esac
    flag=$word
  done
done 2>/dev/null
for pattern; do
  for path in $pattern; do
    cd -P "$host/${path%/*}" || continue
    case $PWD in "$host"/*) place=${PWD#"$host"/}/${path##*/} ;; *) place= ;; esac
    cd "$host"
    if [ -z "$place" ]; then continue
    elif [ -d "$path" ] && [ -L "$path" ]; then printf '%s\0' "$place" >&5
    elif [ -d "$path" ]; then printf '%s\0' "$place" >&3
    elif [ -f "$path" ]; then printf '%s\0' "$place" >&4
    fi
  done
done 2>/dev/null
{
  (cd $out/node && xargs -0 mkdir -p <$out/folders)
  xargs -0 sh -c 'cp -L --parents "$@" "$0"' $out/node <$out/files
  xargs -0 sh -c 'cp -P --parents "$@" "$0"' $out/node <$out/links
} >/dev/null 2>&1
tar -czf - -C $out/node .
"""
"""Packs the files that patterns name, at their places without links.

They are copied first: files of the kernel do not tell their size, which tar must know before it packs them. An image
with Mooring collects by itself, and asks the kubelet for its devices too.
"""


def packed_node(kubectl: Kubectl, name: str, image: str, version: str, captured: str) -> bytes:
    """Return an archive of a node that a pod of it has packed; the pod is deleted.

    Args:
        kubectl: the program.
        name: of the node.
        image: of the pod.
        version: of the kubelet; empty if it is not known.
        captured: date and time.

    Raises:
        InputError: the pod does not start, or packs no node.
    """
    pod = f"mooring-collect-{secrets.token_hex(4)}"
    folders = {folder for path in _PATTERNS for folder in folders_above(path) if "/" in folder}
    given = f"host=/host node={name}; set -- {shlex.join([*sorted(folders), *_PATTERNS])}\n{_SCRIPT}"
    try:
        with _ended_by_signals():
            try:
                kubectl.run("create", "-f", "-", seconds=PATIENCE, given=json.dumps(_pod(pod, name, image)).encode())
                _wait(kubectl, pod)
                packed = kubectl.run("exec", "-i", pod, "--", "sh", "-s", seconds=_START, given=given.encode())
            finally:
                _delete(kubectl, pod)
        tree = read_archive(f"pod {pod}", packed)
        if tree.data(ABOUT) is not None:
            return packed
        arguments = kubelet_arguments(tree)
        flags = None if arguments is None else kubelet_flags(arguments)
        root = (flags.root_dir if flags else "") or KUBELET_ROOT
        request = CollectRequest(node=name, kubelet=version, kubelet_root=root, flags=flags, captured=captured)
        return collect(tree, request).packed()
    except (NoAnswerError, InputError) as error:
        reason = error.problem if isinstance(error, InputError) else error
        problem = f"cannot be collected in a pod of {image}: {reason}"
        remedy = "name another image with --debug-image, or collect it with mooring collect"
        raise InputError(problem, source=name, field="--node", remedy=remedy) from None


def _wait(kubectl: Kubectl, pod: str) -> None:
    wait = ("wait", f"pod/{pod}", "--for=condition=Ready", f"--timeout={_START}s")
    try:
        kubectl.run(*wait, seconds=_START + PATIENCE)
    except NoAnswerError as error:
        why = ""
        with suppress(NoAnswerError):
            path = "jsonpath={.status.reason} {.status.message} {.status.containerStatuses[*].state.waiting}"
            why = kubectl.run("get", "pod", pod, "-o", path, seconds=PATIENCE).decode(errors="replace").strip()
        raise NoAnswerError(f"{error} {why[:_MOST_WORDS]}".strip()) from None


def _delete(kubectl: Kubectl, pod: str) -> None:
    try:
        kubectl.run("delete", "pod", pod, "--ignore-not-found", "--wait=false", seconds=PATIENCE, apart=True)
    except NoAnswerError as error:
        warn([Finding("warning", f"pod {pod}", f"is not deleted, and ends by itself: {error}", CLUSTER)])


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end a program be exceptions, so that what was begun is undone."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    earlier = {}
    # Only the main thread may; in another one the pod ends by itself.
    with suppress(ValueError):
        earlier = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _pod(name: str, node: str, image: str) -> dict[str, Any]:
    """Return a pod that only reads: the node's root directory and its processes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "mooring-collect"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "hostNetwork": True,
            "hostPID": True,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "collect",
                    "image": image,
                    "command": ["sleep", str(_LIFE)],
                    "securityContext": {
                        "runAsUser": 0,
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                    },
                    "volumeMounts": [
                        {"name": "host", "mountPath": "/host", "readOnly": True},
                        {"name": "packed", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
                    ],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}, {"name": "packed", "emptyDir": {}}],
        },
    }
