"""What the tour is told: how to reach the cluster, which images to use, and what to call things."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hack.tour.clients import Clients

BUSYBOX = "busybox:1.37"
VALUES = "hack/tour/values.yaml"


@dataclass(frozen=True)
class Settings:
    """Where the tour goes.

    Attributes:
        clients: the commands that reach the cluster.
        image: the driver's image, repository:tag.
        build: names the image's content, so that another content under the same name is rolled out.
        pod_image: an image with a shell, for the Pods of the examples.
        values: further value files for the chart.
        look: the command to look around with, for the user.
        stop: the command that ends it, for the user.
        release: the name of the Helm release.
        namespace: where the driver runs.
        pods: where the tour's Pods run; made anew.
    """

    clients: Clients
    image: str
    build: str
    pod_image: str = BUSYBOX
    values: tuple[str, ...] = ()
    look: str = "kubectl get resourceslices"
    stop: str = ""
    release: str = "drasim"
    namespace: str = "drasim-system"
    pods: str = "drasim-tour"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read what hack/provider wrote; VALUES names value files for the chart, laid over the demo's own."""

    def words(name: str, default: str) -> tuple[str, ...]:
        return tuple(shlex.split(environment.get(name, default)))

    image = environment.get("IMAGE", "localhost/drasim")
    return Settings(
        clients=Clients(
            words("KUBECTL", "kubectl"), words("HELM", "helm"), environment, words("DRASIM", "hack/drasim")
        ),
        image=image,
        build=environment.get("IMAGE_BUILD", image),
        pod_image=environment.get("POD_IMAGE", BUSYBOX),
        values=(VALUES, *words("VALUES", "")),
        look=environment.get("LOOK", "kubectl get resourceslices"),
        stop=environment.get("STOP", ""),
    )
