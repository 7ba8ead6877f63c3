"""The page of a node: what it shows, what it answers, and what it refuses."""

from __future__ import annotations

import gzip
import json
import re
import selectors
import socket
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from html import escape
from http.client import HTTPConnection, HTTPResponse
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.outside.test_agent_status import SNAPSHOTS
from tests.patience import many_files
from tests.serve.clusters import CONFIG, EXAMPLES, HOSTILE, MACHINE, Site, hostile, node_site, pod, question, recording

from mooring.agent.status import status_document
from mooring.answers.base.plan import Question
from mooring.command.main import run
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.monitoring.serve.access import EVERYTHING, Viewer
from mooring.monitoring.serve.command import AGAIN, WatchedNode
from mooring.monitoring.serve.node_routes import Recording, drawn, exported
from mooring.monitoring.serve.snapshot import ANY, HIDDEN, NodeNotice, NodeSnapshot, snapshot_of, snapshot_of_status
from mooring.views.svg.picture import svg_text

NO_COUNTS = AgentCountsPart(0, 0.0, 0, 0, 0, 0, 0)

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: app, resources: {limits: {cpu: CPUS, memory: 1Gi}}}]}
"""


class TokenGuard:
    """Knows tokens by the namespaces that their people may list."""

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:  # noqa: ARG002 - the protocol's
        if token == "all":  # noqa: S105 - no secret
            return EVERYTHING
        return Viewer(frozenset(token.split(","))) if token else None


@pytest.fixture(scope="module")
def recorded() -> Recording:
    return recording()


@pytest.fixture(scope="module")
def site(recorded: Recording) -> Iterator[Site]:
    with node_site(recorded) as found:
        yield found


def test_the_page_has_the_map_of_show_in_two_widths(site: Site, recorded: Recording) -> None:
    got = site.ask("/")
    assert got.status == 200
    for form, width in (("wide", 1100), ("narrow", 366)):
        map_ = drawn(svg_text(recorded.now.view, width, bare=True))
        assert map_ in got.text
        assert [map_ in site.ask(f"/body?form={one}").text for one in ("wide", "narrow")] == [
            form == "wide",
            form == "narrow",
        ]


def test_every_answer_forbids_inline_scripts_frames_and_other_origins(site: Site) -> None:
    for path in ("/", "/body", "/nowhere", "/healthz"):
        policy = site.ask(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
    assert not re.search(r"<script(?! type=\"module\" src=)|<style|style=|\son\w+=", site.ask("/").text)


def test_assets_have_names_of_their_content_and_are_kept(site: Site) -> None:
    for name in re.findall(r'"(assets/[^"]+)"', site.ask("/").text):
        got = site.ask(f"/{name}")
        assert got.status == 200
        assert "immutable" in got.headers["cache-control"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_other_sites_get_nothing(site: Site, headers: dict[str, str]) -> None:
    assert site.ask("/body", **headers).status == 403
    assert site.ask("/whatif", "POST", MANIFEST, **headers).status == 403


def test_pages_are_packed_for_browsers_that_unpack_and_streams_are_not(site: Site) -> None:
    with closing(HTTPConnection("127.0.0.1", site.port, timeout=60)) as connection:
        connection.request("GET", "/body", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(answer.read()).decode() == site.ask("/body").text
        connection.request("GET", "/events", headers={"Accept-Encoding": "gzip"})
        assert "number" in event(connection.getresponse())


def test_a_link_from_another_site_opens_the_page_and_nothing_can_be_written(site: Site) -> None:
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert site.ask("/", **headers).status == 200
    assert {site.ask("/", method).status for method in ("PUT", "DELETE", "PATCH", "POST")} == {405}


def test_a_pod_is_explained_with_the_nearest_change(site: Site, recorded: Recording) -> None:
    pod = next(one for one in recorded.now.pods if one.name == "solver")
    text = site.ask(f"/pod?uid={pod.uid}").text
    assert pod.code in text
    assert "Nearest change" in text
    assert "<svg" in text
    assert site.ask("/pod?uid=nobody").status == 404


def test_what_if_says_where_a_pod_goes_and_changes_nothing(site: Site, recorded: Recording) -> None:
    before = recorded.now
    text = site.ask("/whatif", "POST", MANIFEST.replace("CPUS", "8")).text
    assert "default/new" in text
    assert "hatch-" in text
    refused = site.ask("/whatif", "POST", MANIFEST.replace("CPUS", "40")).text
    assert "rejected" in refused
    assert "Nearest change" in refused
    assert recorded.now is before


@pytest.mark.parametrize("manifest", ["", "{", "kind: Pod", "a: &a [*a]", "- 1", "\x00"])
def test_a_manifest_that_is_none_is_one_line(site: Site, manifest: str) -> None:
    got = site.ask("/whatif", "POST", manifest or " ")
    assert got.status == 400
    assert got.text.count("<p") == 1
    assert site.ask("/whatif", "POST", "#" * 300_000).status == 413


def test_a_change_is_announced_and_the_past_can_be_read() -> None:
    recorded = recording()
    with node_site(recorded) as site:
        connection = HTTPConnection("127.0.0.1", site.port, timeout=60)
        connection.request("GET", "/events")
        events = connection.getresponse()
        assert json.loads(event(events))["number"] == 1
        assert recorded.take(snapshot_of(replace(question(), pods=question().pods[:2])))
        assert json.loads(event(events))["number"] == 2
        connection.close()
        assert len(re.findall("data-uid", site.ask("/body").text)) == 2
        assert len(re.findall("data-uid", site.ask("/body?number=1").text)) == len(question().pods)
        assert "at this moment" in site.ask("/body?number=1").text


def test_people_see_the_past_of_their_namespaces_only_and_hostile_names_are_texts() -> None:
    recorded = recording()
    recorded.take(snapshot_of(hostile()))
    recorded.take(snapshot_of(replace(question(), pods=())))
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        some = site.ask("/body?number=1", Authorization="Bearer data").text
        assert "data/database-0" in some
        assert "core/" not in some
        assert HIDDEN in some
        assert site.ask("/body?number=1").status == 401
        page = site.ask("/body?number=2", Authorization="Bearer all").text
        assert HOSTILE not in page
        assert escape(HOSTILE) in page


def event(answer: HTTPResponse) -> str:
    """Return the data of the next event."""
    while True:
        line = answer.readline().decode()
        if line.startswith("data: "):
            return line.removeprefix("data: ")


def test_what_shows_the_same_is_not_recorded_and_trouble_is_shown() -> None:
    recorded = recording()
    assert not recorded.take(snapshot_of(question()))
    assert len(recorded.in_memory()) == 1
    recorded.fail("the file cannot be read")
    with node_site(recorded) as site:
        assert "the file cannot be read" in site.ask("/body").text
    recorded.take(snapshot_of(question()))
    assert recorded.trouble == ""


def test_a_recording_forgets_the_oldest() -> None:
    recorded = recording()
    for count in range(700):
        recorded.take(replace(recorded.now, notices=(NodeNotice(f"change {count}"),)))
    assert len(recorded.in_memory()) <= 600
    assert recorded.at(1).number == recorded.in_memory()[0].number


def test_without_a_token_the_page_offers_to_sign_in(recorded: Recording) -> None:
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        for path in ("/", "/body", "/pod?uid=1", "/events"):
            got = site.ask(path)
            assert got.status == 401
            assert "core/upf" not in got.text
        assert site.ask("/whatif", "POST", MANIFEST).status == 401
        assert site.ask("/sign-in", "POST", "token=\r\n").status == 401
        got = site.ask("/sign-in", "POST", "token=all\r\n", X_Forwarded_Proto="https")
        assert got.status == 303
        cookie = got.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
        assert site.ask("/", Cookie=cookie.partition(";")[0]).status == 200


def test_a_person_sees_pods_of_namespaces_that_they_may_list_only(recorded: Recording) -> None:
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        everything = site.ask("/body", Authorization="Bearer all").text
        some = site.ask("/body", Authorization="Bearer data").text
        assert "core/upf-0" in everything
        assert "core/" not in some
        assert "hpc/" not in some
        assert "data/database-0" in some
        assert HIDDEN in some
        other = next(one for one in recorded.now.pods if one.namespace == "core")
        assert site.ask(f"/pod?uid={other.uid}", Authorization="Bearer data").status == 404
        answer = site.ask("/whatif", "POST", MANIFEST.replace("CPUS", "40"), Authorization="Bearer data").text
        assert "default/new" in answer
        assert "core/" not in answer


def test_the_export_is_the_report(tmp_path: Path) -> None:
    options = ["--machine", "epyc-7763-2s-nps4", "--config", str(EXAMPLES / "kubelet.yaml"), "-f"]
    inputs = [*options, str(EXAMPLES / "pods.yaml")]
    assert run(["serve", *inputs, "--export", str(tmp_path / "one.html")]) == 0
    run(["plan", *inputs, "-o", "html", "--to", str(tmp_path / "other.html")])
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()


@pytest.mark.parametrize("option", ["-f", "--active", "--config", "--machine"])
def test_a_live_page_refuses_standard_input_because_it_reads_the_node_again(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def served(*_arguments: object) -> None:
        raise AssertionError("a page is served")

    monkeypatch.setattr("mooring.monitoring.serve.app.run_application", served)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"[]")))
    machine = [] if option == "--machine" else ["--machine", "epyc-7763-2s-nps4"]
    assert run(["serve", *machine, option, "-"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mooring: standard input: can be read only once, and the page")
    assert said.count("\n") == 1


def test_an_export_reads_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(MANIFEST.replace("CPUS", "2").encode())))
    to = tmp_path / "one.html"
    assert run(["serve", "--machine", "epyc-7763-2s-nps4", "-f", "-", "--export", str(to)]) == 0
    assert "default/new" in to.read_text(encoding="utf-8")


def test_an_agents_drift_repairs_and_delays_are_shown(recorded: Recording) -> None:
    container = {"name": "app", "cpus": "2-3", "mems": "0", "effective": {"cpus": "0-7", "mems": "0"}}
    pending = {"name": "side", "cpus": "4-5", "mems": "", "pending": {"releases": "5", "secondsLeft": 9.5}}
    pod = {"namespace": "ns", "name": "web", "uid": "1", "containers": [container, pending]}
    held = {"namespace": "ns", "name": "late", "uid": "2", "reason": "TopologyAffinityError", "message": "no room"}
    document = {
        "pods": [pod],
        "held": [held],
        "reasons": ["the runtime is silent"],
        "configuration": {"refusal": ""},
        "cpus": {"overlap": "", "offline": "9"},
        "counts": {"repairs": 2},
    }
    shown = snapshot_of_status(recorded.now.view, document)
    texts = [one.text for one in shown.notices]
    assert "ns/web/app holds CPUs 2-3; the kernel lets it run on 0-7" in texts
    assert "2 repairs since the agent started" in texts
    assert "CPUs 9 are offline" in texts
    assert [one.text for one in shown.notices if one.due] == ["ns/web/side releases CPUs 5"]
    assert [(one.name, one.admitted) for one in shown.pods] == [("web", True), ("late", False)]


def test_a_node_is_read_again_when_a_file_has_changed_or_half_a_minute_has_passed(tmp_path: Path) -> None:
    read: list[float] = []
    now = [0.0]
    file = tmp_path / "cpu_manager_state"
    shown = snapshot_of(question())

    def reads() -> tuple[NodeSnapshot, list[Path]]:
        read.append(now[0])
        return shown, [file]

    node = WatchedNode(reads, lambda: now[0])
    for _ in range(4):
        node()
    known = len(read)
    assert known <= 2
    file.write_text("{}", encoding="utf-8")
    node()
    assert len(read) == known + 1
    node()
    assert len(read) == known + 1
    now[0] = AGAIN
    node()
    assert len(read) == known + 2


def test_every_status_of_an_agent_has_a_snapshot(recorded: Recording) -> None:
    view = recorded.now.view
    for name, make in SNAPSHOTS.items():
        document = to_builtins(status_document(make(), NO_COUNTS))
        assert len(snapshot_of_status(view, document).pods) == len(document["pods"]) + len(document["held"]), name


def test_the_export_of_an_agents_node_is_a_page_without_script(recorded: Recording) -> None:
    text = exported(recorded.now.bare())
    assert drawn(svg_text(recorded.now.view, 1100, bare=True)) in text
    assert "<script" not in text
    assert "style-src &#39;sha256-" in text


# What people may not see: names of pods in namespaces whose pods they may not list, wherever texts could have them.


STRICT = {"strict-cpu-reservation": "true"}
NONE = replace(CONFIG, topology_manager_policy="none", cpu_manager_policy_options=STRICT)
HOTPLUG = MooringConfig(extensions=frozenset({CPU_HOTPLUG}))


def asked(*pods: Pod, config: KubeletConfig = CONFIG, **fields: Any) -> Question:
    return Question(MACHINE, config, fields.pop("mooring", MooringConfig()), pods, **fields)


def seen(snapshot: NodeSnapshot) -> NodeSnapshot:
    """Return what a person sees who may list the pods of team-a only."""
    return snapshot.seen_by(lambda namespace: namespace == "team-a")


def test_a_refused_pod_is_explained_without_the_pods_in_its_way() -> None:
    pods = pod("ledger-db", 24, "secret"), pod("ledger-web", 20, "secret"), pod("mine", 14)
    with node_site(recording(asked(*pods)), TokenGuard(), loopback=False) as site:
        address = f"/pod?uid={pods[2].uid}"
        everything = site.ask(address, Authorization="Bearer all").text
        assert "Nearest change" in everything
        assert "<svg" in everything
        assert site.ask(address, Authorization="Bearer team-a,secret").text == everything
        some = site.ask(address, Authorization="Bearer team-a").text
        assert "MOOR-103" in some
        assert not any(one in some for one in ("Nearest change", "<svg", "ledger", "secret"))


def test_without_a_token_no_moment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, read = recording(), list[int]()
    at = recorded.at

    def counted(number: int) -> NodeSnapshot:
        read.append(number)
        return at(number)

    monkeypatch.setattr(recorded, "at", counted)
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        assert site.ask("/body?number=7").status == 401
        assert read == []
        assert site.ask("/body?number=7", Authorization="Bearer core").status == 200
        assert set(read) == {7}


@pytest.mark.parametrize(
    ("question", "namespace"),
    [
        (asked(pod("mine", 62), pod("ledger", 1, "secret"), config=NONE), "secret"),
        (
            asked(active=(pod("mine", 8), pod("ledger", 8, "secret")), mooring=HOTPLUG, offline=CPUSet.parse("5-6")),
            "secret",
        ),
        (asked(findings=(Finding("info", "secret/ledger", "the pod has failed and is left out"),)), "secret"),
        (asked(findings=(Finding("warning", "claim secret/ledger (cpus)", "is offline"),)), "secret"),
        (asked(findings=(Finding("warning", "plugin order", "failed at order: secret/ledger"),)), ANY),
        (asked(findings=(Finding("warning", "state files", "hold entries of 1 pod (secret_ledger)"),)), ANY),
        (
            asked(
                pod("mine", 1),
                pod("ledger", 1, "secret"),
                findings=(Finding("warning", "team-a/mine", "gets CPUs 3, which secret/ledger has too"),),
            ),
            ANY,
        ),
    ],
    ids=["shared pool", "offline", "finished pod", "claim", "plugin", "state files", "two pods"],
)
def test_a_finding_about_a_pod_is_for_people_who_may_list_it(question: Question, namespace: str) -> None:
    snapshot = snapshot_of(question)
    assert namespace in {one.namespace for one in snapshot.notices if "ledger" in one.text}
    assert all(one.namespace in ("", "team-a", namespace) for one in snapshot.notices)
    assert not any("secret" in one.text for one in seen(snapshot).notices)
    assert snapshot.seen_by(lambda _namespace: True) is snapshot
    assert ANY not in snapshot.namespaces


def test_a_finding_about_no_pod_is_for_all_people() -> None:
    about = ("nvidia.com/gpu", "NUMA node 1", "shared pool", "memory_manager_state")
    findings = tuple(Finding("warning", one, "is unusual") for one in about)
    shown = seen(snapshot_of(asked(pod("mine", 1), pod("ledger", 1, "secret"), findings=findings)))
    assert {f"{one}: is unusual" for one in about} <= {one.text for one in shown.notices}


def test_why_a_kubelet_would_not_start_is_for_people_who_may_list_all_pods() -> None:
    snapshot = snapshot_of(asked(pod("mine", 1), files=StateTexts(cpu="{")))
    refusal = snapshot.notices[0]
    assert refusal.text.startswith("The kubelet would not start: ")
    shown = seen(snapshot)
    assert shown.notices[0].text == "The kubelet would not start"
    assert shown.notices[0].warning
    assert refusal.text not in repr(shown.view)


def test_the_reasons_of_an_agent_are_for_people_who_may_list_all_pods() -> None:
    document = {
        "pods": [],
        "held": [],
        "reasons": ["container starts are refused (1), the newest because secret/ledger holds CPU 3"],
        "configuration": {"refusal": "secret/ledger holds CPU 3"},
        "cpus": {"overlap": ""},
        "counts": {"repairs": 0},
    }
    snapshot = snapshot_of_status(snapshot_of(asked()).view, document)
    assert sum("secret/ledger" in one.text for one in snapshot.notices) == 2
    texts = [one.text for one in seen(snapshot).notices]
    assert texts == ["Not ready", "The configuration as it is now is not in force"]


def test_the_headline_that_can_name_pods_is_for_people_who_may_list_them() -> None:
    snapshot = recording(asked(pod("ledger-db", 24, "secret"), pod("mine", 2))).now
    crashing = replace(snapshot, view=replace(snapshot.view, headline="The kubelet would crash on secret/ledger-db."))
    assert crashing.seen_by(lambda _namespace: True).view.headline
    assert not seen(crashing).view.headline


def test_a_refused_pod_keeps_the_time_at_which_it_was_first_seen() -> None:
    times = iter(range(100, 200))
    pods = pod("fits", 2), pod("large", 60)
    recorded = Recording(snapshot_of(asked(*pods)), lambda: float(next(times)))
    first = {one.name: one.since for one in recorded.now.pods}
    recorded.take(snapshot_of(asked(*pods, pod("huge", 61))))
    then = {one.name: one.since for one in recorded.now.pods}
    assert (first["fits"], then["fits"]) == (0, 0)
    assert first["large"] == then["large"] == 100
    assert then["huge"] == 101


# A thousand clients at once: all hear of a change, and the page is served meanwhile.


CLIENTS = 1000
SMALL = "sockets=1 cores=8 memory=8Gi"


def heard(clients: list[socket.socket], number: int) -> None:
    """Read from all clients until each has had the event of a snapshot."""
    wanted = f'"number":{number}'.encode()
    texts = dict.fromkeys(clients, b"")
    with selectors.DefaultSelector() as selector:
        for one in clients:
            selector.register(one, selectors.EVENT_READ)
        while texts:
            ready = selector.select(timeout=60)
            assert ready, f"{len(texts)} clients heard nothing"
            for key, _ in ready:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                part = client.recv(65536)
                assert part, "a stream ended"
                texts[client] += part
                if wanted in texts[client]:
                    selector.unregister(client)
                    del texts[client]


def test_a_thousand_clients_hear_of_a_change() -> None:
    recorded = recording()
    with many_files(2 * CLIENTS + 200), node_site(recorded) as site, ExitStack() as open_:
        clients = []
        for _ in range(CLIENTS):
            client = open_.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=60))
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(client)
        heard(clients, 1)
        recorded.take(replace(recorded.now, notices=(NodeNotice("changed"),)))
        heard(clients, 2)
        assert "changed" in site.ask("/body").text
