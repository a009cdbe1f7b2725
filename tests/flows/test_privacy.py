"""The promises about stored data: none under zero data retention, none in plain text, none past a new rule."""

import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import BadRequestError, OpenAI, PermissionDeniedError
from openai.resources.responses.responses import ResponsesConnection
from support.gateways import LocalGateway

from gateway.accounts.organizations import set_policy
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.rules import add_rule

MODEL = "openai/gpt-4o-mini"
SAID = "a secret word that must not be in the store"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": SAID}]}


@pytest.fixture
def gateway(own_gateway: LocalGateway) -> LocalGateway:
    """A separate gateway for each test: the tests read all stored data and change what the provider keeps."""
    return own_gateway


@pytest.fixture
def http(gateway: LocalGateway) -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {gateway.key}"}) as client:
        yield client


def keep_nothing(gateway: LocalGateway) -> None:
    own = gateway.services.accounts.authentication.caller(gateway.key)
    services = gateway.services
    policy = {"zeroDataRetention": True}
    set_policy(services.store.database, services.store.control, own.organization_id, policy, actor="test")
    # The fake provider keeps nothing either, so that the policy lets it serve.
    catalogue = services.routing.catalogue.current()
    provider = catalogue.provider("openai")
    object.__setattr__(provider.data_policy, "retention", "none")


@pytest.fixture
def zdr(gateway: LocalGateway) -> Iterator[LocalGateway]:
    provider = gateway.services.routing.catalogue.current().provider("openai")
    before = provider.data_policy.retention
    keep_nothing(gateway)
    yield gateway
    object.__setattr__(provider.data_policy, "retention", before)


def stored(gateway: LocalGateway) -> list[bytes]:
    """Every value of every table that holds what callers sent or got."""
    gateway.services.store.journal.flush(60)
    database = gateway.services.store.database
    found: list[bytes] = []
    for table, column in (("document", "value"), ("stored_response", "body"), ("stored_value", "value")):
        rows = database.read(lambda t=table, c=column: database.execute(f"SELECT {c} FROM {t}").fetchall())
        found += [bytes(row[0]) for row in rows if row[0] is not None]
    return found


def readable(value: bytes) -> str:
    """Return stored bytes as a reader without a key sees them: as they are, and inflated where that is possible."""
    texts = [value]
    for start in (0, value.find(b"\n") + 1):
        try:
            texts.append(zlib.decompress(value[start:]))
        except zlib.error:
            continue
    return b"\n".join(texts).decode("utf-8", "replace")


def test_responses_of_an_sdk_with_its_defaults_work_under_zero_data_retention_and_nothing_is_stored(
    zdr: LocalGateway, client: OpenAI
) -> None:
    answer = client.responses.create(model=MODEL, input=SAID)
    assert answer.status == "completed" and answer.model_dump()["store"] is False
    with client.responses.stream(model=MODEL, input=SAID) as stream:
        assert stream.get_final_response().status == "completed"
    assert not any(SAID in readable(value) for value in stored(zdr))
    database = zdr.services.store.database
    count = database.read(lambda: database.execute("SELECT count(*) FROM stored_response").fetchone()[0])
    assert count == 0


def test_a_socket_continues_responses_under_zero_data_retention_and_stores_nothing(
    zdr: LocalGateway, client: OpenAI
) -> None:
    def take_turn(connection: ResponsesConnection, **more: Any) -> Any:
        connection.response.create(model=MODEL, input=SAID, **more)
        while (event := connection.recv()).type not in ("response.completed", "error"):
            pass
        return event

    with client.responses.connect() as connection:
        first = take_turn(connection).response
        second = take_turn(connection, previous_response_id=first.id).response
        assert (first.store, second.previous_response_id) == (False, first.id)
    with client.responses.connect() as connection:
        refused = take_turn(connection, previous_response_id=second.id)
        assert refused.error.code == "previous_response_not_found"
    assert not any(SAID in readable(value) for value in stored(zdr))


