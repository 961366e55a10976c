"""The house rules of ARCHITECTURE.md, applied to the tree; and each check shown to fail on a bad snippet."""

import ast
import re
import statistics
import subprocess
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests import house_rules as rules

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES, MAX_ARGUMENTS, MAX_NESTING, MAX_FILE, MAX_MEDIAN = 40, 6, 3, 400, 10
BAD_MODULES = {"utils", "helpers", "common", "manager", "handler", "base"}
ALLOWED = {  # where a name of ruff's banned-api list may stand all the same
    "time.sleep": ("hack/", "tests/cluster/"),
    "os.environ": (
        *("hack/", "tests/", "driver/drasim/cli", "driver/drasim/__main__.py"),
        "plugin-api/dra_plugin/kube/login.py",  # a child inherits it
    ),
    "os.getenv": ("hack/", "tests/", "driver/drasim/cli", "driver/drasim/__main__.py"),
    "sys.exit": ("hack/", "tests/", "driver/drasim/__main__.py", "plugin-api/dra_plugin/testing/__main__.py"),
}


@cache
def tracked() -> tuple[Path, ...]:
    """Return the files of the tree that git does not ignore."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(ROOT / name for name in sorted(set(names)) if name and (ROOT / name).is_file())


def is_python(path: Path) -> bool:
    """Return whether a file is Python source of ours: not generated, and scripts of hack/ included."""
    if path.suffix:
        return path.suffix == ".py" and not re.search(r"_pb2(_grpc)?\.py$", path.name)
    return path.is_relative_to(ROOT / "hack") and b"python" in path.read_bytes().split(b"\n", 1)[0]


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Return our Python files below some folders of the tree."""
    return tuple(path for path in tracked() if path.relative_to(ROOT).parts[0] in folders and is_python(path))


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(), filename=str(path))


def name(path: Path) -> str:
    """Return a path as it is written in a message."""
    return path.relative_to(ROOT).as_posix()


def packages_and_tools() -> tuple[Path, ...]:
    """Return the files that the size rules hold for."""
    return sources("plugin-api", "driver", "hack")


def oversized(path: Path) -> list[str]:
    """Return what is too big about a file's functions, in words."""
    limits = {"lines": MAX_LINES, "arguments": MAX_ARGUMENTS, "nesting": MAX_NESTING}
    return [
        f"{name(path)}:{function.line} {function.name}: {what} {getattr(function, what)}, at most {limit}"
        for function in rules.measure(parsed(path))
        for what, limit in limits.items()
        if getattr(function, what) > limit
    ]


def test_functions_are_small() -> None:
    """No function has more than 40 lines, 6 arguments or 3 nested blocks."""
    assert [line for path in packages_and_tools() for line in oversized(path)] == []


def test_files_are_small() -> None:
    """No source file has more than 400 lines."""
    sizes = {name(path): len(path.read_text().splitlines()) for path in packages_and_tools()}
    assert {path: size for path, size in sizes.items() if size > MAX_FILE} == {}


def test_the_median_function_is_short(record_property: Callable[[str, object], None]) -> None:
    """Half of all functions have about 8 lines or fewer; the figure is reported."""
    median = statistics.median(f.lines for path in packages_and_tools() for f in rules.measure(parsed(path)))
    record_property("median_function_lines", median)
    assert median <= MAX_MEDIAN


def test_modules_are_nouns() -> None:
    """No module or folder has a name that says nothing."""
    stems = {name(path): {*path.relative_to(ROOT).parts[:-1], path.stem} for path in packages_and_tools()}
    assert {path: stem & BAD_MODULES for path, stem in stems.items() if stem & BAD_MODULES} == {}


def api_difference(path: Path) -> set[str]:
    """Return the names by which a module's __all__ is wrong; a package's __init__ may also pass on names of its own."""
    tree = parsed(path)
    declared, definitions = rules.declared_all(tree), rules.public_names(tree)
    passed_on = rules.public_names(tree, package="dra_plugin") if path.name == "__init__.py" else set()
    return {"no __all__"} if declared is None else (definitions - declared) | (declared - definitions - passed_on)


