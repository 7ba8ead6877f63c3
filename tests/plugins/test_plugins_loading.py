"""Finding and loading plugins, those of a MooringConfiguration among them, and holding them to their budget of time."""

from __future__ import annotations

import threading
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.patience import until
from tests.plugins.installed_plugins import install

from mooring.engine.core.config import BUDGET, MILLISECOND, OutOfTimeError, PluginPlacement
from mooring.engine.core.errors import InputError
from mooring.engine.plugins.loading import Watchman, known_plugins, load_plugin
from mooring.inputs.configuration.mooring_config import mooring_config, plugin_choice

NAMES = {
    "good": "Good",
    "raising": "raising",
    "empty": "Empty",
    "wrapper": "Wrapper",
    "greedy": "Greedy",
    "unknown": "Unknown",
    "missing": "NotThere",
    "exits": "exit",
    "refusing": "refusing",
    "peeked": "Peeked",
    "bad\x1bname": "Good",
}


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, NAMES)


@pytest.mark.usefixtures("_installed")
def test_a_plugin_of_another_package_is_found_and_made_of_its_settings() -> None:
    assert known_plugins()["good"] == "made-up-plugins"
    loaded = load_plugin("good", {"limit": 3, "list": []})
    assert (loaded.name, loaded.is_shipped, set(loaded.points)) == ("good", False, {"pre_score", "allocated"})
    assert loaded.settings == {"limit": 3, "list": []}
    # Each point takes all arguments by name, and the plugin those that it wants.
    assert loaded.points["allocated"](change="anything") is None


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "field", "begins", "remedy"),
    [
        ("nobody", "name", "the plugin 'nobody' is not installed", "known are "),
        ("raising", "settings", "raising does not take them: OSError: no such file", ""),
        ("missing", "settings", "missing does not take them: AttributeError: ", ""),
        ("exits", "settings", "exits does not take them: SystemExit: {}", ""),
        ("refusing", "settings", "5", "7"),
        ("peeked", "name", "peeked is not a plugin: do not look", "compare with docs/reference/plugins.md"),
        ("bad\x1bname", "name", "'bad\\x1bname' is no name that a line can show", "rename"),
        ("empty", "name", "empty implements no extension point", "mark one of sort_pods, "),
        ("wrapper", "name", "wrapper wraps pre_score", "implement it without hookwrapper"),
        ("greedy", "name", "greedy is not a plugin: ", "compare with docs/reference/plugins.md"),
        ("unknown", "name", "unknown is not a plugin: ", "compare with docs/reference/plugins.md"),
    ],
)
def test_what_is_no_plugin_is_refused_in_one_line(name: str, field: str, begins: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        load_plugin(name, {})
    assert caught.value.field == field
    assert caught.value.problem.startswith(begins)
    assert caught.value.remedy.startswith(remedy)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.usefixtures("_installed")
def test_settings_that_a_plugin_refuses_are_named() -> None:
    with pytest.raises(InputError) as caught:
        load_plugin("good", {"limit": "three"})
    assert str(caught.value) == "settings.limit: is not a number; write limit: 3"


def test_nobody_takes_the_name_of_another_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", monkeypatch, {"kubelet-rules": "Good"}, "impostor")
    with pytest.raises(InputError) as caught:
        load_plugin("kubelet-rules", {})
    assert caught.value.problem == "'kubelet-rules' is offered by several packages"
    assert "impostor" in caught.value.remedy


def test_what_came_with_mooring_is_known_as_such() -> None:
    assert load_plugin("kubelet-rules", {}).is_shipped


def test_a_package_that_is_on_the_path_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", monkeypatch, NAMES)
    install(tmp_path / "two", monkeypatch, NAMES)
    assert load_plugin("good", {}).name == "good"


def test_without_plugins_nobody_is_loaded() -> None:
    assert plugin_choice({}).plugins == ()
    assert plugin_choice({}).budget == BUDGET
    assert plugin_choice({"plugins": [], "pluginBudget": "5ms"}).budget == 5 * MILLISECOND


def test_a_name_is_enough_and_a_mapping_says_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"good": "Good"})
    entry = {"name": "good", "settings": {"limit": 1}, "placement": "hint-provider", "weight": 5}
    first, second = plugin_choice({"plugins": ["kubelet-rules", entry], "pluginBudget": "2s"}).plugins
    assert (first.name, first.placement, first.weight, first.is_shipped) == (
        "kubelet-rules",
        PluginPlacement.CPU_MANAGER,
        1,
        True,
    )
    assert (second.settings, second.placement, second.weight, second.is_shipped) == (
        {"limit": 1},
        PluginPlacement.HINT_PROVIDER,
        5,
        False,
    )


