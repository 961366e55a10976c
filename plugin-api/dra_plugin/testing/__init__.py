"""Fakes that behave, for tests of drivers: FakeCluster here, FakeKubelet in ``dra_plugin.testing.kubelet``.

``python -m dra_plugin.testing`` serves a FakeCluster over HTTP.
"""

from dra_plugin.testing.cluster import FakeCluster

__all__ = ["FakeCluster"]
