"""Mooring without any extra: each verb that needs one says which."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection
from contextlib import closing
from email.parser import HeaderParser
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import click
import pytest
from tests.cli.made_up_node import make_root
from tests.packaging.conftest import ROOT

from mooring import DISTRIBUTION, __version__
from mooring.command.main import VERBS, cli

CLUSTER, DAY = (str(ROOT / "examples" / "fleet" / name) for name in ("cluster.yaml", "day.yaml"))
NEEDED = {
    "agent": ("agent", "--config", "none.yaml"),
    "dra": ("dra", "--agent", "none.sock", "--kubeconfig", "none"),
    "extender": ("extender", "--config", "none.yaml"),
    "publish": ("publish", "--once", "--kubeconfig", "none"),
    "play": ("play", "-f", CLUSTER, "--kubeconfig", "none"),
    "fleet simulate": ("fleet", "simulate", "--cluster", CLUSTER, "-f", DAY),
    "fleet size": ("fleet", "size", "--cluster", CLUSTER, "-f", DAY, "--group", "one-socket"),
}
EXTRAS = {"agent": "agent", "dra": "dra", "extender": "kube", "publish": "kube", "play": "kube", "fleet": "fleet"}
# Runs command lines in turn in an interpreter that has no package but those of the base installation.
PROGRAM = """
import contextlib, io, json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
from mooring.command.main import run
for words in json.loads(sys.argv[2]):
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        code = run(words)
    print(json.dumps([code, told.getvalue()]))
"""
IMPORTED = {"grpcio": "grpc", "protobuf": "google.protobuf"}
"""Packages whose modules have other names."""


def packages_of(*extras: str) -> set[str]:
    """Return the packages that extras name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = project["optional-dependencies"]
    return {re.split("[><=]", line)[0] for extra in extras or found for line in found[extra]}


def without_extras(*lines: tuple[str, ...], but: Collection[str] = ()) -> list[tuple[int, str]]:
    blocked = [IMPORTED.get(name, name.replace("-", "_")) for name in sorted(packages_of().difference(but))]
    words = [sys.executable, "-c", PROGRAM, json.dumps(blocked), json.dumps(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [(code, complaint) for code, complaint in answers]


def test_a_verb_without_its_extra_names_it_in_one_line() -> None:
    answers = dict(zip(NEEDED, without_extras(*NEEDED.values()), strict=True))
    for verb, (code, complaint) in answers.items():
        extra = EXTRAS[verb.split()[0]]
        assert (code, complaint.count("\n")) == (2, 1), complaint
        assert complaint.endswith(f"install its packages: pip install 'kube-mooring[{extra}]'\n"), complaint


@pytest.mark.parametrize("verb", NEEDED)
def test_an_extra_has_every_package_that_its_verb_imports(licences: ModuleType, verb: str) -> None:
    packages = licences.needed(sorted(packages_of(EXTRAS[verb.split(maxsplit=1)[0]])))
    [(_, complaint)] = without_extras(NEEDED[verb], but=packages)
    assert "install its packages" not in complaint, complaint


def test_help_of_every_verb_needs_no_extra() -> None:
    assert [answer for answer in without_extras(*((verb, "--help") for verb in VERBS)) if answer != (0, "")] == []


def test_plans_and_pictures_need_no_extra(tmp_path: Path) -> None:
    pods, config = (str(ROOT / "examples" / name) for name in ("pods.yaml", "kubelet.yaml"))
    about = ("-f", pods, "--machine", "epyc-7763-2s-nps4", "--config", config)
    forms = ("text", "json", "html", "metrics")
    lines = [("plan", *about, "-o", form, "--to", str(tmp_path / f"plan.{form}")) for form in forms]
    assert {code for code, complaint in without_extras(*lines)} == {1}, "pods are rejected, and nothing else is wrong"
    assert len(list(tmp_path.iterdir())) == len(forms)


def test_the_agent_imports_no_http_client_without_an_api_server() -> None:
    lines = "import sys; sys.modules.update(httpx2=None, lightkube=None); from mooring.agent import devices, startup; "
    touched = "print(devices.open_device_access, startup.__name__)"
    subprocess.run([sys.executable, "-c", lines + touched], check=True, timeout=120)


def test_a_kubelet_beside_it_is_not_asked_for_devices_without_extras(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("r")
    make_root(root)
    place = root / "var/lib/kubelet/pod-resources"
    place.mkdir(parents=True)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(place / "kubelet.sock"))
        [(code, complaint)] = without_extras(("collect", "--root", str(root), "--dry-run", "--no-kubectl"))
    assert (code, complaint) == (0, "")


# The built wheel: its name, and what it has besides the package.


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


def test_only_the_package_with_its_demo_and_shared_files_are_installed(wheel: zipfile.ZipFile) -> None:
    assert {"mooring/answers/demo/pods.yaml", "mooring/answers/demo/kubelet.yaml"} <= set(wheel.namelist())
    assert {name.split("/")[0] for name in wheel.namelist()} == {
        "mooring",
        f"kube_mooring-{__version__}.data",
        f"kube_mooring-{__version__}.dist-info",
    }
    assert f"kube_mooring-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()


# What is installed with Mooring: licences, and one version in every lock file.


def locked(name: str) -> dict[str, set[str]]:
    """Return package -> versions of a lock file."""
    found: dict[str, set[str]] = {}
    for name_, version in re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name_, set()).add(version)
    return found


def installed(folder: Path, name: str, *fields: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields, ""])
    (info / "METADATA").write_text(text, encoding="utf-8")


def test_every_dependency_has_a_licence_that_is_allowed(licences: ModuleType) -> None:
    found = {name: licences.licence(package) for name, package in licences.needed(licences.declared()).items()}
    assert len(found) > 20
    assert {name: text for name, text in found.items() if not licences.is_allowed(text)} == {}, (
        "read the licence; one that is allowed goes into ALLOWED of scripts/release/licences.py"
    )


def test_a_dependency_of_a_dependency_with_another_licence_is_found(
    licences: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "outer", "License: MIT", "Provides-Extra: more", "Requires-Dist: middle[part]; extra == 'more'")
    installed(
        tmp_path, "middle", "License-Expression: MIT", "Provides-Extra: part", "Requires-Dist: inner; extra == 'part'"
    )
    installed(tmp_path, "inner", "License: GPLv3")
    monkeypatch.syspath_prepend(tmp_path)
    found = licences.needed(["outer[more]"])
    assert {name: licences.is_allowed(licences.licence(one)) for name, one in found.items()} == {
        "inner": False,
        "middle": True,
        "outer": True,
    }


def test_a_dependency_that_is_not_installed_is_no_licence_that_is_allowed(
    licences: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "outer", "Requires-Dist: no-such-package-anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PackageNotFoundError):
        licences.needed(["outer"])


def test_what_is_released_is_what_is_tested(licences: ModuleType) -> None:
    runtime, tested = locked("requirements-runtime.lock"), locked("requirements.lock")
    assert set(licences.needed(licences.declared())) <= set(runtime), "run make lock"
    assert {name: versions for name, versions in runtime.items() if tested.get(name) != versions} == {}
