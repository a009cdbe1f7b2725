"""Logging: every log line goes to standard error, in the format that the operator chose."""

import logging
import sys
import threading
from types import TracebackType
from typing import Any

from gunicorn.config import Config
from gunicorn.glogging import Logger

from gateway.configuration.settings import Log
from gateway.runtime.threads import report_uncaught
from gateway.telemetry.log_formats import Form, Repeated, formatter_of
from gateway.telemetry.request_line import RequestLines

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
