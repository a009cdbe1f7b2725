"""Logging: everything that is logged goes to standard error, in the form that the operator chose."""

import logging
import sys
import threading
from typing import Any

from gateway.configuration.settings import Log
from gateway.runtime.threads import report_uncaught
from gateway.telemetry.log_formats import Repeated, formatter_of
from gateway.telemetry.request_line import RequestLines

log = logging.getLogger("gateway")


class Handler(logging.StreamHandler):
    """Ours, distinguished from others' on the same logger."""


def set_up(settings: Log) -> None:
    """Send every line to standard error in the chosen form: the gateway's from its level on, those of libraries from
    warnings on, Python's own warnings, and exceptions that nobody caught."""
    handler = Handler(sys.stderr)
    handler.setFormatter(formatter_of(settings.format))
    handler.addFilter(Repeated())
    for logger in (logging.getLogger(), log):
        logger.handlers[:] = [one for one in logger.handlers if not isinstance(one, Handler)] + [handler]
    log.setLevel(settings.level.upper())
    log.propagate = False
    logging.captureWarnings(True)
    report_uncaught(_log_uncaught)
    sys.excepthook = lambda kind, error, trace: _log_uncaught("the process", (kind, error, trace))
    threading.excepthook = lambda args: _log_uncaught("a thread", (args.exc_type, args.exc_value, args.exc_traceback))


def request_lines(settings: Log) -> RequestLines | None:
    """What writes the request line; None where it is off."""
    if settings.requests == "off":
        return None
    return RequestLines(settings.requests, _write)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _log_uncaught(where: object, info: Any) -> None:
    log.error("an exception that nobody caught, in %s", where, exc_info=info)
