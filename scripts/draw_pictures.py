"""Draw the pictures of the docs again: ``make pictures``.

Every picture is the answer of one command on shipped input, so that it can never tell anything else than the code does.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
EXAMPLE = "-f examples/pods.yaml --machine epyc-7763-2s-nps4 --config examples/kubelet.yaml"
AI = (
    "-f examples/ai-pods.yaml --config examples/ai-kubelet.yaml "
    "--machine 'sockets=2 numa=4 cores=64 threads=2 l3=8 memory=256Gi hugepages-2Mi=2048 distances=10,12,32'"
)
HYBRID = "-f examples/plugins/hybrid-pods.yaml --machine i7-1370p"
SPREAD = "-f examples/plugins/spread-pods.yaml --machine 'sockets=1 numa=2 cores=32 l3=8 memory=64Gi'"
DEVICES = (
    "-f examples/devices/pods.yaml --active examples/devices/claims.yaml --node-name node-1 "
    "--config examples/devices/kubelet.yaml "
    "--machine 'sockets=2 numa=4 cores=32 threads=2 l3=4 memory=128Gi distances=10,12,32'"
)
PICTURES: Mapping[str, str] = {
    "node.svg": f"mooring show {EXAMPLE} -o svg",
    "memory-only-nodes.svg": "mooring show --machine xeonmax-9460-2s-snc4-flat -o svg",
    "decision.svg": f"mooring explain ai/inference {EXAMPLE} -o svg",
    "four-providers.svg": f"mooring explain train-1 {AI} -o svg",
    "beside-devices.svg": f"mooring show {DEVICES} -o svg",
    "followed-devices.svg": f"mooring explain ai/inference {DEVICES} -o svg",
    "hybrid.svg": "mooring show --machine i7-1370p -o svg",
    "core-kinds-before.svg": f"mooring show {HYBRID} --config examples/plugins/plain-kubelet.yaml -o svg",
    "core-kinds-after.svg": f"mooring show {HYBRID} --config examples/plugins/hybrid-kubelet.yaml -o svg",
    "spread-before.svg": f"mooring show {SPREAD} --config examples/plugins/packed-kubelet.yaml -o svg",
    "spread-after.svg": f"mooring show {SPREAD} --config examples/plugins/spread-kubelet.yaml -o svg",
}
"""File in docs/images -> the command that draws it."""

ANSWERED = (0, 1)
"""Exit codes of a command that drew: 1 says that a pod on the picture is rejected."""


def drawn(command: str) -> str:
    """Return the picture that a command draws.

    Raises:
        CalledProcessError: the command failed.
    """
    arguments = shlex.split(command)[1:]
    finished = subprocess.run(  # noqa: S603 - the commands above
        [sys.executable, "-m", "mooring", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if finished.returncode not in ANSWERED:
        finished.check_returncode()
    return finished.stdout


def main() -> int:
    """Draw all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, command in PICTURES.items():
        (FOLDER / name).write_text(drawn(command), encoding="utf-8")
        print(f"docs/images/{name}: {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
