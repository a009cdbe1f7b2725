"""Logging: every log line goes to standard error, as text or JSON, for all loggers: the gateway's, the server's,
libraries' and warnings."""

import logging
import sys
import threading
import time
from types import TracebackType
from typing import Any, Literal

import orjson
from gunicorn.config import Config
from gunicorn.glogging import Logger

from gateway.configuration.settings import Log
from gateway.runtime.threads import report_uncaught
from gateway.secret_text import hide_secrets, hide_tokens
from gateway.telemetry.request_line import RequestLines

Form = Literal["text", "json"]
REPEATING = ("opentelemetry", "urllib3")
REPEAT_INTERVAL_S = 60.0
TEXT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"
# The attributes that a log record may have beside its message (gateway/runtime/state_changes.py).
EVENT = "event"
REMEDY = "remedy"
FACTS = "facts"


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "logger", "pid", "message", "event"?, "remedy"?, "error"?}` and the facts of an event, on one
    line; `at` in ISO 8601, UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": f"{self.formatTime(record, TIME_FORMAT)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": hide_secrets(record.getMessage()),
        }
        for name in (EVENT, REMEDY):
            if field := getattr(record, name, None):
                line[name] = field
        line.update((name, value) for name, value in getattr(record, FACTS, {}).items() if name not in line)
        if record.exc_info:
            line["error"] = hide_secrets(self.formatException(record.exc_info))
        return hide_tokens(orjson.dumps(line, default=str).decode())


class TextFormatter(logging.Formatter):
    """Formats a line for people. A message never breaks its line, since parts of it may come from a caller."""

    def __init__(self) -> None:
        super().__init__(TEXT, TIME_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        if remedy := getattr(record, REMEDY, ""):
            record.message += f" ({remedy})"
        if event := getattr(record, EVENT, ""):
            facts = "".join(f" {name}={value}" for name, value in getattr(record, FACTS, {}).items())
            record.message += printable(f" [{event}{facts}]")
        return super().formatMessage(record)


class Repeated(logging.Filter):
    """Limits to one per minute the lines that trace exporters repeat while a collector is down."""

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(REPEATING):
            return True
        place = (record.name, str(record.msg))
        if record.created - self._last_logged.get(place, 0.0) < REPEAT_INTERVAL_S:
            return False
        self._last_logged[place] = record.created
        return True


def formatter_of(form: Form) -> logging.Formatter:
    """Return the formatter of a log format."""
    formatter = JsonFormatter() if form == "json" else TextFormatter()
    formatter.converter = time.gmtime
    return formatter


def printable(text: str) -> str:
    """Escape line breaks and invisible characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


# gunicorn's logs in the same format as all other lines.


def logger_class(form: Form) -> type[Logger]:
    """The class for gunicorn's `logger_class` setting."""

    class ServerLogger(Logger):
        """gunicorn's error and access log in the chosen format."""

        def setup(self, cfg: Config) -> None:
            super().setup(cfg)
            for logger in (self.error_log, self.access_log):
                for handler in logger.handlers:
                    handler.setFormatter(formatter_of(form))

    return ServerLogger


log = logging.getLogger("gateway")


class Handler(logging.StreamHandler[Any]):
    """Our handler, distinguished from other handlers of the same logger."""


def set_up(settings: Log) -> None:
    """Send every line to standard error in the chosen format: the gateway's from its level on, those of libraries from
    warnings on, Python's warnings, and uncaught exceptions."""
    handler = Handler(sys.stderr)
    handler.setFormatter(formatter_of(settings.format))
    handler.addFilter(Repeated())
    for logger in (logging.getLogger(), log):
        logger.handlers[:] = [other for other in logger.handlers if not isinstance(other, Handler)] + [handler]
    log.setLevel(settings.level.upper())
    log.propagate = False
    logging.captureWarnings(True)
    report_uncaught(_log_uncaught)
    sys.excepthook = _log_uncaught_in_process
    threading.excepthook = _log_uncaught_in_thread


def request_lines(settings: Log) -> RequestLines | None:
    """Return the writer of the request line, None when it is disabled."""
    if settings.requests == "off":
        return None
    return RequestLines(settings.requests, _write)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _log_uncaught_in_process(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log_uncaught("the process", (kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    _log_uncaught("a thread", (args.exc_type, args.exc_value, args.exc_traceback))


def _log_uncaught(where: object, info: Any) -> None:
    log.error("an uncaught exception, in %s", where, exc_info=info)
