"""The world that flow tests play in."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.flow.nodes import World, world_at


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Give a node with a running kubelet; its path is short enough for sockets."""
    with TemporaryDirectory(prefix="flow-") as folder:
        async with world_at(Path(folder)) as world:
            yield world
