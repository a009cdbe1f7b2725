"""The two log formats, text and JSON, for all loggers: the gateway's, the server's, libraries' and warnings."""

import logging
import time
from typing import Any, Literal

import orjson

from gateway.secret_text import hide_secrets, hide_tokens

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
