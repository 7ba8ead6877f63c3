"""``mooring capacity``: which pod is meant, exit codes, formats, and what is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, mooring, typed
from tests.cli.given import STATIC, given, pod, written
from tests.values import cases

DATABASE = ("capacity", "data/database", *PODS, *NODE)
SHAPE = ("--shape", "cpu=8,memory=16Gi")


@pytest.mark.parametrize(("code", "said", "asked"), cases(__file__, "counted.yaml", "code", "says", "asked"))
def test_the_answer_tells_how_many_and_the_exit_code_whether_they_are_enough(asked: str, code: int, said: str) -> None:
    answer = mooring(*typed(asked), code=code)
    assert (answer.err, said in answer.out) == ("", True), answer


def test_wide_has_a_row_for_every_container() -> None:
    out = mooring(*DATABASE, "-o", "wide").out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("data/database+")] == [
        f"data/database+{number}" for number in range(1, 21)
    ]


def test_the_picture_shows_the_replicas_hatched(tmp_path: Path) -> None:
    target = tmp_path / "node.svg"
    assert mooring(*DATABASE, "-o", "svg", "--to", target).code == 0
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "data/database+20" in text
    assert "Hatched: pods that are not on the node" in text
    cells = [line for line in text.splitlines() if "<title>CPU " in line for line in line.split("<title>CPU ")[1:]]
    assert len(cells) == 256
    assert all(("hatch-" in cell) == ("data/database+" in cell) for cell in cells)


def test_the_document_keeps_its_members_when_the_kubelet_does_not_start(tmp_path: Path) -> None:
    node = given(tmp_path, kubelet=STATIC | {"reservedSystemCPUs": "999"})
    refused = mooring("capacity", *SHAPE, *node, "-o", "json")
    fine = mooring("capacity", *SHAPE, *NODE, "-o", "json")
    assert refused.code == 1
    assert refused.document.keys() == fine.document.keys()
    assert "reserved-cpus: 999" in refused.document["startError"]
    assert "The kubelet would not start" in mooring("capacity", *SHAPE, *node).out
    assert mooring("capacity", *SHAPE, *node, "-o", "svg").code == 1


def test_the_only_workload_needs_no_name(tmp_path: Path) -> None:
    pods, unlike = (written(tmp_path / f"{cpus}.yaml", pod("app-0", 4), pod("app-1", cpus)) for cpus in (4, 2))
    assert "more pods like default/app fit" in mooring("capacity", "-f", pods, *NODE).out
    assert "name one of default/app-0, default/app-1" in mooring("capacity", "-f", unlike, *NODE).complaint


def test_a_name_in_two_namespaces_has_to_be_told_apart(tmp_path: Path) -> None:
    pods = [pod("web") | {"metadata": {"name": "web", "namespace": space}} for space in ("one", "two")]
    both = written(tmp_path / "both.yaml", *pods)
    answer = mooring("capacity", "web", "-f", both, *NODE, code=2)
    assert "'web' means 2 pods: one/web, two/web; name one of them" in answer.complaint
    assert mooring("capacity", "two/web", "-f", both, *NODE).code == 0


def test_more_are_counted_than_usual_when_more_are_wanted(tmp_path: Path) -> None:
    node = given(tmp_path, pod("idle"), kubelet={"maxPods": 100_000})
    assert mooring("capacity", *node, "--at-least", "1001").code == 0


def test_a_shape_needs_no_memory() -> None:
    alone, little = (mooring("capacity", "--shape", shape, *NODE) for shape in ("cpu=4", "cpu=4,memory=1Mi"))
    assert alone.code == 0
    assert alone.out == little.out


def test_without_a_shape_the_largest_requests_are_shown() -> None:
    assert "fits" not in mooring("capacity", "--active", EXAMPLES / "pods.yaml", *NODE, code=0).out
    found = mooring("capacity", "--active", EXAMPLES / "pods.yaml", *NODE, "-o", "json").document
    [cpu] = [one for one in found["resources"] if one["resource"] == "cpu"]
    # As promised: the largest request is admitted on its node, and two CPUs more are not.
    for cpus, code in ((cpu["largestAligned"], 0), (cpu["largestAligned"] + cpu["step"], 1)):
        running = ("--active", EXAMPLES / "pods.yaml", *NODE)
        assert mooring("capacity", "--shape", f"cpu={cpus}", "--limit", "1", *running).code == code
    assert mooring("capacity", *NODE, "-o", "svg").code == 2


def test_nothing_is_said_of_numa_nodes_where_none_could_give_anything(tmp_path: Path) -> None:
    node = given(tmp_path, machine="cores=1", kubelet=STATIC | {"topologyManagerPolicy": "best-effort"})
    lines = mooring("capacity", *node).out.splitlines()
    assert lines[-1].split() == ["CPUs", "0", "0", "0", "0"]


SCALED_DOWN = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {cpu: 8, memory: 16Gi}}}]}
"""


@pytest.mark.parametrize(("name", "others"), [((), ()), (("web",), ()), (("default/web",), PODS)])
def test_a_deployment_of_0_is_counted(tmp_path: Path, name: tuple[str, ...], others: tuple[str | Path, ...]) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(SCALED_DOWN, encoding="utf-8")
    counted = mooring("capacity", *name, "-f", file, *others, *NODE, "-o", "json").document
    assert counted["count"] == mooring("capacity", *SHAPE, *others, *NODE, "-o", "json").document["count"] > 0


# ``mooring capacity -o svg``: the answer is the headline, and what stops the next pod is said once.


def headings(*arguments: str) -> tuple[list[str], str]:
    drawn = mooring(*arguments, "-o", "svg").out
    return re.findall(r'<text [^>]*class="name"[^>]*>([^<]+)<', drawn), drawn


def test_the_answer_is_the_headline() -> None:
    found, drawn = headings("capacity", "core/upf", *PODS, *NODE)
    assert found == ["9 more pods like core/upf fit."]
    assert drawn.count("The next one: Container forwarder requests 16 exclusive CPUs") == 1
    assert "Not admitted" not in drawn
    assert headings("show", *PODS, *NODE)[0] == ["8 pods admitted, 3 rejected."]
    assert headings("show", "--machine", "small-1s8")[0] == ["small-1s8"]
