"""Every log line is one line, in the form that the operator chose."""

import json
import logging
import sys

import pytest

from gateway.configuration.settings import Log
from gateway.server import logging_setup
from gateway.server.logging_setup import Form, Repeated, formatter_of


def record(message: str, *values: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("gateway.store", logging.WARNING, __file__, 1, message, values, None)
    made.__dict__.update(more)
    return made


def test_an_event_shows_its_name_remedy_and_subject() -> None:
    told = record("redis is down", event="redis.away", remedy="start it", facts={"address": "r:6379"})
    line = json.loads(formatter_of("json").format(told))
    assert (line["event"], line["remedy"], line["address"]) == ("redis.away", "start it", "r:6379")
    text = formatter_of("text").format(told)
    assert text.endswith("WARNING gateway.store: redis is down (start it) [redis.away address=r:6379]")


@pytest.mark.parametrize("form", ["text", "json"])
def test_text_of_callers_never_starts_another_line(form: Form) -> None:
    line = formatter_of(form).format(record("GET %s failed", "/a\n2026 INFO all is well\x1b[2K"))
    assert len(line.splitlines()) == 1 and "\x1b" not in line


def test_the_json_form_keeps_an_exception_within_its_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = formatter_of("json").format(record("failed", exc_info=sys.exc_info()))
    assert len(line.splitlines()) == 1 and "ValueError: broken" in json.loads(line)["error"]


@pytest.mark.parametrize("logger", ["opentelemetry.exporter.otlp", "urllib3.connectionpool"])
def test_a_collector_that_is_away_is_reported_once_a_minute_and_other_lines_always(logger: str) -> None:
    kept, away = Repeated(), record("Failed to export %s", "spans")
    away.name = logger
    assert [kept.filter(away) for _ in range(3)] == [True, False, False]
    away.created += 61
    assert kept.filter(away) and all(kept.filter(record("the database is down")) for _ in range(2))


# The log is one line an event, in the form that the operator chose.


def test_json_lines_hold_time_level_and_the_exception(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up(Log("info", "json"))
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("gateway.store").exception("the %s is down", "database")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("error", "gateway.store", "the database is down")
    assert line["at"].endswith("Z") and "ValueError: broken" in line["error"]


def test_debug_lines_are_left_out_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up(Log("warning", "text"))
    logging.getLogger("gateway").info("a detail")
    assert capsys.readouterr().err == ""
