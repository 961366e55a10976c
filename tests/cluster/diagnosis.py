"""What a cluster says after a failure: its newest events, its Pods, and the drivers' logs."""

from hack.tour import chart
from hack.tour.clients import Failed
from tests.cluster.real import RealCluster

EVENTS = 30
LOG_LINES = "30"


def diagnosis(cluster: RealCluster) -> str:
    """Return the newest warnings, the Pods, and the ends of the drivers' logs."""
    return "\n\n".join([_asked(cluster, *words) for words in _questions(cluster)])


def _questions(cluster: RealCluster) -> list[tuple[str, ...]]:
    every = ("--all-namespaces", "--sort-by", ".metadata.creationTimestamp")
    try:
        names = [pod["metadata"]["name"] for pod in chart.pods(cluster.settings)]
    except Failed:
        names = []
    logs = [("logs", name, "--namespace", cluster.settings.namespace, "--tail", LOG_LINES) for name in names]
    return [("get", "events", *every, "--field-selector", "type=Warning"), ("get", "pods", *every), *logs]


def _asked(cluster: RealCluster, *words: str) -> str:
    try:
        answer = cluster.clients.run(*words)
    except Failed as failed:
        answer = str(failed)
    return "\n".join([f"kubectl {' '.join(words)}", *answer.splitlines()[-EVENTS:]])
