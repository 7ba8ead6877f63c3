"""An OCI runtime that plays a large machine on a small one: it writes down the cpuset that was asked for and gives runc
one that the machine has.

Run as a program by containerd, with the paths filled in by :func:`write_wrapper`. Its log is the large machine's
kernel: a cpuset is in effect from the line that says so, and a line is written before the small machine follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

# The programs of a shell are enough, and start ten times as fast as Python: with 500 containers that share a pool,
# one creation asks for hundreds of updates.
_PROGRAM = """#!/bin/sh
verb=
for word; do
  case $word in
    create|start|update|delete|kill|state|ps) verb=${{verb:-$word}} ;;
    *) [ "$before" != --bundle ] || bundle=$word
      [ "$before" != --pid-file ] || pid_file=$word ;;
  esac
  last=$before before=$word
done
tell() {{
  printf '{{"verb":"%s","id":"%s","cpus":"%s","mems":"%s"}}\\n' "$verb" "$word" "$1" "$2" >> {log}
}}
# Sets $found. A subshell would cost more than all the rest.
find() {{
  found=
  case $2 in
    *"\\"$1\\":\\""*) found=${{2#*\\"$1\\":\\"}}; found=${{found%%\\"*}} ;;
    *"\\"$1\\": \\""*) found=${{2#*\\"$1\\": \\"}}; found=${{found%%\\"*}} ;;
  esac
}}
# Ends a process of the player, once: by the next time another process may have its number. One that has just been made
# still has the name of this program.
end() {{
  read -r pid < {folder}/pid-"$1" && read -r name < /proc/"$pid"/comm &&
    case $name in busybox|wrapped-runc) kill -9 "$pid" ;; esac
  [ ! -e {folder}/pid-"$1" ] || : > {folder}/pid-"$1"
}} 2> /dev/null
tell_sets() {{
  find cpus "$1"; cpus=$found
  find mems "$1"; tell "$cpus" "$found"
}}
case $verb in
  create)
    # A shell takes a tenth of a second to find a word in the whole text.
    text=$(grep -Eo '"(cpus|mems|io.kubernetes.cri.container-type)": ?"[^"]*"' "$bundle/config.json")
    case $text in
      *'"io.kubernetes.cri.container-type":"sandbox"'*) verb=sandbox ;;
    esac
    tell_sets "$text"
    {create}
    ;;
  start)
    tell "" ""
    {start}
    ;;
  delete)
    tell "" ""
    {delete}
    ;;
  kill)
    {kill}
    ;;
  state)
    {state}
    ;;
  ps)
    {ps}
    ;;
  update)
    read -r text
    tell_sets "$text"
    {update}
    ;;
esac
exec {runc} "$@"
"""
_REAL = {
    "create": """cd "$bundle"
    sed -i 's/"cpus": *"[^"]*"/"cpus":"{cpus}"/; s/"mems": *"[^"]*"/"mems":"{mems}"/' config.json""",
    "start": "",
    "delete": "",
    "kill": "",
    "state": "",
    "ps": "",
    "update": """printf '%s' "$text" | sed 's/"cpus": *"[^"]*"/"cpus":"{cpus}"/; s/"mems": *"[^"]*"/"mems":"{mems}"/' |
      {runc} "$@"
    exit""",
}
# The shim takes over what this program leaves behind, and learns of its end as of any container's.
_PLAYED = {
    # Until it bears the name by which it is known it could not be ended, and who asks for that would wait for ever.
    "create": """"{busybox}" sleep 2000000000 < /dev/null > /dev/null 2>&1 &
    until read -r name < /proc/$!/comm && [ "$name" = busybox ]; do :; done
    echo $! > {folder}/pid-"$word"; printf %s $! > "$pid_file"; exit""",
    "start": ": > {folder}/started-$word; exit",
    "delete": """end "$word"; rm -f {folder}/pid-"$word" {folder}/started-"$word"; exit 0""",
    # From here on it does not run. CRI-O deletes it when the container is removed, which may be much later.
    "kill": """end "$last"; word=$last; tell "" ""; exit 0""",
    # A containerd that starts asks: a shim whose task has no process is taken for one that a crash left.
    "ps": """read -r pid < {folder}/pid-"$word" && printf '[%s]\\n' "$pid"; exit""",
    # CRI-O asks.
    "state": """status=stopped pid=0
    if read -r pid < {folder}/pid-"$word" && [ -e /proc/"$pid" ]; then
      status=created; [ ! -e {folder}/started-"$word" ] || status=running
    else
      [ -e {folder}/pid-"$word" ] || exit 1
    fi
    printf '{{"ociVersion":"1.0.2","id":"%s","status":"%s","pid":%s}}\\n' "$word" "$status" "${{pid:-0}}"; exit""",
    "update": "exit",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What containerd asked of its OCI runtime for a container."""

    verb: str
    """``create`` (``sandbox`` for a pod's own), ``start``, ``update``, ``kill`` where it has ended, ``delete``; others
    write lines of their own."""
    id: str
    cpus: str
    mems: str


