"""The log is one line an event, in the form that the operator chose."""

import json
import logging

import pytest

from gateway.configuration.settings import Log
from gateway.server import logging_setup


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
