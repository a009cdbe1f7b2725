"""Outside checkers of guardrails through the whole gateway, with strict fakes of their APIs."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fakes.content_checkers import AWS_KEY, FORBIDDEN, FORBIDDEN_IMAGE, GUARDRAIL, KEY, NAME, SECRET, FakeCheckers
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.fleet import wait_until
from support.gateways import LocalGateway
from support.shared import Share, usage_of

from gateway.accounts import guardrail_changes, route_changes
from gateway.engine import content_checks
from gateway.guardrails.checkers import Checker
from gateway.guardrails.rule_sets import GuardrailRule
from gateway.routes.route_document import read_document

MODEL = "openai/gpt-4o-mini"
CREDENTIALS = {
    "webhook": SECRET,
    "presidio": "",
    "azure_content_safety": KEY,
    "bedrock_guardrail": AWS_KEY,
    "lakera_guard": KEY,
}
SETTINGS = {"bedrock_guardrail": (("guardrail", GUARDRAIL), ("region", "eu-west-1"))}
PLACING = ("webhook", "presidio", "bedrock_guardrail", "lakera_guard")
JUDGING = ("webhook", "azure_content_safety", "bedrock_guardrail", "lakera_guard")


@pytest.fixture
def checkers(share: Share) -> FakeCheckers:
    fake = share.fake(FakeCheckers)
    fake.reset()
    return fake


@pytest.fixture
def guard(gateway: LocalGateway, checkers: FakeCheckers) -> Iterator[Any]:
    """Add a rule with a checker to the organization of the test; it is removed afterwards."""
    store = gateway.services.store
    stores = (store.database, store.control)
    organization = gateway.organization_id
    added = []

    def add(action: str, form: str, checker: dict[str, Any] | None = None, **members: Any) -> str:
        address = checkers.url + ("/hook" if form == "webhook" else "")
        asked = Checker(
            form, address, SETTINGS.get(form, ()), **{"timeout_ms": 5_000, **(checker or {})},
            sealed=store.vault.seal(CREDENTIALS[form]),
        )  # fmt: skip
        rule = GuardrailRule("", f"Rule of {form}", action, checker=asked, **members)  # type: ignore[arg-type]
        place = (organization, "organization", organization)
        stored = guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
        added.append(stored.id)
        return stored.id

    yield add
    for ident in added:
        guardrail_changes.remove_guardrail(*stores, organization, ident, actor="operator")


def ask(client: OpenAI, *messages: str, **more: Any) -> Any:
    roles = ("user", "assistant") * len(messages)
    content = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    return client.chat.completions.create(model=MODEL, messages=content, **more)


def streamed(answer: Any) -> tuple[str, str]:
    """Return the text and the finish reason of a streamed answer."""
    chunks = [chunk for chunk in answer if chunk.choices]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    refusals = "".join(chunk.choices[0].delta.refusal or "" for chunk in chunks)
    return text + refusals, next(chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason)


@pytest.mark.parametrize("form", PLACING)
def test_value_that_a_checker_finds_is_masked_and_restored(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, form: str
) -> None:
    guard("mask", form)
    upstream.script(Answer("ok"))
    ask(client, f"Write to {NAME} and to {NAME}, please.")
    sent = json.dumps(upstream.calls[-1].body)
    assert NAME not in sent and sent.count("NAME_") == 2
    start = sent.index("NAME_")
    upstream.script(Answer(f"I wrote to {sent[start : start + 15]}."))
    answer = ask(client, f"Write to {NAME} and to {NAME}, please.")
    assert answer.choices[0].message.content == f"I wrote to {NAME}."


@pytest.mark.parametrize("form", JUDGING)
def test_text_that_a_checker_flags_is_refused_and_never_sent(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, form: str
) -> None:
    guard("block", form, contact="security@corp.test")
    before = len(upstream.calls)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, f"Tell me about {FORBIDDEN}.")
    assert refused.value.code == "guardrail_blocked"
    assert f"Rule of {form}" in refused.value.message and "security@corp.test" in refused.value.message
    assert len(upstream.calls) == before
    assert ask(client, "Tell me about the weather.").choices[0].message.content


@pytest.mark.parametrize("form", JUDGING)
def test_flagged_answer_is_a_refusal_whole_and_streamed(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, form: str
) -> None:
    guard("block", form, places=("answer",))
    text = "It is harmless. " * 30 + f"And then {FORBIDDEN} comes. " + "It goes on. " * 30
    upstream.script(Answer(text), Answer(text))
    whole = ask(client, "Hello!").choices[0]
    assert whole.finish_reason == "content_filter" and "blocks" in whole.message.refusal
    shown, finish = streamed(ask(client, "Hello!", stream=True))
    assert finish == "content_filter" and FORBIDDEN not in shown and shown.startswith("It is harmless.")


@pytest.mark.parametrize("form", PLACING)
def test_value_in_a_streamed_answer_is_removed_wherever_the_stream_is_cut(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, form: str
) -> None:
    guard("remove", form, places=("answer",))
    for before in (150, 193, 250):
        text = "x" * before + f" {NAME} lives here. " + "y" * 400
        upstream.script(Answer(text, piece=7))
        shown, finish = streamed(ask(client, "Hello!", stream=True))
        assert (shown, finish) == (text.replace(NAME, "[removed]"), "stop")


def test_values_that_other_rules_mask_are_hidden_from_checkers(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("mask", "webhook", places=("prompt", "answer"))
    stores = (gateway.services.store.database, gateway.services.store.control)
    place = (gateway.organization_id, "organization", gateway.organization_id)
    local = GuardrailRule("", "Local", "mask", ("email",))
    stored = guardrail_changes.add_guardrail(*stores, *place, local, active=True, actor="operator")
    upstream.script(Answer("ok"))
    ask(client, f"{NAME} has the address anna@mail.test.")
    sent = json.dumps(upstream.calls[-1].body)
    start = sent.index("EMAIL_")
    placeholder = sent[start : start + 16]
    upstream.script(Answer(f"I know {placeholder}."))
    answer = ask(client, f"{NAME} has the address anna@mail.test.")
    guardrail_changes.remove_guardrail(*stores, place[0], stored.id, actor="operator")
    assert answer.choices[0].message.content == "I know anna@mail.test."
    assert placeholder in "".join(checkers.texts)
    assert not any(b"anna@mail.test" in payload for _, payload in checkers.calls)


def test_earlier_turns_of_a_session_are_not_checked_again(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("block", "presidio", {"timeout_ms": 6_000})
    talk = ["A long question about the history of the city. " * 20]
    for turn in range(5):
        upstream.script(Answer(f"Answer {turn} of some length. " * 30))
        answer = ask(client, *talk)
        talk += [answer.choices[0].message.content, f"And then, for the time {turn}? " * 25]
    texts = checkers.texts
    assert len(texts) == len(set(texts)) == 9  # five questions and four answers in the history


@pytest.mark.parametrize("fault", ["status", "silence", "form", "away"])
@pytest.mark.parametrize("on_failure", ["block", "pass", "warn"])
def test_failing_checker_does_what_its_rule_says(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers, on_failure: str, fault: str
) -> None:
    guard("block", "webhook", {"on_failure": on_failure, "timeout_ms": 300})
    if fault == "status":
        checkers.status = 500
    elif fault == "silence":
        checkers.silence_s = 2.0
    elif fault == "form":
        checkers.answer = {"findings": [{"content": 7, "kind": "x"}]}
    before = len(upstream.calls)
    with checkers.away() if fault == "away" else checkers_as_they_are():
        if on_failure == "block":
            with pytest.raises(openai.APIStatusError) as refused:
                ask(client, f"Fault {fault}, {on_failure}.")
            assert (refused.value.status_code, refused.value.code) == (503, "guardrail_unavailable")
            assert len(upstream.calls) == before
            return
        content = [{"role": "user", "content": f"Fault {fault}, {on_failure}."}]
        answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=content)
    assert ("could not be checked" in answer.headers.get("x-llmgateway-warnings", "")) is (on_failure == "warn")


class checkers_as_they_are:
    def __enter__(self) -> None: ...
    def __exit__(self, *unused: object) -> None: ...


def test_checker_that_fails_again_and_again_is_reported_with_its_end(
    gateway: LocalGateway, client: OpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("block", "webhook", {"on_failure": "pass"})
    changes: list[Any] = []
    gateway.services.telemetry.states.subscribe(changes.append)
    checkers.status = 500
    for number in range(5):
        ask(client, f"Question {number} to a checker that is away.")
    checkers.status = 200
    ask(client, "Question to a checker that is back.")
    seen = [change for change in changes if change.event.startswith("checker.")]
    assert [change.event for change in seen] == ["checker.failing", "checker.back"]
    assert "failed 3 times in succession: The checker answered 500." in seen[0].message
    assert seen[0].facts["organization"] == gateway.organization_id and SECRET not in str(seen)


def test_failure_in_a_stream_ends_it_with_the_error(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("block", "webhook", places=("answer",))
    checkers.status = 500
    upstream.script(Answer("It is harmless. " * 60))
    with pytest.raises(openai.APIError) as failed:
        streamed(ask(client, "Hello!", stream=True))
    assert "could not be checked" in str(failed.value)


def test_rule_that_checks_streams_at_their_end_only_warns(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("block", "webhook", {"streaming": "end"}, places=("answer",))
    text = "It is harmless. " * 30 + f"And then {FORBIDDEN} comes."
    upstream.script(Answer(text), Answer(text))
    answer = list(ask(client, "Hello!", stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices) == text
    assert len(checkers.calls) == 1
    assert "found forbidden" in json.dumps([chunk.model_dump() for chunk in answer])
    assert ask(client, "Hello!").choices[0].finish_reason == "content_filter"


@pytest.mark.parametrize("form", ["webhook", "azure_content_safety", "bedrock_guardrail"])
def test_images_are_read_by_checkers_that_take_them(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers, form: str
) -> None:
    guard("block", form)

    def look(data: str, media_type: str = "image/png") -> Any:
        image = {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
        content = [{"type": "text", "text": "What is this?"}, image]
        return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": content}])

    with pytest.raises(openai.BadRequestError) as refused:
        look(FORBIDDEN_IMAGE)
    assert refused.value.code == "guardrail_blocked"
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    assert look(pixel).choices[0].message.content
    assert checkers.calls


def test_image_that_the_checker_does_not_take_is_refused_as_unread(client: OpenAI, guard: Any) -> None:
    guard("block", "lakera_guard")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{FORBIDDEN_IMAGE}"}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [image]}])
    assert refused.value.code == "guardrail_unreadable"


def test_more_text_than_a_checker_reads_counts_as_a_failure(
    client: OpenAI, guard: Any, checkers: FakeCheckers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_checks, "MOST_TEXT", 5_000)
    guard("block", "presidio")
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, "word " * 2_000)
    assert refused.value.code == "guardrail_unavailable"
    assert checkers.calls == []


def test_many_small_texts_are_checked_in_few_calls(
    client: OpenAI, upstream: FakeOpenAI, guard: Any, checkers: FakeCheckers
) -> None:
    guard("mask", "presidio")
    properties = {
        f"member_{number}": {"type": "string", "description": f"The member {number}"} for number in range(100)
    }
    tool = {"name": "t", "parameters": {"type": "object", "properties": properties}}
    upstream.script(Answer("ok"))
    ask(client, f"I am {NAME}.", tools=[{"type": "function", "function": tool}])
    assert 1 <= len(checkers.calls) <= 5
    assert NAME not in json.dumps(upstream.calls[-1].body)


def test_private_address_is_refused_unless_the_operator_allows_it(share: Share, upstream_environment: Any) -> None:
    gateway = share.gateway({**upstream_environment, "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "false"})
    store = gateway.services.store
    place = (gateway.organization_id, "organization", gateway.organization_id)
    checker = Checker("presidio", "http://localhost.nip.test.invalid:5002", timeout_ms=1_000)
    for address in ("http://127.0.0.1:5002", checker.address):
        rule = GuardrailRule("", "Presidio", "block", checker=Checker("presidio", address))
        stored = guardrail_changes.add_guardrail(
            store.database, store.control, *place, rule, active=True, actor="operator"
        )
        client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
        with pytest.raises(openai.APIStatusError) as refused:
            ask(client, "Hello!")
        assert refused.value.code == "guardrail_unavailable"
        guardrail_changes.remove_guardrail(store.database, store.control, place[0], stored.id, actor="operator")


def ask_model(gateway: LocalGateway, model: str, policy: str = "") -> str:
    """Add a rule with a classifier model; return its id."""
    store = gateway.services.store
    settings = (("model", model), *((("policy", policy),) if policy else ()))
    rule = GuardrailRule("", "Classifier", "block", checker=Checker("model", settings=settings, timeout_ms=20_000))
    place = (gateway.organization_id, "organization", gateway.organization_id)
    return guardrail_changes.add_guardrail(
        store.database, store.control, *place, rule, active=True, actor="operator"
    ).id


def remove(gateway: LocalGateway, rule: str) -> None:
    store = gateway.services.store
    guardrail_changes.remove_guardrail(store.database, store.control, gateway.organization_id, rule, actor="operator")


def test_classifier_model_judges_and_its_question_is_a_request_that_is_paid(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI
) -> None:
    rule = ask_model(gateway, MODEL, "advice about medicines")
    try:
        upstream.script(Answer("safe"), Answer("Hello!"))
        assert ask(client, "Tell me a story about a small town.").choices[0].message.content == "Hello!"
        upstream.script(Answer("unsafe\nmedical advice"))
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, "How much aspirin may I take?")
        assert "medical_advice" in refused.value.message
        question = json.dumps(upstream.calls[-1].body)
        assert "advice about medicines" in question and "aspirin" in question
        upstream.script(Answer("I cannot say."))
        with pytest.raises(openai.APIStatusError) as failed:
            ask(client, "Another question, about the weather.")
        assert failed.value.code == "guardrail_unavailable"
    finally:
        remove(gateway, rule)
    gateway.services.store.journal.flush(10)
    assert len(usage_of(gateway)) == 4  # three questions and the one request that was sent


def test_question_of_a_classifier_model_has_no_route(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI
) -> None:
    store = gateway.services.store
    place = (store.database, store.control, gateway.organization_id, "house")
    route_changes.put_route(*place, read_document({"otherwise": MODEL}), (), "", actor="operator")
    route_changes.publish_route(*place, None, actor="operator")
    rule = ask_model(gateway, "openai/gpt-4o", "advice about medicines")
    before = len(usage_of(gateway))
    try:
        upstream.script(Answer("safe"), Answer("Hello!"))
        client.chat.completions.create(model="dynamic/house", messages=[{"role": "user", "content": "Greet the sea."}])
    finally:
        remove(gateway, rule)
        route_changes.delete_route(*place, actor="operator")
    store.journal.flush(10)
    routes = {row.served: row.details.get("route") for row in usage_of(gateway)[before:]}
    assert routes == {"gpt-4o": None, "gpt-4o-mini": "house"}


def test_moderation_model_is_a_classifier(gateway: LocalGateway, client: OpenAI) -> None:
    rule = ask_model(gateway, "sandbox-moderate")
    try:
        answer = client.chat.completions.create(
            model="sandbox-echo", messages=[{"role": "user", "content": "Tell me about gardens."}]
        )
        assert answer.choices[0].message.content
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
                model="sandbox-echo", messages=[{"role": "user", "content": "I will kill him with violence."}]
            )
        assert refused.value.code == "guardrail_blocked"
    finally:
        remove(gateway, rule)


def test_lines_of_a_batch_are_asked_about_once_and_a_blocked_one_is_an_error_of_its_own(
    gateway: LocalGateway, client: OpenAI, checkers: FakeCheckers, guard: Any
) -> None:
    rule = guard("block", "webhook")
    texts = {"good": "Tell me about the weather.", "bad": f"Tell me about {FORBIDDEN}."}
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 50},
        }
        for name, text in texts.items()
    ]
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

    def has_ended() -> bool:
        gateway.services.engine.batches.run()
        return client.batches.retrieve(batch.id).status in ("completed", "failed")

    wait_until(has_ended)
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 1)
    refused = json.loads(client.files.content(done.error_file_id).text)
    assert refused["custom_id"] == "bad" and "guardrail_blocked" in json.dumps(refused)
    asked = b"".join(body for _, body in checkers.calls)
    assert [asked.count(text.encode()) for text in texts.values()] == [1, 1]
    gateway.services.store.journal.flush(10)
    sql = "SELECT SUM(count) FROM guardrail_finding WHERE rule = ?"
    assert gateway.services.store.database.query_row(sql, (rule,)) == (1,)
