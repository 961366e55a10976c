"""The cache of built binaries: keys, all or nothing, one builder at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster import builder, cache
from hack.cluster.folders import CHECKOUT
from hack.cluster.products import PRODUCTS


def write(folder: Path, **files: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return sorted(folder.iterdir())


def test_key_does_not_depend_on_the_place(tmp_path: Path) -> None:
    """Two checkouts of the same content share what was built."""
    one, two = write(tmp_path / "a", mod="m", main="x"), write(tmp_path / "b", mod="m", main="x")
    assert cache.key_of(["go1.26"], one) == cache.key_of(["go1.26"], reversed(two))


@pytest.mark.parametrize(("word", "content"), [("go1.27", "x"), ("go1.26", "y")])
def test_key_changes_with_what_goes_in(tmp_path: Path, word: str, content: str) -> None:
    """Another compiler or another source is another key."""
    before = cache.key_of(["go1.26"], write(tmp_path / "a", main="x"))
    assert cache.key_of([word], write(tmp_path / "b", main=content)) != before


def test_key_keeps_words_apart() -> None:
    """Words that only look alike when joined give different keys."""
    assert cache.key_of(["ab", "c"], []) != cache.key_of(["a", "bc"], [])


def test_products_have_keys_of_their_own() -> None:
    """Every product is found under its own name and key, and the compiler is part of the key."""
    go, newer = builder.Go("go1.26.8", Path(), Path()), builder.Go("go1.26.9", Path(), Path())
    places = {builder.target(product, each) for product in PRODUCTS for each in (go, newer)}
    assert len(places) == 2 * len(PRODUCTS)


def test_failed_making_leaves_nothing(tmp_path: Path) -> None:
    """A build that breaks off leaves neither the folder nor scraps of it."""

    def half(folder: Path) -> None:
        (folder / "some").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cache.fill(tmp_path / "bin" / "kube-1", half)
    assert list((tmp_path / "bin").iterdir()) == []


def test_second_builder_waits_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one process builds, another waits, names it, and goes on when the first has ended."""
    monkeypatch.setenv("DRASIM_CACHE", str(tmp_path))
    program = "from hack.cluster import cache\nwith cache.building(print): print('mine', flush=True); input()"
    run = [sys.executable, "-c", program]
    with subprocess.Popen(run, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "mine\n"
        said: list[str] = []

        def end_first(text: str) -> None:
            said.append(text)
            first.communicate("\n")

        with cache.building(end_first):
            assert said == [f"another build (process {first.pid}) is at work; waiting for it"]
