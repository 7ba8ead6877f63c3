"""Files to documents: sizes, encodings, folders, standard input, JSON."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from tests.values import refusal

from mooring.inputs.decoding.documents import load_documents


def contents(path: Path | str) -> list[object]:
    return [document.content for document in load_documents(path)]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_file_of_several_documents(tmp_path: Path) -> None:
    file = write(tmp_path / "pods.yaml", "a: 1\n---\n# nothing\n---\nb: 2\n")
    assert [(found.content, found.file, found.line) for found in load_documents(file)] == [
        ({"a": 1}, str(file), 1),
        ({"b": 2}, str(file), 5),
    ]


def test_folder_is_read_by_name_and_suffix(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "d.txt", ".hidden"):
        write(tmp_path / name, f'{{"name": "{name}"}}')
    (tmp_path / "e.yaml").mkdir()
    assert contents(tmp_path) == [{"name": "a.yml"}, {"name": "b.yaml"}, {"name": "c.json"}]


def test_folder_without_manifests_is_refused(tmp_path: Path) -> None:
    assert (
        refusal(load_documents, tmp_path)
        == f"{tmp_path}: the folder holds no manifests; put .yaml, .yml, .json files there"
    )


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\n--- {b: 2}\n")))
    assert [(found.content, found.file) for found in load_documents("-")] == [
        ({"a": 1}, "standard input"),
        ({"b": 2}, "standard input"),
    ]


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert contents(write(tmp_path / "f.json", b"\xef\xbb\xbf{}")) == [{}]


def test_json_values_may_follow_each_other(tmp_path: Path) -> None:
    found = load_documents(write(tmp_path / "f.json", '{"a": 1}\n\n[2]\n'))
    assert [(document.content, document.line, document.index) for document in found] == [({"a": 1}, 1, 1), ([2], 3, 2)]


def test_flow_style_yaml_is_no_json_but_is_read(tmp_path: Path) -> None:
    assert contents(write(tmp_path / "f.yaml", "{a: 1, b: [on]}")) == [{"a": 1, "b": [True]}]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("f.yaml", b"", "nothing in it"),
        ("f.yaml", b"# only a remark\n---\n", "nothing in it"),
        ("f.yaml", b"a: 1\nb: \xff\n", "f.yaml:2:4: not UTF-8 text (byte 0xff); save it as UTF-8"),
        ("f.yaml", "a: 1".encode("utf-16"), "the text is UTF-16; save it as UTF-8"),
        ("f.yaml", b"a: 1\n\0", "f.yaml:2:1: a NUL character: this is not a text file"),
        ("f.yaml", b"\x7fELF\x02\x01\x01\0\0", "NUL character"),
        ("f.yaml", b"\x1f\x8b\x08\0", "not UTF-8 text"),
        ("f.json", b'{"a": 1, "a": 2}', "f.json:1:10: the key 'a' appears twice in one object; keep one of them"),
        ("f.json", b'{"b": 0, "a": 1, "a": 2}', "the key 'a' appears twice in one object; keep one of them"),
        ("f.json", b'{"a": NaN}', "f.json:1:7: NaN is not a number that JSON knows"),
        ("f.json", b'{"a": 1e400}', "f.json:1:7: the number 1e400 is too large"),
        ("f.json", b'{"a": ' + b"9" * 5000 + b"}", "f.json:1:7: a number has too many digits"),
        ("f.json", b"[" * 100_000, "f.json:1:101: nested too deeply"),
        ("f.json", b'{"a": "\\ud800"}', "f.json:1:8: a \\u escape names half of a character"),
        ("f.json", b'{"a" 1}', "f.json:1:6: not valid JSON: "),
        ("f.json", b"a: 1", "f.json:1:1: not valid JSON: Expecting value"),
    ],
)
def test_unusable_file_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    assert message in refusal(load_documents, write(tmp_path / name, data))


def test_whole_characters_written_as_escapes_are_read(tmp_path: Path) -> None:
    assert contents(write(tmp_path / "f.json", '{"a": "\\ud83d\\ude00"}')) == [{"a": "\U0001f600"}]


def test_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024**2)
    assert refusal(load_documents, file) == f"{file}: larger than 64 MiB; split it, or select fewer objects"


def test_endless_input_is_refused_when_it_passes_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.decoding.files.LARGEST_FILE", 1024**2)
    assert "larger than 1 MiB" in refusal(load_documents, "/dev/zero")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing.yaml", "no such file or directory"), ("nul\0.yaml", "null"), ("x" * 5000, "too long")],
)
def test_what_cannot_be_opened_is_refused(path: str, reason: str) -> None:
    assert f"cannot be read: {reason}" in refusal(load_documents, path) or reason in refusal(load_documents, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "f.yaml", "a: 1")
    file.chmod(0)
    assert "cannot be read: permission denied" in refusal(load_documents, file)


def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    assert "\\udcff" in refusal(load_documents, f"{tmp_path}/\udcff.yaml")
