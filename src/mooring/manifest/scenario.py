"""Scenarios: a kubelet's configuration, pods that come and go, and what is expected of the node.

The format is that of the recordings under ``tests/conformance``: one JSON object per line, gzip or not, or one scenario written
by hand in YAML. Files are read line by line, so a corpus of any length needs the memory of one scenario.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from mooring.core.config import KubeletConfig
from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.manifest.documents import LARGEST_FILE, STANDARD_INPUT, load_documents, open_problem, shown
from mooring.manifest.fields import inside, list_at, mapping_at, name_at, text_at, texts_at, wrong_kind
from mooring.manifest.findings import Report, ignore
from mooring.manifest.gates import PodGates
from mooring.manifest.kubelet_config import kubelet_config
from mooring.manifest.pods import pod_from_object
