"""Asking a cluster through kubectl, which has the person's access to it; without kubectl no cluster is asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATIENCE: Final = 20
"""Seconds that one question may take."""
KUBELET_KUBECONFIG: Final = Path("/etc/kubernetes/kubelet.conf")
"""The kubelet's own access, which may read its node and the pods on it; installers put it there."""
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class NoAnswerError(Exception):
    """Kubectl could not answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program."""

    program: str

    def json(self, *arguments: str, seconds: int = PATIENCE) -> object:
        """Return an answer in JSON.

        Args:
            arguments: of kubectl.
            seconds: that the API server may take.

        Raises:
            NoAnswerError: there is none.
        """
        text = self.run(f"--request-timeout={seconds}s", *arguments, seconds=2 * seconds)
        try:
            document: object = json.loads(text)
        except ValueError:
            raise NoAnswerError("the answer is not JSON") from None
        return document

    def run(self, *arguments: str, seconds: int, given: bytes = b"") -> bytes:
        """Return what a command prints.

        Args:
            arguments: of kubectl.
            seconds: after which it is ended.
            given: its standard input.

        Raises:
            NoAnswerError: it fails, or takes too long.
        """
        try:
            # Empty standard input ends at once, as no input does.
            finished = subprocess.run(  # noqa: S603 - a fixed program with arguments of ours, without a shell
                [self.program, *_access(), *arguments], capture_output=True, check=False, timeout=seconds, input=given
            )
        except subprocess.TimeoutExpired:
            raise NoAnswerError("does not answer") from None
        except (OSError, ValueError) as error:
            raise NoAnswerError(str(error)) from None
        if finished.returncode:
            lines = finished.stderr.decode(errors="replace").strip().splitlines()
            raise NoAnswerError(lines[-1] if lines else f"failed with code {finished.returncode}")
        return finished.stdout


def installed_kubectl() -> Kubectl | None:
    """Return kubectl; None where it is not installed."""
    program = shutil.which("kubectl")
    return None if program is None else Kubectl(program)


def is_node_name(text: str) -> bool:
    """Tell whether a node can have this name; nothing else gets on a command line.

    >>> is_node_name("worker-1.example"), is_node_name("--all"), is_node_name("a/b")
    (True, False, False)
    """
    return _NODE.fullmatch(text) is not None


def _access() -> list[str]:
    own = os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    return [] if own or not KUBELET_KUBECONFIG.exists() else [f"--kubeconfig={KUBELET_KUBECONFIG}"]
