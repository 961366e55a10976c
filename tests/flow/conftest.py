"""The worlds that flow tests play in: one node, or a cluster for controllers."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.flow.nodes import World, world_at
from tests.flow.towns import Town


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Give a node with a running kubelet; its path is short enough for sockets."""
    with TemporaryDirectory(prefix="flow-") as folder:
        async with world_at(Path(folder)) as world:
            yield world


@pytest.fixture
async def town() -> Town:
    """Give a cluster with a Node of two GPUs that are in use."""
    town = Town()
    await town.build()
    return town
