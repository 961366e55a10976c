"""Logs: one JSON object a line, or coloured text on a terminal. structlog is imported when logs are set up."""

import importlib
import logging
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from types import ModuleType

    from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["get", "setup"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def setup(level: str, form: str = "auto", stream: TextIO | None = None) -> None:
    """Write records of ``level`` (debug, info, warning, error) and above to ``stream``, stderr if None.

    ``form`` is json, console, or auto: console on a terminal, else json. May be called again.
    """
    structlog = _imported()
    target = stream or sys.stderr
    console = form == "console" or (form == "auto" and target.isatty())
    structlog.configure(
        processors=_for_people(target) if console else _for_machines(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=_LEVELS[level], handlers=[_Forwarding()], force=True)


def get(**fields: object) -> "FilteringBoundLogger":
    """Return a logger whose records carry ``fields``: ``driver``, ``claim`` (namespace/name), ``uid``."""
    structlog = _imported()
    logger: FilteringBoundLogger = structlog.get_logger(**fields)
    return logger


class _Forwarding(logging.Handler):
    """Has what libraries log come out in the same form as our own records."""

    def emit(self, record: logging.LogRecord) -> None:
        get(library=record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _for_people(stream: TextIO) -> "list[Processor]":
    structlog = _imported()
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [structlog.processors.add_log_level, structlog.processors.TimeStamper("%H:%M:%S", utc=False), renderer]


def _for_machines() -> "list[Processor]":
    structlog = _imported()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
    return [structlog.processors.add_log_level, stamp, structlog.processors.format_exc_info, _render]


def _imported() -> "ModuleType":
    """Return structlog, imported without rich: it would load that for tracebacks, which costs 25 ms and 5 MiB."""
    if "structlog" in sys.modules:
        return sys.modules["structlog"]
    rich = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # what Python itself takes for "there is none"
    try:
        return importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
        if rich is not None:
            sys.modules["rich"] = rich


def _render(_: object, __: str, record: MutableMapping[str, Any]) -> str:
    """Return one line of JSON that begins with time, level and event."""
    import msgspec

    first = {key: record.pop(key) for key in ("time", "level", "event")}
    return msgspec.json.encode({**first, **record}, enc_hook=str).decode()
