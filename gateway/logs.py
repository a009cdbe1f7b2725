"""Logging: one line a lifecycle event, as text or as JSON; nothing a request says by itself."""

import logging
import sys
import time
from collections.abc import Mapping

import orjson

from gateway.settings import Log, unknown_names

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "logger", "message", "error"?}` on one line, `at` in ISO 8601, UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up(settings: Log, environment: Mapping[str, str]) -> None:
    """Send the gateway's log to standard error in the chosen form; warn of settings that mean nothing."""
    formatter = JsonFormatter() if settings.format == "json" else logging.Formatter(TEXT)
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger("gateway")
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    root.propagate = False
    for name in unknown_names(environment):
        root.warning("the environment variable %s means nothing here", name)
