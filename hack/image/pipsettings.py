"""How pip reaches the package index on this machine, handed to the build as secrets: nothing of it stays behind."""

import configparser
import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CERTIFICATE = "/run/secrets/ca.crt"
KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")


def secrets(folder: Path) -> list[str]:
    """Write the settings below a private folder and return the build options that pass them on."""
    found = _found()
    options: list[str] = []
    if certificate := found.pop("cert", None):
        options.append(f"--secret=id=ca.crt,src={certificate}")
        found["cert"] = CERTIFICATE
    file = folder / "pip.conf"
    file.write_text(rendered(found))
    return [f"--secret=id=pip.conf,src={file}", *options]


def rendered(settings: Mapping[str, str]) -> str:
    """Return the settings as the text of a pip.conf."""
    parser = configparser.RawConfigParser()
    parser["global"] = dict(settings)
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def parsed(listing: str) -> dict[str, str]:
    """Read `pip config list`: what stands in files as global or for install, and over it what the environment says."""
    ranked: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.strip().partition(".")
        if section in ranked and key in (*KEYS, "cert"):
            ranked[section][key] = value.strip().strip("'\"").replace("\\n", "\n")
    return {**ranked["global"], **ranked["install"], **ranked[":env:"]}


def _found() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    return parsed(done.stdout)
