"""The page of ``mooring upgrade`` without a browser: whole, well nested, safe."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from tests.cli.command import NODE, ROOT, mooring
from tests.render.html_page import Page
from tests.render.sample_machines import SampleShape, regular

from mooring.answers.upgrade.answer import UpgradeDocument, UpgradeListDocument
from mooring.answers.upgrade.command import upgrade_page, upgrades_page
from mooring.engine.core.cpuset import CPUSet
from mooring.views.build import CPUOwner, build_view

MACHINE = ("--machine", "sockets=1 cores=4 threads=2 memory=8Gi")
HOSTILE = "\x1b]<script>alert('&')</script>\"><img src=x>"
CLUSTER = ("-f", ROOT / "tests" / "cli" / "golden" / "cluster.yaml", *NODE)
CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0,4"
"""
POD = """
{apiVersion: v1, kind: Pod, metadata: {name: big},
 spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}
"""
FREE_TEXTS = {
    "node",
    "machine",
    "name",
    "namespace",
    "message",
    "reason",
    "why",
    "startError",
    "text",
    "source",
    "before",
}


def rejecting(tmp_path: Path) -> tuple[str | Path, ...]:
    """A rollback that rejects a pod."""
    config, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.yaml"
    config.write_text(CONFIG)
    pod.write_text(POD)
    return ("upgrade", "--kubelet-version", "1.37", "1.34", "-f", pod, *MACHINE, "--config", config)


def hostile(value: Any, key: str = "") -> Any:
    """Replace the texts of a document that come from outside."""
    if isinstance(value, list):
        return [hostile(one, key) for one in value]
    if isinstance(value, dict):
        return {HOSTILE if name == "c" else name: hostile(one, name) for name, one in value.items()}
    return HOSTILE if isinstance(value, str) and key in FREE_TEXTS else value


def test_the_page_has_every_part_of_the_answer_with_the_picture_and_only_its_own_styles(tmp_path: Path) -> None:
    answered = mooring(*rejecting(tmp_path), "-o", "html")
    page = Page(answered.out)
    titles = [text for tag, text in page.texts if tag == "h2"]
    assert answered.code == 1
    assert titles == [
        "Do first",
        "Pods",
        "The node after the start of the new kubelet",
        "Why",
        "Settings",
        "Through every minor release",
        "State files",
        "Rollback",
    ]
    shown = " ".join(text for _, text in page.texts)
    for words in ("rejects 1 of 1 running pod", "SMTAlignmentError", "CPUs 1-2,5-6", "smt-check-before-existing"):
        assert words in shown
    [styles] = [text for tag, text in page.texts if tag == "style"]
    digest = f"sha256-{b64encode(sha256(styles.encode()).digest()).decode()}"
    assert page.named("meta")[1]["content"] == (
        f"default-src 'none'; style-src '{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert len(page.named("svg")) == 1


def test_a_kubelet_that_does_not_start_has_its_message_and_no_picture(tmp_path: Path) -> None:
    arguments = rejecting(tmp_path)
    (tmp_path / "kubelet.yaml").write_text(f"{CONFIG}featureGates: {{MemoryManager: true}}")
    page = Page(mooring("upgrade", "--kubelet-version", "1.34", *arguments[4:], "-o", "html").out)
    assert any(text.endswith("unrecognized feature gate: MemoryManager") for _, text in page.texts)
    assert page.named("svg") == []


def test_several_nodes_have_a_row_each() -> None:
    page = Page(mooring("upgrade", *CLUSTER, "-o", "html").out)
    texts = [text for tag, text in page.texts if tag in ("th", "p")]
    assert [text for text in texts if text in ("n1", "n2")] == ["n1", "n2"]
    assert "2 of 2 nodes safe." in texts


def test_names_and_messages_cannot_become_markup(tmp_path: Path) -> None:
    one = hostile(mooring(*rejecting(tmp_path), "-o", "json").document)
    several = hostile(mooring("upgrade", *CLUSTER, "-o", "json").document)
    several["nodes"][0]["rejected"] = [{"uid": "u", "namespace": HOSTILE, "name": HOSTILE}]
    several["nodes"][1]["startError"] = HOSTILE
    picture = build_view(regular(SampleShape()), owners=[CPUOwner(HOSTILE, "u", CPUSet.parse("1"))])
    for text in (
        upgrade_page(msgspec.convert(one, UpgradeDocument), picture),
        upgrades_page(msgspec.convert(several, UpgradeListDocument)),
    ):
        page = Page(text)
        assert page.named("script") == page.named("img") == []
        assert "\x1b" not in text
        assert text.count("&lt;script&gt;") > 3
