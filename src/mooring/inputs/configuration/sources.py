"""The files of a configuration: documents, drop-in folders, texts of flags, user data of several parts.

A folder with files that end in ``.conf`` is that of ``--config-dir``: these files, and those of its subfolders, are
read in the order of their names, and all others are ignored, as the kubelet does. Of other folders all manifests are
read.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import SourcePlace
from mooring.inputs.configuration import devices, kubelet_flags
from mooring.inputs.decoding.api_fields import Places
from mooring.inputs.decoding.documents import SUFFIXES, documents_in, load_documents, places_of
from mooring.inputs.decoding.fields import Document, Value, within
from mooring.inputs.decoding.files import STANDARD_INPUT, open_problem, pasted, read_bytes, read_standard_input, shown
from mooring.lazy import dataclass, lazily, replace

with lazily():
    import tomllib
    from email import parser as mime

    from mooring.inputs.configuration import embedded

DROP_IN_SUFFIX: Final = ".conf"
KUBELET_ARGUMENTS: Final = "kubeletArguments"
"""Single key of a document that holds the kubelet's arguments."""
BOOTSTRAP_OPTIONS: Final = "bootstrapOptions"
"""Single key of a document that holds the options of ``bootstrap.sh``, each with its value."""
_MULTIPART: Final = "multipart/"
_NODE_CONFIG: Final = "application/node.eks.aws"
_SCRIPT: Final = "text/x-shellscript"
_OWN_KINDS: Final = ("KubeletConfiguration", "MooringConfiguration", "NodeDevices", "AgentConfiguration")
_OWN_KEYS: Final = frozenset({KUBELET_ARGUMENTS, BOOTSTRAP_OPTIONS, "kubeletconfig"})
_TOML: Final = re.compile(r"^[ \t]*\[\[?[a-z][\w.\"' -]+\]?\]\s*$|^[ \t]*[\w-]+(?:\.[\w-]+)+\s*=", re.MULTILINE)
_YAML: Final = re.compile(r"^(?:apiVersion|kind)\s*:|^---", re.MULTILINE)
_TABLE: Final = re.compile(r"^\[settings\.", re.MULTILINE)
HINT: Final = re.compile(r"kubelet|(?:cpu|memory|topology)-?manager-?policy|reserved", re.IGNORECASE)
_CALLOUT: Final = re.compile(r"^[ \t]*[1-9][0-9]?[ \t]*$", re.MULTILINE)
"""A line that is the number of a remark below, as pages of documentation have it."""
_LOG: Final = re.compile(r"\b[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9.]+ +[0-9]+ \w+\.go:[0-9]+\]")
_INLINE: Final = re.compile(r"kubelet[\w-]*=(['\"])(\{.*\})\1")
_HEREDOC: Final = re.compile(r"<<[-~]?\s*[\"']?(\w+)[\"']?")


@dataclass(frozen=True, slots=True)
class ConfigurationSource:
    """A document, and how the lines of its fields are found."""

    document: Document
    places: Places
    drop_in: bool = False
    """Whether it is a file of the kubelet's ``--config-dir``."""
    found: str = ""
    """Where it is in a document of another tool."""
    api: str = ""
    """The API version of the object that it is in."""
    refused: tuple[str, ...] = ()
    """Fields there that the object's API does not have."""

    @staticmethod
    def at(document: Document, place: SourcePlace) -> ConfigurationSource:
        """Return a document all of whose fields have one place."""
        return ConfigurationSource(document, lambda paths: dict.fromkeys(paths, place))

    @property
    def is_own(self) -> bool:
        """Whether the document is the kubelet's or Mooring's, or made of what a kubelet was started with."""
        content = self.document.content
        return isinstance(content, dict) and (
            content.get("kind") in _OWN_KINDS or (len(content) == 1 and not _OWN_KEYS.isdisjoint(content))
        )

    def with_listed_devices(self) -> ConfigurationSource:
        """Return the document; a dump of the PodResources API as the devices that it lists."""
        document = self.document
        with within(source=document.source):
            made = devices.devices_in(document.content)
        return self if made is None else ConfigurationSource.at(replace(document, content=made), document.place)

    def renamed(self, path_of: Callable[[str], str]) -> Places:
        """Return the places of a part of the document; the function gives the path in it of a field of the part."""

        def places(fields: Iterable[str]) -> dict[str, SourcePlace]:
            paths = {field: path_of(field) for field in fields}
            found = self.places(list(paths.values()))
            return {field: found[path] for field, path in paths.items()}

        return places


def sources_of(documents: Iterable[Document]) -> Iterator[ConfigurationSource]:
    """Return documents as sources."""
    return (ConfigurationSource(document, partial(places_of, document)) for document in documents)


