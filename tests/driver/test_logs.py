"""Logs: one JSON object a line, or text for people."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from drasim import logs


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def unset() -> Iterator[None]:
    """Leave structlog and the standard library's loggers as they were found."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_a_record_is_one_line_of_json() -> None:
    """Time, level and event come first, then the fields of the logger and of the record."""
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    logs.get(driver="gpu.dra.example.com").info("claim prepared", claim="default/c", uid="u-1", devices=("gpu-0",))
    [line] = stream.getvalue().splitlines()
    record = json.loads(line)
    assert list(record)[:3] == ["time", "level", "event"]
    assert record["level"] == "info"
    assert record["event"] == "claim prepared"
    assert (record["driver"], record["claim"], record["uid"]) == ("gpu.dra.example.com", "default/c", "u-1")
    assert record["devices"] == ["gpu-0"]


def test_an_exception_stays_on_its_line() -> None:
    """A traceback is a field of the record, and what has no JSON form is written as text."""
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    try:
        int("no\nnumber")
    except ValueError:
        logs.get().exception("failed", odd=object())
    record = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: invalid literal" in record["exception"]
    assert record["odd"].startswith("<object")


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_decides_what_is_written(level: str, seen: int) -> None:
    """Records below the level are not written."""
    stream = io.StringIO()
    logs.setup(level, "json", stream)
    logger = logs.get()
    for write in (logger.debug, logger.info, logger.warning, logger.error):
        write("x")
    assert len(stream.getvalue().splitlines()) == seen


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    """People get text, machines JSON."""
    for stream, is_json in ((Terminal(), False), (io.StringIO(), True)):
        logs.setup("info", "auto", stream)
        logs.get().info("hello", driver="d")
        assert "hello" in stream.getvalue()
        assert stream.getvalue().startswith("{") is is_json


def test_the_form_can_be_chosen() -> None:
    """JSON on a terminal and text in a file are possible."""
    for stream, form in ((Terminal(), "json"), (io.StringIO(), "console")):
        logs.setup("info", form, stream)
        logs.get().info("hello")
        assert stream.getvalue().startswith("{") is (form == "json")


def test_library_records_have_the_same_form() -> None:
    """What a library logs through the standard library comes out as one more line of JSON, with its exception."""
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    try:
        int("odd")
    except ValueError:
        logging.getLogger("some.library").exception("it %s", "failed")
    logging.getLogger("some.library").debug("not wanted")
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert (record["level"], record["event"], record["library"]) == ("error", "it failed", "some.library")
    assert "ValueError: invalid literal" in record["exception"]


def test_rich_is_not_loaded_for_the_daemon() -> None:
    """The daemon gets structlog without rich, and rich can be imported afterwards by whoever wants it."""
    code = "import sys; from drasim import logs; logs.setup('info'); assert 'rich' not in sys.modules; import rich"
    subprocess.run([sys.executable, "-c", code], check=True)