def test_all_names_the_public_api() -> None:
    """Every public module of the library lists exactly its public definitions in __all__."""
    below = [(path, path.relative_to(ROOT / "plugin-api").with_suffix("").parts) for path in sources("plugin-api")]
    public = [path for path, parts in below if not any(re.match(r"_(?!_init__$)", part) for part in parts)]
    assert {name(path): sorted(diff) for path in public if (diff := api_difference(path))} == {}


def test_each_module_of_the_driver_says_what_is_public() -> None:
    """It has an __all__, under that very name; what only tests ask a module for may be missing in it."""
    modules = [path for path in sources("driver") if rules.public_names(parsed(path))]
    assert [name(path) for path in modules if rules.declared_all(parsed(path)) is None] == []


def project(folder: str) -> dict[str, object]:
    """Return the [project] table of a distribution."""
    table: dict[str, object] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return table


def test_versions_agree() -> None:
    """Both distributions, both packages and the newest CHANGELOG entry have one version."""
    inits = [ROOT / "plugin-api/dra_plugin/__init__.py", ROOT / "driver/drasim/__init__.py"]
    found = re.findall(r'^__version__ = "(.+)"$', "\n".join(path.read_text() for path in inits), re.MULTILINE)
    entries = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [project("plugin-api")["version"], project("driver")["version"], *found, entries[0]]
    assert versions == [versions[0]] * 5
    assert f"dra-plugin=={versions[0]}" in str(project("driver")["dependencies"])


def test_each_distribution_carries_the_license() -> None:
    """The license file of each distribution is the tree's."""
    copies = [(ROOT / folder / "LICENSE").read_text() for folder in ("plugin-api", "driver")]
    assert copies == [(ROOT / "LICENSE").read_text()] * 2


def test_locks_hold_no_addresses() -> None:
    """Lock files hold names, versions and hashes, and nothing of the index they came from."""
    lines = [line for path in (ROOT / "locks").iterdir() for line in path.read_text().splitlines()]
    odd = [
        line for line in lines if not re.match(r"( +--hash=sha256:[0-9a-f]{64}( \\)?|[\w.-]+==\S+( ; .*)? \\)$", line)
    ]
    assert (len(lines) > 0, odd) == (True, [])


def test_silenced_findings_give_a_reason() -> None:
    """Every noqa and type: ignore says why."""
    ours = sources("plugin-api", "driver", "hack", "tests")
    assert {name(path): lines for path in ours if (lines := rules.unreasoned(path.read_text()))} == {}


def test_tests_say_the_behaviour() -> None:
    """Every test function has a docstring."""
    assert {name(path): names for path in sources("tests") if (names := rules.undocumented_tests(parsed(path)))} == {}


def test_banned_names_stand_where_they_belong() -> None:
    """What ruff bans in the packages stands nowhere else either, but for the places listed above."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = set(lint["flake8-tidy-imports"]["banned-api"])
    found = [
        f"{name(path)}:{line} {used}"
        for path in sources("plugin-api", "driver", "hack", "tests")
        for line, used in rules.uses(parsed(path), banned)
        if not name(path).startswith(ALLOWED.get(used, ("nowhere",)))
    ]
    assert found == []


def test_no_file_knows_a_machine() -> None:
    """No text file holds an absolute path of the machine it was written on."""
    found = {}
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and (lines := rules.machine_paths(content.decode(errors="replace"))):
            found[name(path)] = lines
    assert found == {}


# ------------------------------------------------------------------------------- the checks themselves can fail

NESTED = """
def f(a, /, b, *args, c, **kwargs):
    '''Two lines
    of docstring.'''
    for _ in a:
        if b:
            pass
        elif c:
            with b:
                while a:
                    pass
