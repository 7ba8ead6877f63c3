"""``plugins`` and ``pluginBudget`` of a MooringConfiguration: what is understood, and one line for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.plugins.installed_plugins import install

from mooring.engine.core.config import BUDGET, MILLISECOND, PluginPlacement
from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.mooring_config import mooring_config, plugin_choice


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
