"""All of the tour, in order."""

from rich.console import Console

from hack.tour.runner import Step
from hack.tour.settings import Settings
from hack.tour.steps import Tour
from hack.tour.story import Story


def steps(settings: Settings, console: Console) -> list[Step]:
    """Return the steps of both parts: how devices are handed out, and what happens when they fail."""
    tour = Tour(settings, console)
    return [*tour.steps(), *Story(tour).steps()]
