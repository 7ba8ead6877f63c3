"""Write charts/mooring/files/seccomp.json: the system calls that the confined agent makes beside real containerd.

Each run of tests/e2e/containerd/recording.py is traced from outside of the container, from the moment at which its
seccomp filter is loaded. What is written is what was seen, and the same calls under the names that other processors
and C libraries use. Root on Debian with strace, after scripts/e2e_parts.py.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "charts" / "mooring" / "files" / "seccomp.json"
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?([a-z_0-9]+)(?:\(| resumed)(.*)$")
_MADE = re.compile(r"\) += (\d+)$")
_FILTERS = frozenset({"seccomp", "prctl"})
_MAKES = frozenset({"clone", "clone3", "fork", "vfork"})
_NAMESPACES = 0x7E020000
"""The CLONE_NEW flags of clone(2), as the profile of containerd has them."""
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
_ENOSYS = 38
"""C libraries try an older call then; EPERM would be final."""

SAME = (
    ("access", "faccessat", "faccessat2"),
    ("accept", "accept4"),
    ("arch_prctl", "set_tls"),
    ("dup", "dup2", "dup3"),
    ("epoll_create", "epoll_create1"),
    ("epoll_wait", "epoll_pwait", "epoll_pwait2"),
    ("eventfd", "eventfd2"),
    ("futex", "futex_waitv", "sched_yield"),
    ("getdents", "getdents64"),
    ("getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid"),
    ("getrlimit", "prlimit64"),
    ("gettimeofday", "clock_gettime", "time"),
    ("fsync", "fdatasync"),
    ("inotify_init", "inotify_init1"),
    ("lstat", "stat", "fstat", "newfstatat", "statx"),
    ("mkdir", "mkdirat"),
    ("nanosleep", "clock_nanosleep"),
    ("open", "openat"),
    ("pipe", "pipe2"),
    ("poll", "ppoll", "select", "pselect6"),
    ("pread64", "preadv", "preadv2", "read", "readv"),
    ("pwrite64", "pwritev", "pwritev2", "write", "writev"),
    ("readlink", "readlinkat"),
    ("recvfrom", "recvmsg", "recvmmsg"),
    ("rename", "renameat", "renameat2"),
    ("rmdir", "unlink", "unlinkat"),
    ("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"),
    ("sendto", "sendmsg", "sendmmsg"),
    ("statfs", "fstatfs"),
    ("utimensat", "utime", "utimes"),
    ("chmod", "fchmod", "fchmodat", "fchmodat2"),
)
"""Calls that do the same: who needs one may be built with another."""


def main() -> int:
    """Record, or check that what is there is complete; return 1 when it is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, help="traces of strace -f; without any, runs are made")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a call is missing")
    asked = parser.parse_args()
    traces = asked.traces or list(_runs())
    found: set[str] = set()
    for trace in traces:
        calls = calls_in(trace.read_text(encoding="utf-8", errors="replace").splitlines())
        print(f"{trace.name}: {len(calls)} system calls")
        found |= calls
    allowed = frozenset(complete(found))
    if asked.check:
        missing = sorted(allowed - names_in(json.loads(PROFILE.read_text(encoding="utf-8"))))
        print(f"missing: {', '.join(missing) or 'nothing'}")
        return 1 if missing else 0
    PROFILE.write_text(json.dumps(profile(allowed), indent=2) + "\n", encoding="utf-8")
    print(f"{PROFILE.relative_to(ROOT)}: {len(allowed)} system calls, {len(found)} of them seen")
    return 0


def _runs() -> Iterator[Path]:
    sys.path.insert(0, str(ROOT))
    from tests.e2e.containerd.recording import traces  # noqa: PLC0415 - reading traces needs no runtime

    yield from traces(ROOT / "build" / "seccomp")


def calls_in(lines: Iterable[str]) -> set[str]:
    """Return the calls of a container's processes, from the loading of the first seccomp filter on."""
    inside: set[str] = set()
    found: set[str] = set()
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        pid, call, rest = match.groups()
        if call in _FILTERS and "MODE_FILTER" in rest and "{len=" in rest:
            inside.add(pid)
        elif pid in inside:
            found.add(call)
        if call in _MAKES and pid in inside and (made := _MADE.search(rest)):
            inside.add(made[1])
    return found


def complete(seen: Iterable[str]) -> Iterator[str]:
    """Yield calls with those that do the same."""
    for call in seen:
        yield call
        for same in SAME:
            if call in same:
                yield from same


def profile(calls: Iterable[str]) -> dict[str, object]:
    """Return a profile that allows these calls, threads but no namespaces, and sockets of four families."""
    plain = sorted({*calls} - {"clone", "clone3", "socket"})
    threads = {"index": 0, "value": _NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": plain, "action": "SCMP_ACT_ALLOW"},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [threads]},
            *(
                {
                    "names": ["socket"],
                    "action": "SCMP_ACT_ALLOW",
                    "args": [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}],
                }
                for family in _FAMILIES.values()
            ),
        ],
    }


def names_in(document: dict[str, list[dict[str, list[str]]]]) -> set[str]:
    """Return the calls that a profile allows, and those that it forbids on purpose."""
    return {"clone3", *(name for rule in document["syscalls"] for name in rule["names"])}


if __name__ == "__main__":
    sys.exit(main())
