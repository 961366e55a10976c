"""Building the products with the go command, with progress, into the cache."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from hack.cluster import cache, images, packages
from hack.cluster.disk import Need, check
from hack.cluster.errors import ClusterError, UnableError
from hack.cluster.folders import cache_root
from hack.cluster.products import PRODUCTS, Product, environment, flags, version_in
from hack.cluster.progress import Progress, Tally

MIB = 2**20
STALE = '{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}'
"""Packages that have to be compiled; commands are always stale, as linking is not cached, and counted as links."""
SECONDS_PER_PACKAGE = 0.28  # of one core
SECONDS_PER_LINK = 8
CACHE_PER_PACKAGE = 1.4 * MIB  # in the build cache of Go
MODULES = 2000 * MIB  # sources of all products, when none is there yet
COLD_PACKAGES = 4800  # packages of all products, counted once for each that compiles them
OUTPUT = 350 * MIB  # all products


@dataclass(frozen=True)
class Go:
    """The go command of this machine and where it caches."""

    version: str
    build_cache: Path
    module_cache: Path

    @classmethod
    def found(cls, folder: Path) -> "Go":
        """Return what the go command says in a module's folder, where the module may ask for a newer toolchain."""
        try:
            answer = subprocess.run(
                ["go", "env", "-json", "GOVERSION", "GOCACHE", "GOMODCACHE"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
        except FileNotFoundError:
            msg = "go is missing: install Go 1.26 (it builds Kubernetes) and put it in PATH"
            raise UnableError(msg) from None
        except subprocess.CalledProcessError as error:
            msg = f"go does not work in {folder.name}: {error.stderr.strip()}"
            raise UnableError(msg) from error
        said = json.loads(answer.stdout)
        return cls(said["GOVERSION"], Path(said["GOCACHE"]), Path(said["GOMODCACHE"]))


@dataclass(frozen=True)
class Work:
    """A product that is not in the cache, and the packages that have to be compiled for it."""

    product: Product
    stale: frozenset[str]


def target(product: Product, go: Go) -> Path:
    """Return where a product lies in the cache once it is built."""
    folder = product.folder
    sources = [folder / "go.mod", folder / "go.sum", *folder.glob("*.go")]
    words = [go.version, json.dumps([product.packages, product.cgo, product.renamed, product.links]), *flags(product)]
    return cache.place(product.name, cache.key_of([*words, *_machine()], sources))


def _machine() -> tuple[str, str]:
    uname = os.uname()
    return uname.sysname, uname.machine


def build(progress: Progress) -> dict[str, Path]:
    """Build what is missing and return the folder of each product and of the images."""
    targets = _targets()
    if all(path.is_dir() for path in targets.values()):
        return targets
    packages.require(packages.BUILD, progress.say)
    with cache.building(progress.say, "cluster build"):
        missing = [product for product in PRODUCTS if not targets[product.name].is_dir()]
        if missing:
            _build_products(missing, targets, progress)
        if not targets["images"].is_dir():
            progress.say("packing the test images pause and busybox")
            cache.fill(targets["images"], images.pack)
    return targets


def _targets() -> dict[str, Path]:
    found = {product.name: target(product, Go.found(product.folder)) for product in PRODUCTS}
    return {**found, "images": images.target()}


def _build_products(missing: Sequence[Product], targets: dict[str, Path], progress: Progress) -> None:
    go = Go.found(missing[0].folder)
    _check_fetch(missing, go)
    names = ", ".join(f"{product.name} {_version(product)}" for product in missing)
    progress.say(f"building {names} with {go.version} from their Go modules")
    works = [Work(product, _stale(product, progress)) for product in missing]
    _announce(works, go, progress)
    for work in works:
        cache.fill(targets[work.product.name], partial(_compile, work, progress))


def _version(product: Product) -> str:
    return version_in((product.folder / "go.mod").read_text(), product.source)


def _check_fetch(missing: Sequence[Product], go: Go) -> None:
    """Refuse early when modules have to be fetched and the disk holds neither them nor what is compiled from them."""
    absent = [product for product in missing if not _fetched(product, go)]
    if absent:
        share = len(absent) / len(PRODUCTS)
        packages_size = int(COLD_PACKAGES * share * CACHE_PER_PACKAGE)
        check([Need(go.module_cache, int(MODULES * share)), Need(go.build_cache, packages_size), _output()])


def _fetched(product: Product, go: Go) -> bool:
    escaped = re.sub("[A-Z]", lambda upper: "!" + upper[0].lower(), product.source)
    return (go.module_cache / "cache/download" / escaped / "@v" / f"{_version(product)}.zip").exists()


def _output() -> Need:
    return Need(cache_root(), OUTPUT)


def _announce(works: Sequence[Work], go: Go, progress: Progress) -> None:
    stale = len(different(works))
    links = sum(len(work.product.packages) for work in works)
    size = int(stale * CACHE_PER_PACKAGE)
    check([Need(go.build_cache, size), _output()])
    minutes = estimate(stale, links, os.cpu_count() or 1) / 60
    disk = (size + OUTPUT) / 2**30
    progress.say(
        f"{stale} packages to compile, {links} binaries to link: about {max(minutes, 1):.0f} min, "
        f"{disk:.1f} GiB of disk (kept in {cache_root()} and Go's caches, so the next start compiles nothing)"
    )


def different(works: Sequence[Work]) -> set[tuple[str, str]]:
    """Return what has to be compiled; the standard library is compiled once for all products, with and without cgo."""
    return {
        (("cgo" if work.product.cgo else "") if standard(package) else work.product.name, package)
        for work in works
        for package in work.stale
    }


def standard(package: str) -> bool:
    """Tell whether a package is of the standard library: all others begin with a host name."""
    return "." not in package.partition("/")[0]


def estimate(stale: int, links: int, cores: int) -> float:
    """Return about how many seconds a build takes; compiling uses all cores, linking hardly more than one."""
    return stale * SECONDS_PER_PACKAGE / cores + links * SECONDS_PER_LINK


def _stale(product: Product, progress: Progress) -> frozenset[str]:
    """Ask the go command which packages are not in its build cache; this fetches the modules, if need be."""
    command = ["go", "list", "-deps", "-f", STALE, *flags(product), *product.packages]
    with subprocess.Popen(
        command,
        cwd=product.folder,
        env=environment(product),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said: list[str] = []
        reader = threading.Thread(target=_fetching, args=(process.stderr, product.name, said, progress))
        reader.start()
        out = process.stdout.read() if process.stdout else ""
        reader.join()
    if process.returncode:
        raise ClusterError("\n".join([f"cannot list the packages of {product.name}:", *said[-15:]]))
    return frozenset(out.split())


def _fetching(lines: IO[str], name: str, said: list[str], progress: Progress) -> None:
    fetched = 0
    for line in lines:
        if line.startswith("go: downloading"):
            fetched += 1
            progress.tick(f"{fetched} modules of {name} fetched")
        else:
            said.append(line.rstrip())


def _compile(work: Work, progress: Progress, folder: Path) -> None:
    product = work.product
    command = ["go", "build", "-v", "-o", f"{folder}/", *flags(product), *product.packages]
    tally = Tally(work.stale)
    with subprocess.Popen(
        command,
        cwd=product.folder,
        env=environment(product),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        reader = threading.Thread(target=_feed, args=(process.stderr, tally))
        reader.start()
        try:
            _watch(process, work, tally, progress, folder)
        except BaseException:
            process.terminate()  # Ctrl-C does not wait for the compiler
            raise
        reader.join()
    if process.returncode:
        raise ClusterError("\n".join([f"building {product.name} failed:", *tally.other[-20:]]))
    _name(product, folder)
    progress.say(f"{product.name}: {tally.done} packages compiled, {len(product.packages)} binaries linked")


def _feed(lines: IO[str], tally: Tally) -> None:
    for line in lines:
        tally.feed(line)


def _watch(process: "subprocess.Popen[str]", work: Work, tally: Tally, progress: Progress, folder: Path) -> None:
    """Show how far a build is until it ends: packages first, then the links, which are the last of a build."""
    binaries = len(work.product.packages)
    while _running(process):
        linked = sum(1 for _ in folder.iterdir())
        if tally.done < len(work.stale):
            progress.count(f"packages of {work.product.name} compiled", tally.done, len(work.stale))
        else:
            progress.count(f"binaries of {work.product.name} linked", linked, binaries)


def _running(process: "subprocess.Popen[str]") -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _name(product: Product, folder: Path) -> None:
    for built, name in product.renamed.items():
        (folder / built).rename(folder / name)
    for link, name in product.links.items():
        (folder / link).symlink_to(name)
