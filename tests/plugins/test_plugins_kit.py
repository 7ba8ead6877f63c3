"""The test kit and the template for authors of plugins."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.plugins import CPURequest, PodView, hookimpl
from mooring.plugintesting import BrokenRuleError, check_plugin

SECONDS = 10**9
"""Far more than any question takes on a busy machine."""


class Base:
    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings


def broken(plugin: type[Base], examples: int = 60) -> BrokenRuleError:
    with pytest.raises(BrokenRuleError) as caught:
        check_plugin(plugin, examples=examples, budget=10 * SECONDS)
    return caught.value


def test_a_plugin_that_keeps_the_rules_passes() -> None:
    class Highest(Base):
        @hookimpl
        def pre_score(self, request: CPURequest) -> dict[int, float]:
            return {cpu: float(cpu) for cpu in request.available}

        @hookimpl
        def sort_pods(self, pods: tuple[PodView, ...]) -> list[str]:
            return sorted((pod.uid for pod in pods), reverse=True)

    check_plugin(Highest, examples=40, budget=10 * SECONDS)


def test_an_answer_that_does_not_count_is_reported_with_machine_and_pod() -> None:
    class Greedy(Base):
        @hookimpl
        def select_cpus(self, request: CPURequest) -> CPUSet:
            return request.available

    error = broken(Greedy)
    assert error.rule.startswith("every answer counts: select_cpus: it selected ")
    text = str(error)
    assert "machine: " in text
    assert "asked about: pod-0 " in text
    assert "step 1: pod-0 arrives: Guaranteed, " in text


def test_what_is_raised_is_reported() -> None:
    class Fails(Base):
        @hookimpl
        def pre_score(self, request: CPURequest) -> dict[int, float]:
            return {min(request.available): 1 / (len(request.available) - request.need)}

    assert broken(Fails).rule == "every answer counts: pre_score: it raised ZeroDivisionError: division by zero"


def test_an_order_that_loses_pods_is_reported() -> None:
    class Loses(Base):
        @hookimpl
        def sort_pods(self, pods: tuple[PodView, ...]) -> list[str]:
            return [pod.uid for pod in pods[1:]]

    assert "sort_pods: it left pods out" in broken(Loses).rule


def test_another_answer_to_the_same_question_is_reported() -> None:
    class Moody(Base):
        def __init__(self, settings: Mapping[str, object]) -> None:
            super().__init__(settings)
            self.asked = count()

        @hookimpl
        def select_cpus(self, request: CPURequest) -> CPUSet:
            free = list(request.available)
            start = next(self.asked) % (len(free) - request.need + 1)
            return CPUSet.from_ids(free[start : start + request.need])

    assert broken(Moody, 100).rule == "the same question has the same answer: asked again, it decided otherwise"


def test_a_memory_of_earlier_questions_is_reported() -> None:
    class Remembers(Base):
        def __init__(self, settings: Mapping[str, object]) -> None:
            super().__init__(settings)
            self.pods: set[str] = set()

        @hookimpl
        def pre_score(self, request: CPURequest) -> dict[int, float]:
            self.pods.add(request.pod.uid if request.pod else "")
            chosen = max(request.available) if len(self.pods) > 2 else min(request.available)
            return {chosen: 1.0}

    rule = broken(Remembers, 200).rule
    assert rule == "the same question has the same answer: a new instance decided otherwise"


def test_a_question_that_takes_too_long_is_reported() -> None:
    class Slow(Base):
        @hookimpl
        def pre_score(self) -> None:
            sum(range(1000))

    with pytest.raises(BrokenRuleError) as caught:
        check_plugin(Slow, examples=20, budget=1)
    assert caught.value.rule.startswith("no question takes too long: pre_score took ")


def test_what_is_no_plugin_is_refused() -> None:
    with pytest.raises(InputError):
        check_plugin(Base)


def test_without_hypothesis_one_line_says_what_is_missing() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import mooring.plugintesting"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "mooring.plugintesting needs hypothesis, which is not installed; run pip install hypothesis"
    )


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
