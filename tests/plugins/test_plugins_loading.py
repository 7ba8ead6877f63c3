"""Finding and making plugins."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.plugins.installed_plugins import install

from mooring.engine.core.errors import InputError
from mooring.engine.plugins.loading import known_plugins, load_plugin

NAMES = {
    "good": "Good",
    "raising": "raising",
    "empty": "Empty",
    "wrapper": "Wrapper",
    "greedy": "Greedy",
    "unknown": "Unknown",
    "missing": "NotThere",
}


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, NAMES)


@pytest.mark.usefixtures("_installed")
def test_a_plugin_of_another_package_is_found_and_made_of_its_settings() -> None:
    assert known_plugins()["good"] == "made-up-plugins"
    loaded = load_plugin("good", {"limit": 3})
    assert (loaded.name, loaded.is_shipped, set(loaded.points)) == ("good", False, {"pre_score", "allocated"})
    # Each point takes all arguments by name, and the plugin those that it wants.
    assert loaded.points["allocated"](change="anything") is None


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "field", "begins", "remedy"),
    [
        ("nobody", "name", "the plugin 'nobody' is not installed", "known are "),
        ("raising", "settings", "raising does not take them: OSError: no such file", ""),
        ("missing", "settings", "missing does not take them: AttributeError: ", ""),
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
