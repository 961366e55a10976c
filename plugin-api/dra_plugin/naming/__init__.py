"""Check a pool against every limit of the API, and make it fit: one odd value never costs the node its slice.

What breaks a limit is replaced by the nearest value that fits, else left out; each such thing is a ``Problem`` that
names device and field. A device is left out only when publishing it without the odd part would be wrong: its name, the
counters that it consumes, its binding conditions. Sources: ResourceSlice validation of Kubernetes 1.37.
"""

from dra_plugin.naming.names import check_driver_name, device_name, pool_name
from dra_plugin.naming.pools import Checked, checked
from dra_plugin.naming.problems import Problem

__all__ = ["Checked", "Problem", "check_driver_name", "checked", "device_name", "pool_name"]