"""


def test_measure_counts_what_the_rules_say() -> None:
    """Docstrings are no lines, starred arguments count, elif is not deeper than its if."""
    assert rules.measure(ast.parse(NESTED)) == [rules.Measured("f", 2, 8, 5, 4)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class A:\n    def f(self, a): ...", 1),
        ("class A:\n    @staticmethod\n    def f(a, b): ...", 2),
        ("class A:\n    @classmethod\n    async def f(cls, *, a): ...", 1),
        ("def f(a, b): ...", 2),
    ],
)
def test_self_and_cls_are_no_arguments(source: str, expected: int) -> None:
    """Only what a caller passes is counted."""
    assert [function.arguments for function in rules.measure(ast.parse(source))] == [expected]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = 1", 0),
        ("if a:\n  pass\nelif b:\n  pass\nelif c:\n  pass", 1),
        ("if a:\n  pass\nelse:\n  if b:\n    pass\n  x = 1", 2),
        ("try:\n  pass\nexcept E:\n  if a:\n    pass\nfinally:\n  pass", 2),
        ("match a:\n  case 1:\n    for b in c:\n      pass", 2),
        ("async def g():\n  if a:\n    pass", 0),
    ],
)
def test_nesting(body: str, expected: int) -> None:
    """Blocks inside each other count; an elif chain and an inner function do not."""
    assert rules.nesting(ast.parse(body).body) == expected


def test_public_names() -> None:
    """Definitions count, imports count in a package's __init__ only, type variables and underscores never."""
    tree = ast.parse("from p.m import a\nfrom x import b\nT = TypeVar('T')\nC = 1\nD: int = 2\n_e = 3\ndef f(): ...")
    assert rules.public_names(tree) == {"C", "D", "f"}
    assert rules.public_names(tree, package="p") == {"a", "C", "D", "f"}


def test_declared_all() -> None:
    """A module without __all__ is told from one whose list is empty."""
    assert rules.declared_all(ast.parse("__all__ = ['a', 'b']")) == {"a", "b"}
    assert rules.declared_all(ast.parse("x = 1")) is None


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        ("x = 1  # noqa", True),
        ("x = 1  # noqa: S101, S102", True),
        ("x = 1  # type: ignore[attr-defined]", True),
        ("x = 1  # type: ignore[misc]  # noqa: S101", True),
        ("x = 1  # noqa: S101 - shown to the user as it is", False),
        ("x = 1  # type: ignore[misc]  # the stub is wrong", False),
        ("x = '# noqa'", False),
    ],
)
def test_unreasoned(line: str, bad: object) -> None:
    """A silenced finding without words after it is found, in comments only."""
    assert rules.unreasoned(line + "\n") == [1] * bool(bad)


def test_undocumented_tests() -> None:
    """A test without a docstring is found, other functions are not looked at."""
    assert rules.undocumented_tests(ast.parse("def test_a(): ...\ndef test_b():\n  '''b.'''\ndef c(): ...")) == [
        "test_a"
    ]


def test_uses() -> None:
    """A banned name is found in every way it can be written."""
    source = "import unittest.mock\nfrom unittest import mock\nfrom os import environ\nos.environ['A']\nos.path"
    found = rules.uses(ast.parse(source), {"unittest.mock", "os.environ"})
    assert found == [(1, "unittest.mock"), (2, "unittest.mock"), (3, "os.environ"), (4, "os.environ")]


def test_machine_paths() -> None:
    """Absolute paths of a workplace are found, paths that only look like them are not."""
    place, home = "work", "root"  # not written out, or this file would be found
    bad = f"cd /{place}/main", f"/{home}/.cache"
    good = f"framework/{home}/x", f"$HOME/{place}/x", f"/proc/1/{home}/x"
    assert (rules.machine_paths("\n".join(bad)), rules.machine_paths("\n".join(good))) == ([1, 2], [])
