"""What changes in the cluster, and when: watches of the API server, each read by a thread as long as a step lasts."""

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from hack.tour.clients import CHECKOUT, Clients, Failed, Object

STREAM = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
READ = "k8s.io/initial-events-end"
CHANGES = ("ADDED", "MODIFIED", "DELETED")
BEGINS_WITHIN = 30.0

Wanted = Callable[["Change"], bool]


@dataclass(frozen=True)
class Change:
    """One event of a watch: when it came (monotonic seconds), ADDED, MODIFIED or DELETED, and the object."""

    at: float
    what: str
    object: Object

    @property
    def name(self) -> str:
        """The object's name."""
        found: str = self.object["metadata"]["name"]
        return found

    @property
    def there(self) -> bool:
        """Whether the object exists, and is not being deleted."""
        return self.what != "DELETED" and "deletionTimestamp" not in self.object["metadata"]


class Watch:
    """All changes of one resource since the watch began; what was there before are the first of them."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self._changes: list[Change] = []
        self._news = threading.Condition()
        self._began = self._ended = False

    def read(self, lines: Iterable[str]) -> None:
        """Take events, a line of JSON each, until they end; of a client that was ended, the last may be half a line."""
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                break
            self._take(event)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def begun(self) -> None:
        """Return when all that was there before is known. Raises Failed when that takes too long."""
        with self._news:
            if not self._news.wait_for(lambda: self._began or self._ended, BEGINS_WITHIN) or not self._began:
                raise Failed(f"expected a watch of {self.resource}; it did not begin")

    def first(self, expected: str, wanted: Wanted, within: float = 60.0) -> Change:
        """Return the first change that is wanted, waiting for it if need be.

        Raises Failed with what was expected and the last change that came.
        """
        end, looked = time.monotonic() + within, 0
        with self._news:
            while True:
                new, looked = self._changes[looked:], len(self._changes)
                if found := next((change for change in new if wanted(change)), None):
                    return found
                if self._ended or not self._news.wait(max(0.0, end - time.monotonic())):
                    raise Failed(self._missing(expected, within))

    def _take(self, event: Object) -> None:
        what, entry = event["type"], event["object"]
        with self._news:
            if what == "BOOKMARK":
                self._began |= READ in entry["metadata"].get("annotations", {})
            elif what in CHANGES:
                self._changes.append(Change(time.monotonic(), what, entry))
            self._news.notify_all()

    def _missing(self, expected: str, within: float) -> str:
        last = self._changes[-1] if self._changes else None
        seen = f"{last.what} {last.name}" if last else "no change at all"
        why = "the watch ended before that" if self._ended else f"seen last: {seen}"
        return f"expected within {within:.0f} s: {expected}; {why} ({self.resource})"


@contextmanager
def watching(clients: Clients, resources: Mapping[str, str]) -> Iterator[dict[str, Watch]]:
    """Watch resources, each a path of the API by a name of one's choice, until the context ends."""
    with ExitStack() as stack:
        watches = {name: stack.enter_context(_running(clients, path)) for name, path in resources.items()}
        for watch in watches.values():
            watch.begun()
        yield watches


@contextmanager
def _running(clients: Clients, path: str) -> Iterator[Watch]:
    command = [*clients.kubectl, "get", "--raw", f"{path}?{STREAM}"]
    watch = Watch(path)
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=CHECKOUT,
            env=dict(clients.environment),
        ) as process,
    ):
        reader = threading.Thread(target=watch.read, args=[_lines(process.stdout)])
        reader.start()
        try:
            yield watch
        except Failed as failure:
            raise Failed(f"{failure}{_complaint(said)}") from None
        finally:
            process.terminate()
            reader.join()


def _complaint(said: IO[str]) -> str:
    said.seek(0)
    text = said.read().strip()
    return f"; kubectl says: {text}" if text else ""


def _lines(stream: IO[str] | None) -> Iterator[str]:
    yield from stream or ()
