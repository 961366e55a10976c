"""Which writes make the stored slices of a pool equal the wanted pool: pure, deterministic, and no more than needed.

A pool is split into slices of at most 64 devices (the API's limit as soon as one device has a taint); counter sets
have slices of their own, in front. Rules for consumers: KEP-4381, ``ResourceSliceSpec`` of Kubernetes 1.37.
"""

from dra_plugin.resources import Pool
from dra_plugin.slices.compare import carried, dropped, same
from dra_plugin.slices.layout import DEVICES_PER_SLICE
from dra_plugin.slices.planning import Owner, Writes, plan

__all__ = ["DEVICES_PER_SLICE", "Owner", "Pool", "Writes", "carried", "dropped", "plan", "same"]
