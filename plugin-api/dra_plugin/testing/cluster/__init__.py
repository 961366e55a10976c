"""FakeCluster: an API server in memory that behaves like a real 1.37 where drivers can notice.

One contract suite (tests/contract/test_cluster.py) holds it and the real API server to the same behaviour.
"""

from dra_plugin.testing.cluster.catalog import Catalog, Resource
from dra_plugin.testing.cluster.faults import Faults
from dra_plugin.testing.cluster.gates import GATES
from dra_plugin.testing.cluster.port import FakeCluster
from dra_plugin.testing.cluster.refusal import Refusal
from dra_plugin.testing.cluster.store import Store

__all__ = ["GATES", "Catalog", "FakeCluster", "Faults", "Refusal", "Resource", "Store"]
