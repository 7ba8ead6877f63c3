"""``mooring capacity -o svg``: the answer is the headline, and what stops the next pod is said once."""

from __future__ import annotations

import re

import pytest

from mooring.command.main import run

NODE = ["-f", "examples/pods.yaml", "--machine", "epyc-7763-2s-nps4", "--config", "examples/kubelet.yaml", "-o", "svg"]


def headings(svg: str) -> list[str]:
    return re.findall(r'<text [^>]*class="name"[^>]*>([^<]+)<', svg)


def test_how_many_fit_is_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "core/upf", *NODE]) == 0
    drawn = capsys.readouterr().out
    assert headings(drawn) == ["9 more pods like core/upf fit."]
    assert drawn.count("The next one: Container forwarder requests 16 exclusive CPUs") == 1
    assert "Not admitted" not in drawn


def test_how_many_were_admitted_is_the_headline_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", *NODE]) == 1
    assert headings(capsys.readouterr().out) == ["8 pods admitted, 3 rejected."]


def test_a_machine_alone_keeps_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "--machine", "small-1s8", "-o", "svg"]) == 0
    assert headings(capsys.readouterr().out) == ["small-1s8"]
