"""Feed every reader of outside bytes with inputs that coverage guides (libFuzzer, through atheris).

Each reader runs in a process of its own. An input that breaks a promise of tests/inputs/judging.py is kept in
build/fuzz-inputs, and the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "fuzz-inputs"
MOST_MEMORY = 200
"""Megabytes of a process beyond what it has before the first input."""

_MOST_FOUND = 20
"""After which a search by chance ends."""
_CONFIGURED = [
    "mooring.engine.core.bits",
    "mooring.engine.core.config",
    "mooring.engine.core.release",
    "mooring.engine.core.quantity",
    "mooring.engine.core.topology",
    "mooring.engine.node.policies",
    "mooring.engine.node.reservation",
    "mooring.engine.node.settings",
    "mooring.engine.node.validation",
    "mooring.engine.releases",
]
"""Modules that make settings of a configuration and a machine."""
_SAME_SETTINGS = ("cpu-state", "memory-state")
"""Readers with one configuration for all inputs: branches of those modules say nothing about an input."""


def main() -> int:
    """Run the readers that were asked for; return 1 for a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", help="names (default: all)")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each reader (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=0, help="most time for each reader (default: no limit)")
    parser.add_argument("--drawn", action="store_true", help="inputs by chance: more of them, without coverage")
    parser.add_argument("--repeat", type=Path, help="judge the input in this file only")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if asked.child and asked.drawn:
        return _draw(asked.child, asked.runs, asked.seed, asked.minutes)
    if asked.child:
        return _fuzz(asked.child, asked.runs, asked.seed, asked.minutes)
    from tests.inputs.readers import READERS  # noqa: PLC0415 - the child loads it with instruments

    names = [reader.name for reader in READERS]
    if unknown := [name for name in asked.readers if name not in names]:
        parser.error(f"there is no reader {unknown[0]}; there are {', '.join(names)}")
    if asked.repeat:
        return _repeated(asked.readers, asked.repeat)
    found = [name for name in asked.readers or names if _run(name, asked)]
    print(f"fuzz-inputs: {'FOUND in ' + ', '.join(found) if found else 'nothing found'}")
    return 1 if found else 0


def _repeated(names: list[str], path: Path) -> int:
    from tests.inputs.judging import judged  # noqa: PLC0415 - as above
    from tests.inputs.readers import READERS  # noqa: PLC0415 - as above

    for reader in READERS:
        if reader.name in names:
            judged(reader, path.read_bytes())
    return 0


def _run(name: str, asked: argparse.Namespace) -> bool:
    """Run one reader in a process; tell whether anything was found."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--child", name, "--runs", str(asked.runs), "--seed", str(asked.seed)]
    command += ["--minutes", str(asked.minutes), *(["--drawn"] if asked.drawn else [])]
    begun = time.monotonic()
    with (folder / "output.txt").open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603 - a fixed command
        _, status, used = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
    numbers = re.findall(r"^#(\d+)\t(?:.*?cov: (\d+))?", text, re.MULTILINE)
    last = numbers[-1] if numbers else ("0", "")
    print(
        f"{name}: {last[0]} inputs, {last[1] or 'no'} branches, {used.ru_maxrss >> 10} MB, "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU, {time.monotonic() - begun:.0f} s, "
        f"{'nothing found' if code == 0 else 'FOUND'}",
        flush=True,
    )
    if code:
        print("\n".join(text.splitlines()[-40:]))
        for path in sorted(folder.glob("found-*")):
            print(f"repeat: .venv/bin/python scripts/fuzz_inputs.py {name} --repeat {path.relative_to(ROOT)}")
    return code != 0


def _draw(name: str, runs: int, seed: int, minutes: float) -> int:
    """Be the child without instruments: damage the first inputs by chance."""
    from tests.inputs.judging import damaged, judged  # noqa: PLC0415 - the other child loads it with instruments
    from tests.inputs.readers import READERS  # noqa: PLC0415 - as above

    reader = next(one for one in READERS if one.name == name)
    seeds, draw = list(reader.seeds()), Random(seed)  # noqa: S311 - an input that can be repeated
    until = time.monotonic() + (minutes * 60 or float("inf"))
    found = number = 0
    while number < runs and time.monotonic() < until:
        number += 1
        data = damaged(draw.choice(seeds), draw)
        try:
            judged(reader, data)
        except Exception:  # noqa: BLE001 - that is what is looked for
            found += 1
            (FOLDER / name / f"found-{seed}-{number}").write_bytes(data)
            traceback.print_exc(file=sys.stdout)
            if found == _MOST_FOUND:
                break
    print(f"#{number}\t{found} found")
    return 1 if found else 0


def _fuzz(name: str, runs: int, seed: int, minutes: float) -> int:
    """Be the child: load Mooring with instruments, and let libFuzzer draw."""
    import atheris  # noqa: PLC0415 - the parent does without

    with atheris.instrument_imports(include=["mooring"], exclude=_CONFIGURED if name in _SAME_SETTINGS else []):
        from tests.inputs.judging import judged  # noqa: PLC0415 - with instruments
        from tests.inputs.readers import READERS  # noqa: PLC0415 - with instruments

    reader = next(one for one in READERS if one.name == name)
    folder = FOLDER / name
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    words: set[bytes] = set()
    for number, data in enumerate(reader.seeds()):
        judged(reader, data)
        (corpus / f"seed-{number}").write_bytes(data)
        words.update(re.findall(rb"[A-Za-z][A-Za-z0-9_./-]{2,30}", data))
    dictionary = folder / "words.txt"
    dictionary.write_text("".join(f'"{word.decode()}"\n' for word in sorted(words)[:2000]), encoding="ascii")
    memory = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    options = [
        sys.argv[0],
        str(corpus),
        f"-runs={runs}",
        f"-seed={seed}",
        f"-dict={dictionary}",
        f"-artifact_prefix={folder}/found-",
        f"-rss_limit_mb={memory + MOST_MEMORY}",
        # An input that takes long is found by its CPU time (judging.py). This is for one that never ends, in seconds of
        # the clock: where others have the processor, a short limit finds an input that did nothing but wait for it.
        "-timeout=1800",
        "-max_len=65536",
        # Coverage does not see into decoders in C: without these a seed shrinks to what such a decoder refuses first.
        "-keep_seed=1",
        "-reduce_inputs=0",
        *([f"-max_total_time={int(minutes * 60)}"] if minutes else []),
    ]

    def one(data: bytes) -> None:
        judged(reader, data)

    atheris.Setup(options, one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
