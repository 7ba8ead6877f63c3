"""A shadow as a process beside a kubelet whose machine is played."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.kubelet import Kubelet
from tests.e2e.kubelet.patience import until

READ_ONLY_PORT = 10255
KUBELET_PODS = f"http://127.0.0.1:{READ_ONLY_PORT}"
"""Of a kubelet that serves there; its network is its own."""


@dataclass(frozen=True, slots=True)
class ShadowProcess:
    """A shadow that runs, or has run."""

    folder: Path

    @property
    def lines(self) -> Sequence[str]:
        """What it said, a decision a line."""
        return (self.folder / "said").read_text(encoding="utf-8").splitlines()

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "shadow.json").read_text(encoding="utf-8"))
        return found

    @property
    def kept(self) -> Path:
        return self.folder / "kept"

    def decided(self, *events: str) -> int:
        """Return how many decisions it has judged."""
        return sum(_is_decision(line) and _event(line) in events for line in self.lines)

    def judged(self) -> set[str]:
        """Return the names of the pods of which it has said something."""
        return {line.split(":")[1].split()[0].rpartition("/")[2] for line in self.lines if _is_decision(line)}


def _is_decision(line: str) -> bool:
    return line.startswith(("agreed", "differs", "cannot"))


def _event(line: str) -> str:
    return line.split(":")[1].rsplit(maxsplit=1)[-1]


@contextlib.contextmanager
def shadowed(
    api: APIServer | None, kubelet: Kubelet, machine: Path, folder: Path, *options: str, config: Path | None = None
) -> Iterator[ShadowProcess]:
    """Run a shadow until the end of the block; afterwards its counts are there.

    Without an API server the kubelet itself is asked for its pods.
    """
    found = ShadowProcess(folder)
    folder.mkdir(exist_ok=True)
    pods = ("--kubelet-pods", KUBELET_PODS) if api is None else ("--kubeconfig", str(api.kubeconfig))
    words = [
        *(sys.executable, "-W", "error", "-m", "mooring", "shadow", *pods),
        *("--node-name", kubelet.name, "--pod-resources", str(kubelet.pod_resources)),
        *("--config", str(config or kubelet.configuration), "--state", str(kubelet.root), "--machine", str(machine)),
        *("--folder", str(found.kept), "-o", "json", "--to", str(folder / "shadow.json"), *options),
    ]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        until(lambda: any(line.startswith("watching") for line in found.lines), "the shadow watches")
        yield found
    except BaseException as error:
        error.add_note("\n".join(["the shadow said:", *found.lines[-20:]]))
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