@pytest.mark.parametrize(
    "more",
    [
        {"store": True},
        {"background": True},
        {"previous_response_id": "resp_" + "0" * 32},
        {"input": [{"type": "item_reference", "id": f"msg_{'0' * 32}_0"}]},
    ],
)
def test_operations_that_need_storage_are_refused_under_zero_data_retention(
    zdr: LocalGateway, client: OpenAI, upstream: FakeOpenAI, more: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(**{"model": MODEL, "input": "Hello", **more})
    assert refused.value.code == "zdr_storage_conflict" and upstream.calls == []


def test_responses_stored_before_zero_data_retention_are_hidden_but_can_be_deleted(
    gateway: LocalGateway, client: OpenAI, http: httpx.Client
) -> None:
    provider = gateway.services.routing.catalogue.current().provider("openai")
    before = provider.data_policy.retention
    answer = client.responses.create(model=MODEL, input=SAID)
    keep_nothing(gateway)
    try:
        with pytest.raises(BadRequestError, match="zero data retention"):
            client.responses.retrieve(answer.id)
        client.responses.delete(answer.id)
    finally:
        object.__setattr__(provider.data_policy, "retention", before)


def test_a_background_response_made_before_zero_data_retention_is_hidden_but_can_be_deleted(
    gateway: LocalGateway, client: OpenAI
) -> None:
    provider = gateway.services.routing.catalogue.current().provider("openai")
    before = provider.data_policy.retention
    with client.responses.create(model=MODEL, input=SAID, background=True, stream=True) as events:
        ident = next(event.response.id for event in events if event.type == "response.completed")
    keep_nothing(gateway)
    try:
        for read in (client.responses.retrieve, client.responses.cancel):
            with pytest.raises(BadRequestError, match="zero data retention"):
                read(ident)
        with pytest.raises(BadRequestError, match="zero data retention"):
            client.responses.retrieve(ident, stream=True)
        client.responses.delete(ident)
    finally:
        object.__setattr__(provider.data_policy, "retention", before)


def test_kept_answers_of_idempotency_keys_and_of_the_cache_are_encrypted(
    gateway: LocalGateway, http: httpx.Client, upstream: FakeOpenAI
) -> None:
    services = gateway.services
    project = services.accounts.authentication.caller(gateway.key).project_id
    change = ProjectChange(cache_enabled=True, cache_ttl_s=600)
    update_project(services.store.database, services.store.control, project, change, actor="operator")
    upstream.script(Answer(SAID))
    for headers in ({"Idempotency-Key": "k-1"}, {"Idempotency-Key": "k-1"}, {}):
        answer = http.post(f"{gateway.url}/chat/completions", json=CHAT, headers=headers)
        assert SAID in answer.text
    assert answer.headers["x-llmgateway-cache"] == "HIT" and len(upstream.calls) == 1
    kept = stored(gateway)
    assert len(kept) >= 2 and not any(SAID in readable(value) for value in kept)


def test_plain_text_of_an_earlier_release_is_still_read(gateway: LocalGateway, http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "old"}
    first = http.post(f"{gateway.url}/chat/completions", json=CHAT, headers=headers)
    gateway.services.store.journal.flush(60)
    database = gateway.services.store.database

    def rewrite() -> None:
        ((value,),) = database.execute("SELECT value FROM document WHERE kind = 'idempotency'").fetchall()
        head, _, _ = bytes(value).partition(b"\n")
        plain = head + b"\n" + zlib.compress(first.content, 1)
        database.execute("UPDATE document SET value = ? WHERE kind = 'idempotency'", (plain,))

    database.write(rewrite)
    again = http.post(f"{gateway.url}/chat/completions", json=CHAT, headers=headers)
    assert again.content == first.content and again.headers["idempotent-replayed"] == "true"


def forbid(gateway: LocalGateway, kind: str, value: dict[str, Any]) -> None:
    services = gateway.services
    own = gateway.services.accounts.authentication.caller(gateway.key)
    place = ("organization", own.organization_id)
    add_rule(services.store.database, services.store.control, *place, kind, value, actor="test")


RULES = [
    ("deny_models", {"models": ["gpt-4o-mini"]}),
    ("deny_providers", {"providers": ["openai"]}),
    ("deny_ip_cidrs", {"ipCidrs": ["127.0.0.0/8"]}),
]


@pytest.mark.parametrize(("kind", "value"), RULES)
def test_an_answer_is_not_given_again_past_a_rule_that_was_added_since(
    gateway: LocalGateway, http: httpx.Client, kind: str, value: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": "k-1"}
    assert http.post(f"{gateway.url}/chat/completions", json=CHAT, headers=headers).status_code == 200
    forbid(gateway, kind, value)
    again = http.post(f"{gateway.url}/chat/completions", json=CHAT, headers=headers)
    assert (again.status_code, again.json()["error"]["code"]) == (403, "permission_denied"), again.text


@pytest.mark.parametrize(("kind", "value"), RULES)
def test_a_stored_response_is_not_shown_past_a_rule_that_was_added_since(
    gateway: LocalGateway, client: OpenAI, kind: str, value: dict[str, Any]
) -> None:
    answer = client.responses.create(model=MODEL, input=SAID)
    assert client.responses.retrieve(answer.id).id == answer.id
    forbid(gateway, kind, value)
    with pytest.raises(PermissionDeniedError):
        client.responses.retrieve(answer.id)
    with pytest.raises(PermissionDeniedError):
        client.responses.create(model="openai/gpt-4o", input="Go on", previous_response_id=answer.id)
    client.responses.delete(answer.id)
