"""How far a build is, counted from what the go command prints."""

import io

from hack.cluster.builder import Work, different, estimate
from hack.cluster.products import PRODUCTS
from hack.cluster.progress import Progress, Tally, bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tally_counts_stale_packages_once() -> None:
    """Only packages known to be stale count, and each of them once."""
    tally = Tally(frozenset({"fmt", "k8s.io/api/core/v1"}))
    for line in ("fmt\n", "fmt\n", "k8s.io/other\n", "k8s.io/api/core/v1\n"):
        tally.feed(line)
    assert tally.done == 2


def test_tally_keeps_errors() -> None:
    """What is no package's name is kept for the message of a failed build."""
    tally = Tally(frozenset({"fmt"}))
    for line in ("fmt\n", "# drasim/kube\n", "./main.go:3:1: syntax error\n", "\n"):
        tally.feed(line)
    assert tally.other == ["# drasim/kube", "./main.go:3:1: syntax error"]


def test_bar_is_full_at_the_end() -> None:
    """A bar has its width, is empty at the start and full at the end, and a count of nothing is done."""
    assert (bar(0, 10, 4), bar(5, 10, 4), bar(10, 10, 4), bar(0, 0, 4)) == ("░░░░", "██░░", "████", "████")


def test_plain_lines_come_now_and_then() -> None:
    """Without a terminal a loop that counts prints a line every 15 s, not one for each call."""
    now = [0.0]
    out = io.StringIO()
    progress = Progress(out, lambda: now[0])
    for second in range(31):
        now[0] = 100.0 + second
        progress.count("packages", second, 40)
    assert out.getvalue().splitlines() == ["  0/40 packages", "  15/40 packages", "  30/40 packages"]


def test_terminal_line_gives_way_to_text() -> None:
    """On a terminal the bar is drawn in place and wiped before a line of text."""
    out = Terminal()
    progress = Progress(out, lambda: 1.0)
    progress.count("packages", 3, 4)
    progress.say("done")
    assert "█░" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[Kdone\n")


def test_standard_library_counts_once() -> None:
    """Packages that several products share are counted once, and products with cgo have their own."""
    by_name = {product.name: product for product in PRODUCTS}
    stale = frozenset({"fmt", "golang.org/x/net"})
    works = [Work(by_name[name], stale) for name in ("kube", "etcd", "runc")]
    assert len(different(works)) == 2 + 3


def test_estimate_grows_with_the_work() -> None:
    """More packages and fewer cores take longer."""
    assert estimate(100, 1, 2) < estimate(2000, 1, 2) < estimate(2000, 1, 1)
