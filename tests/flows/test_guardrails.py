"""Guardrails through the whole gateway, with the official SDKs over a fake that keeps what reached the provider."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway
from support.spending import until

from gateway.accounts import guardrail_changes
from gateway.guardrails.rule_sets import GuardrailRule
from gateway.surfaces.metrics import expose

MODEL = "openai/gpt-4o-mini"
CARD = "4929 1234 5678 9015"
EMAIL = "anna.meyer@mail.test"
KEY = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7_" * 3


@pytest.fixture
def guard(gateway: LocalGateway) -> Iterator[Any]:
    """Add a rule to the organization of the test; it is removed afterwards."""
    stores = (gateway.services.store.database, gateway.services.store.control)
    organization = gateway.organization_id
    added = []

    def add(action: str, *detectors: str, **members: Any) -> str:
        rule = GuardrailRule("", f"Rule of {action}", action, detectors=detectors, **members)  # type: ignore[arg-type]
        place = (organization, "organization", organization)
        stored = guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
        added.append(stored.id)
        return stored.id

    yield add
    for ident in added:
        guardrail_changes.remove_guardrail(*stores, organization, ident, actor="operator")


def sent(upstream: FakeOpenAI, number: int = -1) -> str:
    return json.dumps(upstream.calls[number].body)


def placeholder_in(upstream: FakeOpenAI, label: str, number: int = -1) -> str:
    text = sent(upstream, number)
    start = text.index(f"{label}_")
    return text[start : start + len(label) + 11]


def metrics_of(gateway: LocalGateway) -> str:
    return expose(gateway.services)[1].decode()


def ask(client: OpenAI, content: str, **more: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": content}], **more)


@pytest.mark.parametrize("stream", [False, True])
def test_masked_value_never_reaches_the_provider_and_comes_back(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, stream: bool
) -> None:
    guard("mask", "email")
    upstream.script(Answer("ok"))
    ask(client, f"Write to {EMAIL}.")
    placeholder = placeholder_in(upstream, "EMAIL")
    assert EMAIL not in sent(upstream)
    for piece in (1, 2, 5):
        upstream.script(Answer(f"I wrote to {placeholder.lower()}, and {placeholder}.", piece=piece))
        answer = ask(client, f"Write to {EMAIL}.", stream=stream)
        text = (
            "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
            if stream
            else answer.choices[0].message.content
        )
        assert text == f"I wrote to {EMAIL}, and {EMAIL}."


@pytest.mark.parametrize("stream", [False, True])
def test_blocked_value_is_refused_with_the_name_of_the_rule_and_nothing_is_sent(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, stream: bool
) -> None:
    guard("block", "secrets", contact="security@corp.test")
    before = len(upstream.calls)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, f"Use {KEY}", stream=stream)
    assert refused.value.code == "guardrail_blocked"
    assert "'Rule of block'" in str(refused.value)
    assert "security@corp.test" in str(refused.value)
    assert KEY not in str(refused.value)
    assert len(upstream.calls) == before


def test_values_in_every_place_of_a_conversation_are_masked(client: OpenAI, upstream: FakeOpenAI, guard: Any) -> None:
    guard("mask", "email")
    people = [f"person{number}@mail.test" for number in range(8)]
    escaped = json.dumps({"to": people[4]}).replace("@", "\\u0040")
    upstream.script(Answer("ok"))
    client.chat.completions.create(
        model=MODEL,
        user=people[0],
        messages=[
            {"role": "system", "content": f"You work for {people[1]}."},
            {"role": "user", "content": [{"type": "text", "text": f"Ask {people[2]}."}]},
            {
                "role": "assistant",
                "content": f"I ask {people[3]}.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "mail", "arguments": escaped},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": f"sent to {people[5]}"},
            {"role": "user", "content": "Go on."},
        ],
        tools=[
            {
                "type": "function",
                "function": {
                    "name": "mail",
                    "description": f"Default: {people[6]}",
                    "parameters": {"type": "object", "properties": {"to": {"type": "string", "default": people[7]}}},
                },
            }
        ],
    )
    text = sent(upstream)
    assert [person for person in people if person in text or person.replace("@", "\\u0040") in text] == []
    assert text.count("EMAIL_") == len(people)


def test_arguments_of_tool_calls_get_values_unless_the_tool_is_hidden(
    client: OpenAI, upstream: FakeOpenAI, guard: Any
) -> None:
    guard("mask", "email", hidden_from=("search",))
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("mail", "search")]
    upstream.script(Answer("ok"))
    ask(client, f"Write to {EMAIL}.", tools=tools)
    placeholder = placeholder_in(upstream, "EMAIL")
    arguments = json.dumps({"to": placeholder})
    for stream in (False, True):
        upstream.script(Answer(tools=(("mail", arguments), ("search", arguments)), piece=3))
        answer = ask(client, f"Write to {EMAIL}.", tools=tools, stream=stream)
        got: dict[int, str] = {}
        if stream:
            for chunk in answer:
                for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                    got[call.index] = got.get(call.index, "") + (call.function.arguments or "")
        else:
            got = {number: call.function.arguments for number, call in enumerate(answer.choices[0].message.tool_calls)}
        assert json.loads(got[0]) == {"to": EMAIL}
        assert json.loads(got[1]) == {"to": placeholder}


def test_prefix_of_twenty_turns_with_masked_values_stays_the_same(
    client: OpenAI, upstream: FakeOpenAI, guard: Any
) -> None:
    guard("mask", "email", "payment_card")
    messages: list[Any] = [{"role": "system", "content": f"Owner: {EMAIL}"}]
    earlier: list[Any] = []
    for turn in range(20):
        messages.append({"role": "user", "content": f"Turn {turn}: mail{turn}@corp.test and {EMAIL}"})
        upstream.script(Answer(f"answer {turn} for EMAIL"))
        answer = client.chat.completions.create(model=MODEL, messages=messages)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        now = upstream.calls[-1].body["messages"]
        assert now[: len(earlier)] == earlier
        assert "@" not in json.dumps(now)
        earlier = now


@pytest.mark.parametrize("piece", [1, 4, 200])
def test_blocked_value_in_a_stream_ends_it_with_a_refusal_before_any_of_it_is_sent(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, piece: int
) -> None:
    guard("block", "payment_card", places=("answer",))
    upstream.script(Answer(f"The number is {CARD}, keep it.", piece=piece))
    chunks = list(ask(client, "What is it?", stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert CARD[:4] not in text
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert finishes == ["content_filter"]
    upstream.script(Answer(f"The number is {CARD}."))
    whole = ask(client, "What is it?").choices[0]
    assert (whole.finish_reason, CARD in (whole.message.content or "")) == ("content_filter", False)


def test_usage_of_a_stream_that_a_guardrail_ended_says_so_and_is_billed(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI, guard: Any
) -> None:
    guard("block", "payment_card", places=("answer",))
    # The provider is still writing when the rule finds the number.
    upstream.script(Answer(f"The number is {CARD}, keep it." + " More of it." * 50, piece=4, gap_s=0.01))
    chunks = list(ask(client, "What is it?", stream=True))
    assert "content_filter" in [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    store = gateway.services.store
    rows: list[Any] = []

    def is_settled() -> bool:
        store.journal.flush(60)
        sql = "SELECT error, cost_nusd, output FROM usage WHERE finish = 'guardrail_blocked'"
        rows[:] = store.database.read(lambda: store.database.execute(sql).fetchall())
        return bool(rows)

    assert until(is_settled)
    error, cost, output = rows[-1]
    assert error == "guardrail_blocked"
    assert cost > 0 and output > 0


def test_anthropic_sdk_gets_values_back_and_refusals_in_its_form(
    gateway: LocalGateway, upstream: FakeOpenAI, guard: Any
) -> None:
    client = anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)
    guard("mask", "email")
    guard("block", "payment_card")
    question = [{"role": "user", "content": f"Write to {EMAIL}."}]
    upstream.script(Answer("ok"))
    client.messages.create(model=MODEL, max_tokens=100, messages=question)
    placeholder = placeholder_in(upstream, "EMAIL")
    upstream.script(Answer(f"Done: {placeholder}.", piece=3))
    with client.messages.stream(model=MODEL, max_tokens=100, messages=question) as stream:
        assert stream.get_final_text() == f"Done: {EMAIL}."
    with pytest.raises(anthropic.BadRequestError, match="Rule of block"):
        client.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": CARD}])


def test_other_operations_are_guarded_too(client: OpenAI, upstream: FakeOpenAI, guard: Any) -> None:
    guard("block", "payment_card")
    before = len(upstream.calls)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="openai/text-embedding-3-small", input=f"card {CARD}")
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input=f"card {CARD}")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=MODEL, prompt=f"card {CARD}")
    assert len(upstream.calls) == before


def test_image_is_refused_by_a_rule_that_must_read_everything(client: OpenAI, guard: Any) -> None:
    guard("block", "payment_card", unread="refuse")
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [image]}])  # type: ignore[list-item,misc]
    assert refused.value.code == "guardrail_unreadable"


def test_rule_on_probation_changes_nothing_and_is_counted(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, gateway: LocalGateway
) -> None:
    ident = guard("block", "email", probation=True)
    upstream.script(Answer("ok"))
    ask(client, f"Write to {EMAIL} and {EMAIL}.")
    assert EMAIL in sent(upstream)
    store = gateway.services.store
    store.journal.flush(10)
    counts, _ = guardrail_changes.count_findings(store.database, gateway.organization_id, 2)
    found = [(one.kind, one.place, one.action, one.values) for one in counts if one.rule_id == ident]
    assert found == [("email", "prompt", "would block", 2)]
    counted = [line for line in metrics_of(gateway).splitlines() if "guardrail_findings_total{" in line]
    assert any('action="would block"' in line and 'kind="email"' in line for line in counted)


def test_cached_answer_has_placeholders_and_each_caller_gets_their_own_values(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, gateway: LocalGateway
) -> None:
    guard("mask", "email")
    upstream.script(Answer("ok"))
    ask(client, f"Write to {EMAIL}.")
    placeholder = placeholder_in(upstream, "EMAIL")
    store = gateway.services.store
    switch = "UPDATE project SET cache_enabled = ? WHERE id = ?"
    store.database.write(lambda: (store.database.execute(switch, (True, gateway.project_id)), store.control.bump()))
    store.control.confirm()
    try:
        upstream.script(Answer(f"Done: {placeholder}."))
        first, second = (ask(client, f"Write to {EMAIL}, now.") for _ in range(2))
    finally:
        store.database.write(
            lambda: (store.database.execute(switch, (False, gateway.project_id)), store.control.bump())
        )
        store.control.confirm()
    assert first.choices[0].message.content == second.choices[0].message.content == f"Done: {EMAIL}."
    kept = store.database.read(lambda: store.database.execute("SELECT value FROM document").fetchall())
    assert all(EMAIL.encode() not in bytes(row[0]) for row in kept)


def test_session_restores_a_value_of_an_earlier_turn_from_its_encrypted_table(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, gateway: LocalGateway
) -> None:
    guard("mask", "email")
    session = {"x-session-id": "a-session"}
    upstream.script(Answer("ok"))
    ask(client, f"Write to {EMAIL}.", extra_headers=session)
    placeholder = placeholder_in(upstream, "EMAIL")
    for headers, expected in ((session, EMAIL), ({"x-session-id": "another"}, placeholder), ({}, placeholder)):
        upstream.script(Answer(f"It was {placeholder}."))
        assert ask(client, "Whom did you write to?", extra_headers=headers).choices[0].message.content == (
            f"It was {expected}."
        )
    tables = gateway.services.engine.guarding.tables
    assert all(EMAIL.encode() not in sealed for _, sealed in tables._memory.values())


@pytest.mark.parametrize("piece", [1, 6])
def test_structured_output_and_reasoning_get_values_back(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, piece: int
) -> None:
    name = 'Acme "Gold"'
    guard("mask", terms=(name,))
    json_mode = {"response_format": {"type": "json_object"}, "stream": True}
    upstream.script(Answer("{}"))
    ask(client, f"JSON about {name}, please.")
    placeholder = placeholder_in(upstream, "TERM")
    upstream.script(Answer(json.dumps({"name": placeholder}), thought=f"So {placeholder} it is.", piece=piece))
    text = thought = ""
    for chunk in ask(client, f"JSON about {name}, please.", **json_mode):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            thought += getattr(chunk.choices[0].delta, "reasoning", None) or ""
    assert json.loads(text) == {"name": name}
    assert placeholder not in thought