_read = msgspec.json.Decoder(Asked).decode


def write_wrapper(folder: Path, runc: Path, *, cpus: str, mems: str, really_updates: bool = True) -> Path:
    """Write the program and return its path; what it writes down is read with :func:`asked`.

    Args:
        folder: gets the program and its log.
        runc: the real one.
        cpus: what every cpuset becomes.
        mems: what every set of memory nodes becomes.
        really_updates: whether runc gets updates too; without, they are written down only, which is faster.
    """
    parts = _REAL if really_updates else {**_REAL, "update": "exit"}
    return _write(folder, parts, runc=runc, cpus=cpus, mems=mems)


def write_player(folder: Path, busybox: Path) -> Path:
    """Write a program that needs no runc, for thousands of lives: its containers are processes without a cgroup.

    Args:
        folder: gets the program and its log.
        busybox: sleeps, which is all that these containers do.
    """
    return _write(folder, _PLAYED, runc="false", busybox=busybox)


def _write(folder: Path, parts: Mapping[str, str], **values: object) -> Path:
    program = folder / "wrapped-runc"
    filled = {name: part.format(folder=folder, **values) for name, part in parts.items()}
    text = _PROGRAM.format(**filled, runc=values["runc"], log=log_of(folder), folder=folder)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


def log_of(folder: Path) -> Path:
    return folder / "asked.jsonl"


def tell(folder: Path, verb: str, ident: str, cpus: str = "", mems: str = "") -> None:
    """Add a line to the log, as the program does."""
    line = json.dumps({"verb": verb, "id": ident, "cpus": cpus, "mems": mems})
    log = os.open(log_of(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, line.encode() + b"\n")
    finally:
        os.close(log)


def end_forgotten(folder: Path) -> int:
    """End the containers of a player that it was not asked to delete, and return how many those were.

    A runtime that was killed in the middle of a creation does not know what it had begun to make.
    """
    left = [*folder.glob("pid-*")]
    for path in left:
        text = path.read_text(encoding="ascii").strip()
        with contextlib.suppress(OSError):
            if text and Path(f"/proc/{text}/comm").read_text(encoding="utf-8") == "busybox\n":
                os.kill(int(text), signal.SIGKILL)
        tell(folder, "delete", path.name.removeprefix("pid-"))
        path.unlink()
    return len(left)


@dataclass(slots=True)
class Reader:
    """Reads a log that grows."""

    folder: Path
    _read: int = 0

    def new(self) -> Iterator[Asked]:
        """Yield the lines since the last call, in order. The last line of a log may be on its way."""
        log = log_of(self.folder)
        if not log.exists():
            return
        with log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield _read(line)


def asked(folder: Path) -> list[Asked]:
    """Return what was asked of a cpuset so far: creations and updates, in order."""
    return [line for line in Reader(folder).new() if line.verb in ("create", "update")]
