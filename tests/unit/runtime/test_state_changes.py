"""A change of state is logged once, with its remedy, and its end once."""

import logging

import pytest

from gateway.runtime.state_changes import INFO, StateChange, StateLog

AWAY = StateChange("redis.away", "redis", "Redis does not answer", remedy="start it")
BACK = StateChange("redis.back", "redis", "Redis answers again", INFO)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def states(told: list[str]) -> StateLog:
    made = StateLog()
    made.subscribe(lambda change: told.append(change.event))
    return made


def test_a_lasting_failure_and_its_end_are_reported_once_each(states: StateLog, told: list[str]) -> None:
    for change in (BACK, AWAY, AWAY, BACK, BACK, AWAY):
        (states.resolve if change is BACK else states.fire)(change)
    assert told == ["redis.away", "redis.back", "redis.away"]


def test_a_worse_state_of_the_same_subject_is_reported(states: StateLog, told: list[str]) -> None:
    states.fire(StateChange("credits.low", "org", "low"))
    states.fire(StateChange("credits.spent", "org", "spent"))
    assert told == ["credits.low", "credits.spent"] and not states.is_healthy("org")


def test_the_line_names_event_remedy_and_facts(states: StateLog) -> None:
    records: list[logging.LogRecord] = []
    logger = logging.getLogger("gateway.runtime.state_changes")
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        states.publish(AWAY)
    finally:
        logger.removeHandler(handler)
    (line,) = records
    assert (line.event, line.remedy, line.facts) == ("redis.away", "start it", {"subject": "redis"})  # type: ignore[attr-defined]
    assert line.levelno == logging.WARNING