def load_sources(path: str | os.PathLike[str]) -> list[ConfigurationSource]:
    """Read a file, a folder or standard input (``-``).

    Raises:
        InputError: nothing there, not readable, too large, or in none of the formats.
    """
    if path == "-":
        return list(sources_in(read_standard_input(), STANDARD_INPUT))
    name, _, chosen = str(path).partition("#") if not Path(path).exists() else (str(path), "", "")
    file = Path(name)
    drop_ins = _drop_ins(file)
    if drop_ins:
        documents = (one for file in drop_ins for one in documents_in(read_bytes(file), shown(file)))
        return [ConfigurationSource(one, partial(places_of, one), drop_in=True) for one in documents]
    try:
        is_folder = file.is_dir()
        is_empty = is_folder and not any(entry.suffix in SUFFIXES for entry in file.iterdir())
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=shown(name)) from None
    if is_empty:
        remedy = f"put {', '.join(SUFFIXES)} files there, or drop-ins as *{DROP_IN_SUFFIX}"
        raise InputError("the folder holds no configuration", source=shown(path), remedy=remedy)
    if is_folder:
        return list(sources_of(load_documents(path)))
    return list(sources_in(read_bytes(file), shown(name), json_only=file.suffix == ".json", chosen=chosen))


def sources_in(
    data: bytes, name: str, *, json_only: bool = False, chosen: str = "", depth: int = 0
) -> list[ConfigurationSource]:
    """Return what the bytes of a file hold.

    Args:
        data: the bytes.
        name: the file's, for messages.
        json_only: whether it is JSON and nothing else.
        chosen: which part of a document of another tool is meant, where it has several.
        depth: how many texts of other tools are around this one.

    Raises:
        InputError: none of the formats.
    """
    text = data.decode("utf-8-sig", "replace")
    try:
        given = _written(data, text, name, json_only=json_only)
        if not chosen and all(one.is_own for one in given):
            return given
        found = embedded.embedded(given, name, chosen, depth)
        if any(isinstance(one.document.content, dict) for one in found) or pasted(text) == [text]:
            return found
        texts = pasted(text)
    except InputError:
        texts = pasted(text)
        if texts == [text] and not _CALLOUT.search(text):
            raise
    texts = [_CALLOUT.sub("", part) for part in texts]
    given = [one for part in texts for one in _written(part.encode(), part, name, json_only=json_only)]
    return embedded.embedded(given, name, chosen, depth)


def _written(data: bytes, text: str, name: str, *, json_only: bool) -> list[ConfigurationSource]:
    """Return the documents, or the flags, of a text."""
    head = text.lstrip().partition("\n\n")[0].lower()
    if head.startswith(("mime-version:", "content-type:")) and _MULTIPART in head:
        return list(_parts_of(text, name))
    if not json_only:
        if (flags := _flags_in(text, name)) is not None:
            return [flags]
        if devices.MATRIX.search(text):
            matrix = Document(devices.matrix_document(text, name), name, 1, 1)
            return [ConfigurationSource.at(matrix, SourcePlace(name))]
    problem: InputError | None = None
    given: list[ConfigurationSource] = []
    if not json_only and _TOML.search(text) and not _YAML.search(text):
        try:
            given = [_toml(text, name)]
        except InputError as error:
            if _TABLE.search(text):
                # Some of its lines alone do not say what it says.
                raise
            problem = error
    try:
        given = given or list(sources_of(documents_in(data, name, json_only=json_only)))
    except InputError as error:
        problem = problem or error
    if any(isinstance(one.document.content, dict) for one in given):
        return [one.with_listed_devices() for one in given]
    given += _in_script(text, name)
    given = [one for one in given if isinstance(one.document.content, dict)] or given
    if problem is not None and not any(isinstance(one.document.content, dict) for one in given):
        if _LOG.search(text):
            remedy = "take the log from its first line, with -v=2, or give /api/v1/nodes/NAME/proxy/configz"
            raise InputError("a kubelet's log without FLAG lines", source=name, remedy=remedy)
        raise problem
    return given


def _in_script(text: str, name: str) -> Iterator[ConfigurationSource]:
    """Yield the files in a script, and the flags on lines of it or of a terminal."""
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if mark := _HEREDOC.search(line):
            end = next((at for at in range(start + 1, len(lines)) if lines[at].strip() == mark[1]), start)
            body = "\n" * (start + 1) + "".join(f"{one}\n" for one in lines[start + 1 : end])
            if HINT.search(body):
                with suppress(InputError):
                    yield from _written(body.encode(), body, name, json_only=False)
                lines[start + 1 : end] = [""] * (end - start - 1)
        elif inline := _INLINE.search(line):
            text = "\n" * start + inline[2]
            yield from _written(text.encode(), text, name, json_only=False)
    arguments = kubelet_flags.pasted_arguments_in("\n".join(lines), name)
    if arguments or any(map(kubelet_flags.LOGGED.search, lines)):
        yield _listed(KUBELET_ARGUMENTS, [word for word, _ in arguments], name, [line for _, line in arguments])


