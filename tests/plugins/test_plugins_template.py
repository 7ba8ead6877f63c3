"""The template for authors: its own tests pass, and it is as short as is said."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plugin-template"


@pytest.mark.long
def test_the_templates_own_tests_pass() -> None:
    path = f"import sys; sys.path.insert(0, {str(FOLDER / 'src')!r}); import pytest; "
    call = f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', {str(FOLDER / 'pyproject.toml')!r}, "
    command = [sys.executable, "-B", "-c", f"{path}{call}{str(FOLDER / 'tests')!r}]))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_point_names_the_class_and_the_plugin_is_short() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["mooring.cpu_plugins"] == {"quiet-caches": "quiet_caches:QuietCaches"}
    source = (FOLDER / "src" / "quiet_caches" / "__init__.py").read_text()
    assert "class QuietCaches:" in source
    assert len(source.splitlines()) <= 40


def test_the_page_shows_the_method_of_the_templates_plugin() -> None:
    page = (FOLDER.parents[1] / "docs" / "how-to" / "write-a-plugin.md").read_text(encoding="utf-8")
    source = (FOLDER / "src" / "quiet_caches" / "__init__.py").read_text(encoding="utf-8")
    method = textwrap.dedent(source[source.index("    @hookimpl") :])
    assert f"```python\n{method}```" in page
