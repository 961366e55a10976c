"""What the unit tests compare our values with is what a real API server serves."""

import shlex
import subprocess
import sys

from hack.cluster.folders import CHECKOUT
from tests.cluster.real import RealCluster


def test_kept_document_is_the_servers(real_cluster: RealCluster) -> None:
    """The fields in tests/plugin_api/openapi.json are those of the running server."""
    clients = real_cluster.clients
    environment = {**clients.environment, "KUBECTL": shlex.join(clients.kubectl)}
    command = [sys.executable, str(CHECKOUT / "hack" / "openapi"), "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
