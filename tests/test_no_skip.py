"""DRASIM_NO_SKIP=1: a test of the real cluster that would be skipped fails instead."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)  # seconds; starts pytest, which takes its time on a busy machine

CONFTEST = Path(__file__).parent / "conftest.py"
PYTEST_INI = "[pytest]\nmarkers =\n  cluster: c\n  root: r\naddopts = -p no:cacheprovider -p no:xdist\n"
PLAIN = """
import pytest

def test_plain():
    pytest.skip("no matter")

@pytest.mark.root
def test_root():
    pytest.skip("not root")
"""
WHOLE = "import pytest\npytest.skip('no cluster', allow_module_level=True)\n"
INSIDE = "import pytest\ndef test_cluster():\n    pytest.skip('no kernel feature')\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree of tests, each of which skips, below this project's conftest."""
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    (tmp_path / "test_plain.py").write_text(PLAIN)
    (cluster / "test_whole.py").write_text(WHOLE)
    (cluster / "test_inside.py").write_text(INSIDE)
    return tmp_path


def outcome(tree: Path, *, no_skip: bool) -> tuple[int, dict[str, int]]:
    """Run pytest on a tree; return its exit status and its closing figures."""
    environment = {**os.environ, "DRASIM_NO_SKIP": str(int(no_skip))}
    command = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-q", str(tree)]
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    closing = run.stdout.splitlines()[-1]
    return run.returncode, {word.rstrip("s"): int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", closing)}


def test_a_skip_is_a_skip_by_default(tree: Path) -> None:
    """Without the variable, skipped tests leave the run green."""
    assert outcome(tree, no_skip=False) == (0, {"skipped": 4})


def test_a_skipped_cluster_test_fails_the_run(tree: Path) -> None:
    """With it, cluster and root tests and whole cluster modules fail; other skips stay what they are."""
    assert outcome(tree, no_skip=True) == (1, {"skipped": 1, "failed": 2, "error": 1})
