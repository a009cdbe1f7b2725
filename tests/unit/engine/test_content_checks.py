"""Checks by outside checkers: what one organization asks neither answers nor delays another."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.event import Event
from support.clock import FakeClock

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.engine import content_checks
from gateway.engine.classifier_models import ask_model
from gateway.engine.content_checks import CheckScope, ContentChecks
from gateway.guardrails.checked_texts import Content
from gateway.guardrails.checkers import Checker, FoundValue
from gateway.metering.counters import Counters
from gateway.runtime.state_changes import StateLog

CLASSIFIER = Checker("model", settings=(("model", "own/guard"), ("policy", "insults")))
PRESIDIO = Checker("presidio", "http://presidio.test/", timeout_ms=30_000)


def make_checks(tmp_path: Path, transport: Any = None) -> ContentChecks:
    vault = Vault(("a key of the installation",))
    return ContentChecks(transport, vault, FakeClock(), Counters(tmp_path), StateLog())  # type: ignore[arg-type]


def asker(organization: str) -> CheckScope:
    caller = Caller("key", "user", "", organization, "proj", "user", "member", "owner", "credits")
    return CheckScope(organization, "0" * 32, RequestContext("0" * 32, caller, 0, 0.0, 100.0))


def wanted(checker: Checker, text: str) -> Any:
    return {checker: {("input", text): Content(text, "input", "prompt")}}


def test_verdicts_of_an_organization_are_not_those_of_another_with_the_same_settings(tmp_path: Path) -> None:
    asked = []

    def classify(context: RequestContext, checker: Checker, pieces: Any, end: float) -> list[list[FoundValue]]:
        organization = context.caller.organization_id
        asked.append(organization)
        # Each organization has a custom model of this name; only one of them says that everything is safe.
        return [[FoundValue("insult")] if organization == "strict" else [] for _ in pieces]

    checks = make_checks(tmp_path)
    checks.classify = classify
    found = {}
    for organization in ("lenient", "strict", "strict"):
        found[organization] = checks.check(asker(organization), wanted(CLASSIFIER, "You fool!")).found
    assert found["strict"][CLASSIFIER, "input", "You fool!"] == (FoundValue("insult"),)
    assert asked == ["lenient", "strict"]


def test_request_with_thousands_of_short_texts_gives_others_a_turn(tmp_path: Path) -> None:
    checks = make_checks(tmp_path)
    checks.classify = lambda context, checker, pieces, end: [[] for _ in pieces]
    texts = {("input", str(number)): Content(str(number), "input", "prompt") for number in range(5_000)}
    turns = []

    def count() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0)

    other = gevent.spawn(count)
    try:
        found = checks.check(asker("org"), {CLASSIFIER: texts}).found
    finally:
        other.kill()
    assert len(found) == 5_000 and len(turns) > 2 * 5_000 // content_checks.STEP // 2


def test_organization_that_floods_a_slow_checker_leaves_places_to_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_checks, "CALLS_EACH", 1)
    monkeypatch.setattr(content_checks, "MOST_WAITING", 6)
    monkeypatch.setattr(content_checks, "MOST_WAITING_EACH", 3)
    answers = Event()

    def answer(*call: Any, **options: Any) -> Any:
        answers.wait()
        return SimpleNamespace(status=200, body=b"[]")

    checks = make_checks(tmp_path, SimpleNamespace(request=answer))

    def ask(organization: str, number: int) -> bool:
        return not checks.check(asker(organization), wanted(PRESIDIO, f"text {number}")).failed

    flood = [gevent.spawn(ask, "flooding", number) for number in range(20)]
    gevent.joinall(flood, timeout=10, count=16)
    others = [gevent.spawn(ask, "quiet", number) for number in range(2)]
    gevent.sleep(0)
    answers.set()
    gevent.joinall([*flood, *others])
    assert [one.value for one in others] == [True, True]
    assert sum(one.value for one in flood) == 4


@pytest.mark.parametrize("body", [{}, {"results": None}, {"results": [{"categories": {}}]}, None])
def test_moderation_in_another_form_is_a_failure_of_the_checker(tmp_path: Path, body: Any) -> None:
    answer = SimpleNamespace(result=SimpleNamespace(body=body))
    executor: Any = SimpleNamespace(generate=lambda context, request: answer)
    checks = make_checks(tmp_path)
    checks.classify = partial(ask_model, executor, FakeClock())  # type: ignore[arg-type]
    moderation = Checker("model", settings=(("model", "own/moderation"),), timeout_ms=30_000)
    results = checks.check(asker("org"), wanted(moderation, "Hello."))
    assert "another form" in results.failed[moderation] and not results.found
