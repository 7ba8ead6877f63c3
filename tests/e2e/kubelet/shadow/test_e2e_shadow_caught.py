"""A real kubelet that is not what its configuration says is caught, and the folder of the difference shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import remove_pods
from tests.e2e.kubelet.cases import CASES, Wants, pod_of
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.shadow.shadowing import shadowed


def test_a_kubelet_with_another_policy_than_it_is_said_to_have_is_caught(
    api: APIServer, kubelet_of: KubeletOf, playing: Playing, played: Played, tmp_path: Path
) -> None:
    case = CASES[0]
    machine, policies = played(case), {**case.policies, **case.reservations}
    with (
        playing() as node,
        kubelet_on(node, kubelet_of(""), case.name, policies, machine=machine, kubeconfig=api.kubeconfig) as kubelet,
    ):
        until(lambda: api.has_node(case.name), "the node is registered")
        said = json.loads(kubelet.configuration.read_text(encoding="utf-8"))
        said["cpuManagerPolicyOptions"] = {"distribute-cpus-across-numa": "true"}
        said["topologyManagerPolicy"] = "none"
        other = tmp_path / "other.json"
        other.write_text(json.dumps(said), encoding="utf-8")
        with shadowed(api, kubelet, machine, tmp_path / "shadow", config=other) as shadow:
            made = pod_of("wide", Wants("app", str(case.wide), "64Mi"))
            api.create_pod({**made, "spec": {**made["spec"], "nodeName": case.name}})
            until(lambda: shadow.decided("admitted", "refused") == 1, "the pod is judged")
        remove_pods(api)
    [difference] = shadow.document["differences"]
    assert difference["pod"] == "default/wide"
    [bundle] = sorted(shadow.kept.glob("difference-*"))
    replayed = subprocess.run(
        [sys.executable, "-m", "mooring", "replay", str(bundle / "scenario.jsonl"), "--check"],
        capture_output=True,
        check=False,
    )
    assert replayed.returncode == 1, replayed.stdout.decode()
