"""A containerd that has the image; skipped by name where ``make image`` could not build it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime, e2e_parts, parts_named, running, why_not
from tests.e2e.folders import short_folder
from tests.e2e.image.archive import ARCHIVE, Image, read_image


@pytest.fixture(scope="session")
def image() -> Image:
    if not ARCHIVE.exists():
        pytest.skip("e2e image: no build/image/mooring.tar; make image builds it")
    return read_image()


@pytest.fixture(scope="session")
def parts() -> Any:
    if reason := why_not():
        pytest.skip(f"e2e image: {reason}")
    try:
        return parts_named("debian")
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e image: {why}")


@pytest.fixture(scope="module")
def node(parts: Any, image: Image) -> Iterator[Runtime]:
    """A containerd for all tests of a file: importing the image takes seconds."""
    with short_folder("image-") as folder, running(parts, folder) as made:
        made.run([str(parts.ctr), "-a", str(made.cri_socket), "-n", "k8s.io", "images", "import", str(image.path)])
        yield made
