"""A kubelet without an API server: its static pods are known from what it lists itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.kubelet.cases import CASES, Wants, pod_of
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.shadow.shadowing import READ_ONLY_PORT, shadowed

SERVING = {"enableServer": True, "address": "127.0.0.1", "readOnlyPort": READ_ONLY_PORT}


def test_decisions_about_static_pods_agree_without_an_api_server(
    kubelet_of: KubeletOf, playing: Playing, played: Played, tmp_path: Path
) -> None:
    case = CASES[0]
    machine, policies = played(case), {**case.policies, **case.reservations, **SERVING}
    start = partial(kubelet_on, program=kubelet_of(""), name=case.name, policies=policies, machine=machine)

    def put(name: str, cpu: str = "", memory: str = "64Mi") -> None:
        _put(kubelet, pod_of(name, Wants("app", cpu, memory)))
        until(lambda: f"{name}-{case.name}" in shadow.judged(), f"{name} is judged")

    with playing() as node, ExitStack() as shadowing:
        with start(node) as kubelet:
            shadow = shadowing.enter_context(shadowed(None, kubelet, machine, tmp_path / "shadow"))
            put("shared", memory="")
            put("own", str(case.own))
            put("wide", str(case.wide))
            put("large", "150", memory="")
            put("endless", "200", memory="")
            _remove(kubelet, "own")
            until(lambda: shadow.decided("removed") == 1, "the pod whose manifest is gone has ended")
            put("second", str(case.own + 2))
        _remove(kubelet, "large")
        # A kubelet that starts asks again about static pods that were refused, and now there is room for one of them.
        with start(node) as kubelet:
            until(lambda: shadow.decided("restarted") == 1, "the restart is judged")
            secure = ("--kubelet-pods", "https://127.0.0.1:10250", "--kubeconfig", _kubeconfig(tmp_path))
            with shadowed(None, kubelet, machine, tmp_path / "secure", *secure) as other:
                put("third", str(case.own))
                until(lambda: f"third-{case.name}" in other.judged(), "it is judged by the other, too")
            shadowing.close()
    assert other.decided("admitted") == 1, other.lines
    found, said = shadow.document, "\n".join(shadow.lines)
    assert (found["differs"], found["unknown"]) == (0, 0), said
    decided = [line.removeprefix("agreed: ") for line in shadow.lines if line.startswith("agreed")]
    first = (
        ("shared", "admitted"),
        ("own", "admitted"),
        ("wide", "refused"),
        ("large", "admitted"),
        ("endless", "refused"),
        ("own", "removed"),
        ("second", "admitted"),
    )
    assert decided[:7] == [f"default/{name}-{case.name} {event}" for name, event in first], said
    later = [f"default/{name}-{case.name} admitted" for name in ("endless", "third")]
    assert decided[7:] == ["kubelet restarted", *later], said
    [recording] = shadow.kept.glob("recording-*.jsonl")
    replayed = subprocess.run(
        [sys.executable, "-m", "mooring", "replay", str(recording), "--check"], capture_output=True, check=False
    )
    assert replayed.returncode == 0, replayed.stdout.decode()


def _kubeconfig(folder: Path) -> str:
    """Write credentials for a kubelet whose certificate is its own; return the file."""
    content = {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": "https://other.test", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "it", "user": {"token": "t"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return str(file)


def _put(kubelet: Kubelet, pod: Mapping[str, Any]) -> None:
    """Give the kubelet a manifest, whole from the beginning."""
    name = f"{pod['metadata']['name']}.json"
    (kubelet.folder / name).write_text(json.dumps(pod), encoding="utf-8")
    (kubelet.folder / name).rename(kubelet.manifests / name)


def _remove(kubelet: Kubelet, name: str) -> None:
    (kubelet.manifests / f"{name}.json").unlink()
