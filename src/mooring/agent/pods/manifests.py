"""Static pods: the manifests that the kubelet reads from a folder of the node.

Source: kubelet v1.37.1, pkg/kubelet/config (file.go, common.go). The kubelet reads every file of the folder whose name
does not begin with a dot, one pod a file, appends the node's name to the pod's name, and makes the uid of a hash over
the manifest. The hash cannot be made again here, so a pod is found by namespace and name; but since another manifest
has another uid, what was found for a uid once stays true.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.source import CONFIG_HASH, CONFIG_SOURCE, kept_annotations
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Report, as_mapping, ignore, text_at
from mooring.inputs.decoding.files import open_problem, shown
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import DEFAULT_GATES, pod_from_object

LARGEST_MANIFEST = 10 * 1024**2
"""Bytes of a file; the kubelet reads no more of it."""
MOST_FILES = 1000
"""Most files that are read; a node has a handful."""
MOST_REMEMBERED = 1024
"""Uids whose pod is remembered."""
_Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """One file as it was read."""

    signature: _Signature
    pod: Pod | None
    """Under the name of its manifest; None where the file is none of a pod."""


class StaticPods:
    """Pods of a manifest folder, or of a single manifest file. Safe to use from several threads."""

    def __init__(
        self, path: str | os.PathLike[str], node: str, *, gates: PodGates = DEFAULT_GATES, report: Report = ignore
    ) -> None:
        """Read nothing yet.

        Args:
            path: the kubelet's ``staticPodPath``.
            node: name of the node, as it registers itself.
            gates: the kubelet's feature gates.
            report: receives what cannot be used, once for each state of a file.
        """
        self._path = Path(path)
        self._suffix = f"-{node.lower()}"
        self._gates = replace(gates, api_server=False)
        self._report = report
        self._lock = threading.Lock()
        self._files: dict[Path, _Manifest] = {}
        self._known: OrderedDict[str, Pod] = OrderedDict()
        self._unreadable = ""

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, with the sandbox's uid and name."""
        with self._lock:
            known = self._known.get(sandbox.uid)
            if known is not None:
                return known
            self._scan()
            return self._looked_up(sandbox)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of sandboxes by uid; the folder is read once at most."""
        asked = tuple(sandboxes)
        with self._lock:
            if any(one.uid not in self._known for one in asked):
                self._scan()
            found = ((one.uid, self._known.get(one.uid) or self._looked_up(one)) for one in asked)
            return {uid: pod for uid, pod in found if pod is not None}

    def refresh(self) -> None:
        """Read what has changed, so that nothing is left to read when the runtime waits; for a timer."""
        with self._lock:
            self._scan()

    def _looked_up(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox that the files describe, and remember it."""
        found = self._find(sandbox)
        if found is None or self._names_uid(sandbox.uid):
            return found
        self._known[sandbox.uid] = found
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _find(self, sandbox: PodSandbox) -> Pod | None:
        if not sandbox.name.endswith(self._suffix):
            return None
        key = (sandbox.namespace or "default", sandbox.name.removesuffix(self._suffix))
        found = [one.pod for one in self._files.values() if one.pod and (one.pod.namespace, one.pod.name) == key]
        if len(found) > 1:
            message = f"{len(found)} manifests describe the pod {key[0]}/{key[1]}: which of them runs is unknown"
            self._report(Finding("warning", shown(self._path), message))
            return None
        if not found:
            return None
        # What the kubelet adds when it reads the manifest, so that the pod is not taken for one of the API server.
        added = {key: text for key, text in sandbox.annotations.items() if key in (CONFIG_SOURCE, CONFIG_HASH)}
        annotations = {**found[0].annotations, **added}
        return replace(found[0], uid=sandbox.uid, name=sandbox.name, annotations=annotations)

    def _names_uid(self, uid: str) -> bool:
        """Tell whether a manifest gives its uid itself: then the uid stays when the manifest changes."""
        return any(one.pod is not None and one.pod.uid == uid for one in self._files.values())

    def _scan(self) -> None:
        seen: dict[Path, _Signature] = {}
        try:
            for file in self._candidates():
                status = file.stat()
                if len(seen) < MOST_FILES:
                    seen[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (OSError, ValueError) as error:
            self._unreadable_once(open_problem(error))
            return
        self._unreadable = ""
        for file in self._files.keys() - seen.keys():
            del self._files[file]
        for file, signature in seen.items():
            before = self._files.get(file)
            if before is None or before.signature != signature:
                self._files[file] = _Manifest(signature, self._read(file))

    def _candidates(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        return sorted(one for one in self._path.iterdir() if not one.name.startswith(".") and one.is_file())

    def _unreadable_once(self, problem: str) -> None:
        if problem != self._unreadable:
            self._unreadable = problem
            self._report(Finding("warning", shown(self._path), f"the folder of static pods {problem}"))

    def _read(self, file: Path) -> Pod | None:
        try:
            return self._pod_in(file)
        except InputError as error:
            self._report(Finding("warning", shown(file), f"no static pod is read from it: {error}"))
        except (OSError, ValueError) as error:
            self._report(Finding("warning", shown(file), f"no static pod is read from it: {open_problem(error)}"))
        return None

    def _pod_in(self, file: Path) -> Pod:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
        if len(data) > LARGEST_MANIFEST:
            raise InputError(f"larger than {LARGEST_MANIFEST // 1024**2} MiB", source=shown(file))
        documents = documents_in(data, shown(file))
        if len(documents) != 1:
            raise InputError(f"{len(documents)} documents", source=shown(file), remedy="one pod a file")
        content: Mapping[str, object] = as_mapping(documents[0].content)
        kind = text_at(content, "kind", "Pod")
        if kind != "Pod":
            raise InputError(f"a {kind} is not a Pod", source=shown(file))
        pod = pod_from_object(content, source=shown(file), gates=self._gates)
        return replace(pod, annotations=kept_annotations(pod.annotations))