@pytest.mark.parametrize(
    ("content", "field", "remedy"),
    [
        ({"plugins": "kubelet-rules"}, "plugins", ""),
        ({"plugins": [5]}, "plugins[0]", ""),
        ({"plugins": ["kubelet-rules", "nobody"]}, "plugins[1].name", "known are "),
        ({"plugins": ["kubelet-rules", "kubelet-rules"]}, "plugins[1].name", "leave one out"),
        ({"plugins": [{"settings": {}}]}, "plugins[0].name", ""),
        ({"plugins": [{"name": ""}]}, "plugins[0].name", ""),
        ({"plugins": [{"name": "kubelet-rules", "wieght": 1}]}, "plugins[0].wieght", "did you mean weight"),
        ({"plugins": [{"name": "kubelet-rules", "weight": 0}]}, "plugins[0].weight", "write 1 to 100"),
        ({"plugins": [{"name": "kubelet-rules", "weight": 101}]}, "plugins[0].weight", "write 1 to 100"),
        ({"plugins": [{"name": "kubelet-rules", "weight": "x"}]}, "plugins[0].weight", ""),
        ({"plugins": [{"name": "kubelet-rules", "placement": "kubelet"}]}, "plugins[0].placement", ""),
        ({"plugins": [{"name": "kubelet-rules", "settings": []}]}, "plugins[0].settings", ""),
        (
            {"plugins": [{"name": "kubelet-rules", "settings": {"a": 1}}]},
            "plugins[0].settings.a",
            "kubelet-rules takes",
        ),
        ({"pluginBudget": "soon"}, "pluginBudget", "write one such as 50ms"),
        ({"pluginBudget": "10us"}, "pluginBudget", "write 50ms"),
        ({"pluginBudget": "11s"}, "pluginBudget", "write 50ms"),
        ({"pluginBudget": 50}, "pluginBudget", ""),
    ],
)
def test_bad_input_is_one_line_with_field_and_remedy(content: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        mooring_config({"extensions": ["plugins"], **content}, source="mooring.yaml")
    error = caught.value
    assert error.field == field
    assert remedy in error.remedy
    assert str(error).startswith(f"mooring.yaml: {field}: ")
    assert len(str(error).splitlines()) == 1


def test_nobodys_code_runs_without_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"raising": "raising"})
    with pytest.raises(InputError) as caught:
        mooring_config({"plugins": ["raising"]}, source="mooring.yaml")
    assert str(caught.value) == (
        "mooring.yaml: plugins: needs the extension plugins; name plugins among the extensions"
    )


MINUTE = 60 * 10**9


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "plugins"}


def test_work_that_is_done_gives_its_answer_and_its_errors() -> None:
    watch = Watchman()
    assert watch(lambda: 5, MINUTE) == 5
    with pytest.raises(ZeroDivisionError):
        watch(lambda: 1 // 0, MINUTE)
    with pytest.raises(SystemExit):
        watch(lambda: exec("raise SystemExit"), MINUTE)  # noqa: S102 - a lambda cannot raise
    assert watch(lambda: 6, MINUTE) == 6


def test_work_is_done_in_one_thread_that_is_not_the_callers() -> None:
    watch = Watchman()
    first, second = watch(threading.get_ident, MINUTE), watch(threading.get_ident, MINUTE)
    assert first == second != threading.get_ident()


def test_a_thread_that_is_stuck_is_left_and_ends_when_it_comes_back() -> None:
    watch, release, stuck = Watchman(), Event(), Event()

    def block() -> str:
        stuck.set()
        release.wait()
        return "late"

    before = threads()
    with pytest.raises(OutOfTimeError):
        watch(block, 10**6)
    until(stuck.is_set, "the work has begun")
    left = threads() - before
    assert len(left) == 1
    assert watch(lambda: "other work", MINUTE) == "other work"
    release.set()
    until(lambda: not any(thread.is_alive() for thread in left), "the thread ends")
    assert watch(lambda: "more work", MINUTE) == "more work"


def test_who_was_given_up_stays_so_for_this_watch_only() -> None:
    watch = Watchman()
    assert not watch.has_given_up("slow")
    watch.give_up("slow")
    assert watch.has_given_up("slow")
    assert not watch.has_given_up("other")
    assert not Watchman().has_given_up("slow")
