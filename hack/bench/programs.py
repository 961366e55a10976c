"""The programs that are compared: ours as in its image, and the one on the Go helper."""

import compileall
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "bench"
LAUNCHER = ROOT / "hack" / "image" / "drasim"
PACKAGES = {"dra_plugin": ROOT / "plugin-api" / "dra_plugin", "drasim": ROOT / "driver" / "drasim"}
PYTHONS = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
"""Like an image's Python; ours, which may be another build, runs the rest."""


def drasim(python: Path | None = None) -> Path:
    """Lay out our driver as its image does: the same launcher, a copy of the sources, bytecode. Returns the program."""
    lib, program = BUILD / "lib", BUILD / "drasim"
    shutil.rmtree(lib, ignore_errors=True)
    for name, source in PACKAGES.items():
        shutil.copytree(source, lib / name, ignore=shutil.ignore_patterns("__pycache__"))
    chosen = python or _python()
    _compile(chosen, lib)
    program.write_text(launcher(LAUNCHER.read_text(), chosen, lib, Path(sysconfig.get_path("purelib"))))
    program.chmod(0o755)
    subprocess.run([program, "version"], check=True, stdout=subprocess.DEVNULL)
    return program


def launcher(text: str, python: Path, lib: Path, packages: Path) -> str:
    """Return the image's launcher with this machine's paths. Raises ValueError when it does not name the image's."""
    first, _, rest = text.partition("\n")
    flags = first.rpartition(" ")[2]
    places = {"/opt/drasim/lib": str(lib), "/opt/drasim/packages": str(packages)}
    if not flags.startswith("-") or any(place not in rest for place in places):
        raise ValueError(f"{LAUNCHER.name} of the image is not as expected: {first!r}")
    for place, ours in places.items():
        rest = rest.replace(f'"{place}"', f'"{ours}"')
    return f"#!{python} {flags}\n{rest}"


def _python() -> Path:
    """Return a Python of the machine that can read the packages installed for ours."""
    wanted = sysconfig.get_python_version()
    for python in PYTHONS:
        if python.exists() and _version(python) == wanted:
            return python
    return Path(sysconfig.get_path("scripts")) / "python3"


def _version(python: Path) -> str:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def _compile(python: Path, folder: Path) -> None:
    """Make bytecode as the image does; that of the installed packages is there, or made by the first start."""
    mode = "unchecked-hash"
    subprocess.run([python, "-m", "compileall", "-q", "--invalidation-mode", mode, folder], check=True)
    compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=os.cpu_count() or 1)


def godriver() -> Path:
    """Build the driver on the Go helper. Returns the program."""
    source = Path(__file__).parent / "godriver"
    program = BUILD / "godriver"
    environment: Mapping[str, str] = {**os.environ, "CGO_ENABLED": "0"}
    flags = ["-trimpath", "-ldflags=-s -w"]
    subprocess.run(["go", "build", *flags, "-o", program, "."], cwd=source, env=environment, check=True)
    return program


def fault_definition(cluster: str) -> Path:
    """Write the chart's CustomResourceDefinition of DeviceFaults as JSON. Returns the file."""
    path = BUILD / "devicefaults.json"
    chart, shown = str(ROOT / "charts" / "drasim"), "templates/crd-devicefaults.yaml"
    command = [str(ROOT / "hack" / "helm"), "template", "drasim", chart, "--show-only", shown]
    environment = {**os.environ, "DRASIM_CLUSTER": cluster}
    made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    path.write_text(json.dumps(yaml.safe_load(made.stdout)))
    return path


def machine(gpus: int, path: Path | None = None) -> Path:
    """Write the profile of a machine with so many GPUs, and 8 NICs."""
    path = path or BUILD / "machine.yaml"
    each = 8
    if gpus % each:
        raise ValueError(f"{gpus} GPUs cannot be spread over roots with {each} each")
    roots = f"- {{numaNode: 0, gpus: {each}, count: {gpus // each}}}\n- {{numaNode: 1, nics: 1, count: 8}}\n"
    path.write_text(f"roots:\n{roots}")
    return path