def _toml(text: str, name: str) -> ConfigurationSource:
    content: dict[str, Value] = {}
    problem: Exception | None = None
    for part in (text, *pasted(text)):
        try:
            content, problem = tomllib.loads(part), None
            break
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problem = problem or error
    if problem is not None:
        raise InputError(f"not valid TOML: {problem}", source=name, remedy="check the quotes and brackets") from None
    lines = text.split("\n")

    def places(fields: Iterable[str]) -> dict[str, SourcePlace]:
        found = {}
        for field in fields:
            words = [re.escape(word) for word in re.sub(r"\[.*?\]", "", field).split(".") if word]
            forms = [rf'\s*(?:\[.*{word}"?\]|(?:[\w.-]+\.)?"?{word}"?\s*=)' for word in reversed(words)]
            hits = (number for form in forms for number, one in enumerate(lines, 1) if re.match(form, one))
            found[field] = SourcePlace(name, next(hits, 0))
        return found

    return ConfigurationSource(Document(content, name, 1, 1), places)


def _flags_in(text: str, name: str) -> ConfigurationSource | None:
    """Return a text of flags, or a start script, as a document."""
    if (options := kubelet_flags.bootstrap_arguments_in(text, name)) is not None:
        content: list[Value] = [{option: word} for option, (word, _) in options]
        return _listed(BOOTSTRAP_OPTIONS, content, name, [line for _, (_, line) in options])
    if (arguments := kubelet_flags.kubelet_arguments_in(text, name)) is not None:
        return _listed(KUBELET_ARGUMENTS, [word for word, _ in arguments], name, [line for _, line in arguments])
    return None


def _listed(key: str, content: list[Value], name: str, lines: list[int]) -> ConfigurationSource:
    document = Document({key: content}, name, 1, 1)

    def places(fields: Iterable[str]) -> dict[str, SourcePlace]:
        found = {}
        for field in fields:
            number = field.removeprefix(f"{key}[").partition("]")[0]
            known = number.isdigit() and int(number) < len(lines)
            found[field] = SourcePlace(name, lines[int(number)] if known else 0)
        return found

    return ConfigurationSource(document, places)


def _drop_ins(folder: Path) -> list[Path]:
    """Return the files of a drop-in folder in the order in which the kubelet walks it (filepath.WalkDir)."""
    found: list[Path] = []
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: os.fsencode(entry.name)) if folder.is_dir() else []
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=shown(folder)) from None
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            found += _drop_ins(entry)
        elif entry.suffix == DROP_IN_SUFFIX:
            found.append(entry)
    return found


def _parts_of(text: str, name: str) -> Iterator[ConfigurationSource]:
    """Yield the parts of user data that configure the kubelet.

    Source: https://awslabs.github.io/amazon-eks-ami/nodeadm/ (NodeConfig in a MIME multi-part document).
    """
    found = False
    for part in mime.Parser().parsestr(text.lstrip()).walk():
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes) or part.get_content_type() not in (_NODE_CONFIG, _SCRIPT):
            continue
        body = data.decode(errors="replace")
        # A part in base64 is not in the text: its lines are then those of the part.
        before = text[: max(text.find(body), 0)].count("\n")
        if part.get_content_type() == _SCRIPT:
            flags = _flags_in("\n" * before + body, name)
            given = [flags] if flags else list(_in_script("\n" * before + body, name))
            found = found or bool(given)
            yield from given
            continue
        found = True
        # Empty lines before a part keep its lines those of the file.
        yield from sources_of(documents_in(("\n" * before + body).encode(), name))
    if not found:
        remedy = f"give user data with a part of type {_NODE_CONFIG}, or a script that calls bootstrap.sh"
        raise InputError("no part configures the kubelet", source=name, remedy=remedy)


_LARGEST: Final = 4 * 2**20
"""Bytes of a text that is unpacked."""
_DATA_URL: Final = re.compile(r"data:([^,]*),(.*)", re.DOTALL)
_PACKED: Final = re.compile(r"[A-Za-z0-9+/\s]{24,}={0,2}\s*")


def unpacked(text: str) -> str:
    """Return a text without its encoding; the text itself where it has none."""
    data: bytes | None = None
    if match := _DATA_URL.fullmatch(text):
        data = urllib.parse.unquote_to_bytes(match[2])
        packed = data if match[1].endswith(";base64") else b""
    else:
        packed = text.encode() if _PACKED.fullmatch(text) else b""
    try:
        data = base64.b64decode(packed, validate=False) if packed else data
        if data is not None and data.startswith(b"\x1f\x8b"):
            data = zlib.decompressobj(31).decompress(data, _LARGEST)
        return text if data is None else data.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        return text
