"""The API server over HTTP: KubeCluster, and the credentials that lead to it.

Importing this costs little: aiohttp is imported with the first request, the ``kubernetes`` package with a kubeconfig.
"""

from dra_plugin.kube.cluster import KubeCluster
from dra_plugin.kube.credentials import Credentials, from_kubeconfig, in_cluster, plain

__all__ = ["Credentials", "KubeCluster", "from_kubeconfig", "in_cluster", "plain"]
