"""Running the builders' tools: in a mount namespace of their own, with a sign of life, the output kept for errors."""

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.progress import Progress

PRIVATE = ("unshare", "--mount", "--propagation", "private", Path(__file__).resolve().parent / "private")
TAIL = 25
PAUSE = 0.1


@dataclass(frozen=True)
class Commands:
    """Runs commands and shows how long each takes."""

    progress: Progress
    environment: Mapping[str, str]
    inside: tuple[str | Path, ...] = PRIVATE

    def run(self, what: str, command: Sequence[str | Path], folder: Path | None = None) -> str:
        """Run a command to its end and return its stdout. Raises ClusterError with the end of its output."""
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
            inside = [*self.inside, *command]
            process = subprocess.Popen(
                inside, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=folder, env=self.environment
            )
            try:
                self._wait(process, what, started)
            finally:
                process.kill()
                process.wait()
            out.seek(0)
            log.seek(0)
            return _result(what, process.returncode, out.read(), log.read())

    def _wait(self, process: "subprocess.Popen[bytes]", what: str, started: float) -> None:
        while process.poll() is None:
            self.progress.tick(f"{what}: {time.monotonic() - started:.0f} s")
            time.sleep(PAUSE)


def _result(what: str, code: int, out: str, log: str) -> str:
    if code:
        tail = "\n".join(f"  {line}" for line in (out + log).strip().splitlines()[-TAIL:])
        msg = f"{what}: failed with exit status {code}\n{tail}"
        raise ClusterError(msg)
    return out
