"""The built wheel: its name, and what it has besides the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from importlib import import_module
from pathlib import Path

import click
import pytest

from mooring import DISTRIBUTION, __version__
from mooring.command.main import VERBS, cli

ROOT = Path(__file__).resolve().parents[2]
DATA = f"kube_mooring-{__version__}.data/data/"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.iterdir()
    assert file.name == f"kube_mooring-{__version__}-py3-none-any.whl"
    return zipfile.ZipFile(file)


@pytest.mark.long
def test_errors_name_the_distribution_by_which_the_wheel_is_installed(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"kube_mooring-{__version__}.dist-info/METADATA").decode()
    metadata = HeaderParser().parsestr(text)
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, __version__)
    assert set(metadata.get_all("Provides-Extra", [])) == {"agent", "dra", "fleet", "kube", "notebook", "tracing"}


def test_the_files_of_the_demo_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert {"mooring/answers/demo/pods.yaml", "mooring/answers/demo/kubelet.yaml"} <= set(wheel.namelist())


def test_each_verb_has_a_manual_page(wheel: zipfile.ZipFile) -> None:
    found = {name for name in wheel.namelist() if name.startswith(f"{DATA}share/man")}
    verbs = {verb: cli.get_command(click.Context(cli), verb) for verb in VERBS}
    questions = {
        f"{verb}-{question}"
        for verb, command in verbs.items()
        if isinstance(command, click.Group)
        for question in command.list_commands(click.Context(command))
    }
    assert questions
    assert found == {
        f"{DATA}share/man/man1/{name}.1"
        for name in ("mooring", *(f"mooring-{verb}" for verb in VERBS), *(f"mooring-{name}" for name in questions))
    }


def test_a_manual_page_has_every_option_and_no_request_of_roff_by_accident(wheel: zipfile.ZipFile) -> None:
    command = import_module("mooring.answers.plan").command
    page = wheel.read(f"{DATA}share/man/man1/mooring-plan.1").decode()
    for option in command.params:
        assert option.opts[-1].replace("-", "\\-") in page
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".TP", ".B", ".PP", ".nf", ".fi"}
    assert "\b" not in page


def test_each_shell_gets_its_completion(wheel: zipfile.ZipFile) -> None:
    places = {
        "share/bash-completion/completions/mooring": "complete -o nosort",
        "share/zsh/site-functions/_mooring": "#compdef mooring",
        "share/fish/vendor_completions.d/mooring.fish": "complete --no-files --command mooring",
    }
    for place, words in places.items():
        assert words in wheel.read(DATA + place).decode()


def test_only_the_package_and_shared_files_are_installed(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {
        "mooring",
        f"kube_mooring-{__version__}.data",
        f"kube_mooring-{__version__}.dist-info",
    }
    assert f"kube_mooring-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
