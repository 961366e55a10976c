"""The machines that are shipped, as YAML files beside this module."""

from pathlib import Path

__all__ = ["path_of", "shipped"]

_FOLDER = Path(__file__).parent


def shipped() -> tuple[str, ...]:
    """Return the names of all shipped profiles."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def path_of(profile: str) -> Path:
    """Return the file of a profile: a path as it is, a name among the shipped ones. It need not exist."""
    return Path(profile) if "/" in profile else _FOLDER / f"{profile}.yaml"
