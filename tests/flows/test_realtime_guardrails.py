"""Guardrails of realtime sessions: events of the caller, and texts of the provider."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.content_checkers import FORBIDDEN, SECRET, FakeCheckers
from fakes.realtime import Answer, FakeRealtime
from support.gateways import LocalGateway
from support.realtime_sessions import respond, session, upstream_settings
from support.shared import Share

from gateway.accounts import guardrail_changes
from gateway.guardrails.checkers import Checker
from gateway.guardrails.rule_sets import GuardrailRule

EMAIL = "anna.meyer@mail.test"
CARD = "4929 1234 5678 9015"


@pytest.fixture
def provider(share: Share) -> FakeRealtime:
    fake = share.fake(FakeRealtime)
    fake.reset()
    return fake


@pytest.fixture
def upstream_environment(provider: FakeRealtime) -> dict[str, str]:
    return upstream_settings(provider.url)


@pytest.fixture
def guard(gateway: LocalGateway) -> Iterator[Any]:
    """Add a rule to the organization of the test; it is removed afterwards."""
    stores = (gateway.services.store.database, gateway.services.store.control)
    added = []

    def add(action: str, detector: str, **members: Any) -> None:
        rule = GuardrailRule("", f"Rule of {action}", action, detectors=(detector,), **members)  # type: ignore[arg-type]
        place = (gateway.organization_id, "organization", gateway.organization_id)
        stored = guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
        added.append(stored.id)

    yield add
    for ident in added:
        guardrail_changes.remove_guardrail(*stores, gateway.organization_id, ident, actor="operator")


def say(connection: Any, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})


def test_masked_values_stay_here_and_come_back_in_the_provider_s_texts(
    gateway: LocalGateway, provider: FakeRealtime, guard: Any
) -> None:
    guard("mask", "email")
    with session(gateway) as connection:
        connection.session.update(session={"type": "realtime", "instructions": f"You work for {EMAIL}."})
        say(connection, f"Write to {EMAIL}.")
        respond(connection)
        heard = json.dumps(provider.last.events)
        assert EMAIL not in heard
        start = heard.index("EMAIL_")
        placeholder = heard[start : start + 16]
        provider.answers.append(Answer(text=f"I wrote to {placeholder}."))
        connection.response.create(response={"output_modalities": ["text"]})
        texts, done = [], None
        while done is None:
            event = connection.recv()
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            done = event if event.type in ("response.done", "error") else None
        assert texts == [f"I wrote to {EMAIL}."]


def test_blocked_event_is_answered_with_an_error_and_never_sent(
    gateway: LocalGateway, provider: FakeRealtime, guard: Any
) -> None:
    guard("block", "payment_card", unread="pass")
    with session(gateway) as connection:
        say(connection, f"My card is {CARD}.")
        while (event := connection.recv()).type != "error":
            continue
        assert event.error.code == "guardrail_blocked"
    assert CARD not in json.dumps(provider.last.events)


def test_rule_that_is_added_during_a_session_applies_to_its_next_event(
    gateway: LocalGateway, provider: FakeRealtime, guard: Any
) -> None:
    with session(gateway) as connection:
        say(connection, f"My card is {CARD}.")
        respond(connection)
        guard("mask", "payment_card")
        say(connection, f"I have another one: {CARD}. It is red.")
        respond(connection)
    heard = [json.dumps(event) for event in provider.last.events]
    assert [CARD in text for text in heard if "My card is" in text] == [True]
    assert [CARD in text for text in heard if "It is red." in text] == [False]


def test_checker_reads_events_of_the_caller_and_whole_texts_of_the_provider(
    gateway: LocalGateway, provider: FakeRealtime, share: Share
) -> None:
    checkers = share.fake(FakeCheckers)
    checkers.reset()
    store = gateway.services.store
    place = (gateway.organization_id, "organization", gateway.organization_id)
    hook = Checker("webhook", f"{checkers.url}/hook", sealed=store.vault.seal(SECRET))
    rule = GuardrailRule("", "Hook", "block", places=("prompt", "answer"), unread="pass", checker=hook)
    stored = guardrail_changes.add_guardrail(store.database, store.control, *place, rule, active=True, actor="operator")
    try:
        with session(gateway) as connection:
            say(connection, f"Tell me about {FORBIDDEN}.")
            while (event := connection.recv()).type != "error":
                continue
            assert event.error.code == "guardrail_blocked"
            say(connection, "Tell me about the weather.")
            provider.answers.append(Answer(text=f"I would rather speak of {FORBIDDEN}."))
            connection.response.create(response={"output_modalities": ["text"]})
            seen = []
            while (event := connection.recv()).type != "error":
                seen.append(event.type)
            assert event.error.code == "guardrail_blocked"
            assert "response.output_text.done" not in seen and "response.done" not in seen
    finally:
        guardrail_changes.remove_guardrail(store.database, store.control, place[0], stored.id, actor="operator")
    heard = json.dumps(provider.last.events)
    assert f"Tell me about {FORBIDDEN}" not in heard and "the weather" in heard
