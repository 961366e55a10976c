"""Publisher: the ResourceSlices of one driver on one node equal the wanted pools, while it is enabled.

Everything is read beforehand, so that the first POST leaves in the moment ``enabled`` turns true.
"""

from dra_plugin.publisher.publishing import Publisher
from dra_plugin.publisher.refused import gates_for
from dra_plugin.publisher.scope import PoolState

__all__ = ["PoolState", "Publisher", "gates_for"]
