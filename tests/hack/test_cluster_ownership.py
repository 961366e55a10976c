"""One process at a time starts a cluster or cleans up behind it."""

from pathlib import Path

import pytest

from hack.cluster.errors import ClusterError
from hack.cluster.folders import State
from hack.cluster.ownership import own


def test_second_owner_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    """The right to a cluster is given once, is free again afterwards, and leaves no file."""
    state = State("x", tmp_path / "x")
    with own(state), pytest.raises(ClusterError, match="cluster x is just being started or ended"):
        own(state, patience=0)
    own(state, patience=0).close()
    assert list(tmp_path.iterdir()) == []


def test_clusters_are_owned_apart(tmp_path: Path) -> None:
    """The right to one cluster is none to another of the same name elsewhere."""
    with own(State("x", tmp_path / "a" / "x")), own(State("x", tmp_path / "b" / "x")):
        pass
