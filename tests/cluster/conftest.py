"""What the tests below tests/cluster share."""

from tests.cluster.real import real_cluster

__all__ = ["real_cluster"]
