"""Replay of guardrails over retained requests, through the management API of a whole gateway."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway, local_gateway
from support.signed_in_owner import PASSWORD, SignedInOwner

from gateway.configuration.settings import Settings
from gateway.engine import guardrail_replay

MODEL = "openai/gpt-4o-mini"
SYSTEM, PROMPT, ARGUMENT, RESULT, ANSWER = (f"{name}.person@mail.test" for name in "abcde")


@pytest.fixture(params=["sqlite", "postgresql"])
def gateway(
    request: pytest.FixtureRequest, settings: Callable[..., Settings], upstream_environment: dict[str, str]
) -> Iterator[LocalGateway]:
    environment = {**upstream_environment, "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    if request.param == "postgresql":
        environment |= {
            "DATABASE_URL": request.getfixturevalue("postgresql_url"),
            "GATEWAY_API_KEY_HASH_SECRET": "a hash secret of the tests",
            "GATEWAY_ENCRYPTION_KEY": "an encryption key of the tests",
        }
    with local_gateway(settings, **environment) as running:
        yield running


@pytest.fixture
def owner(gateway: LocalGateway) -> SignedInOwner:
    """The owner of an organization with a project that retains payloads."""
    owner = SignedInOwner(gateway.address)
    organization = owner("GET", "/orgs")["organizations"][0]["id"]
    project = owner("GET", f"/orgs/{organization}/projects")["projects"][0]["id"]
    owner("PATCH", f"/projects/{project}", {"retention": "retain"})
    return owner


def add_rule(owner: SignedInOwner, **members: Any) -> str:
    organization = owner("GET", "/orgs")["organizations"][0]["id"]
    body = {"name": "Mail", "action": "block", "detectors": ["email"], "status": "inactive", **members}
    added = owner("POST", f"/orgs/{organization}/guardrails", body)["guardrail"]
    return f"/orgs/{organization}/guardrails/{added['id']}"


def converse(gateway: LocalGateway) -> None:
    """Send one request with an address in every place, and one without any."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "mail", "arguments": json.dumps({"to": ARGUMENT})},
    }
    messages = [
        {"role": "system", "content": f"You work for {SYSTEM}."},
        {"role": "user", "content": [{"type": "text", "text": f"Write to {PROMPT}."}]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": f"sent to {RESULT}"},
    ]
    for conversation in (messages, [{"role": "user", "content": "Hello"}]):
        headers = {"Authorization": f"Bearer {gateway.key}"}
        body = {"model": MODEL, "messages": conversation}
        answer = httpx.post(f"{gateway.address}/v1/chat/completions", json=body, headers=headers, timeout=20)
        assert answer.status_code == 200, answer.text
    gateway.services.store.journal.flush(60)


def test_replay_counts_values_by_place_and_shows_them_masked(
    gateway: LocalGateway, upstream: FakeOpenAI, owner: SignedInOwner
) -> None:
    upstream.script(Answer(f"I wrote to {ANSWER}."), Answer("Hello!"))
    converse(gateway)
    rule = add_rule(owner)
    replay = owner("POST", f"{rule}/replay", {"days": 7})["replay"]
    assert (replay["requests"], replay["found"], replay["unread"], replay["complete"]) == (2, 1, 0, True)
    found = {(count["kind"], count["place"]): (count["requests"], count["values"]) for count in replay["counts"]}
    assert found == {("email", place): (1, 1) for place in ("system", "prompt", "tool_arguments", "tool_results")}
    assert {example["masked"] for example in replay["examples"]} == {
        f"{value[0]}…{value[-1]} ({len(value)} characters)" for value in (SYSTEM, PROMPT, ARGUMENT, RESULT)
    }
    assert not any(value in json.dumps(replay) for value in (SYSTEM, PROMPT, ARGUMENT, RESULT, ANSWER))
    assert {example["logId"] for example in replay["examples"]} <= {
        info["id"] for info in owner("GET", "/logs?limit=10")["logs"]
    }

    only_answers = add_rule(owner, places=["answer"])
    replay = owner("POST", f"{only_answers}/replay", {"days": 7})["replay"]
    assert [(count["place"], count["values"]) for count in replay["counts"]] == [("answer", 1)]


def test_replay_reads_requests_of_the_rules_models_only_and_respects_exceptions(
    gateway: LocalGateway, upstream: FakeOpenAI, owner: SignedInOwner
) -> None:
    upstream.script(Answer("ok"), Answer("ok"))
    converse(gateway)
    other = add_rule(owner, models=["claude-*"])
    assert owner("POST", f"{other}/replay", {})["replay"]["requests"] == 0
    own = add_rule(owner, models=["gpt-4o*"])
    for value in (SYSTEM, PROMPT, ARGUMENT):
        owner("POST", f"{own}/exceptions", {"value": value})
    replay = owner("POST", f"{own}/replay", {})["replay"]
    assert [(count["place"], count["values"]) for count in replay["counts"]] == [("tool_results", 1)]
    owner("POST", f"{own}/exceptions", {"fingerprint": replay["examples"][0]["fingerprint"]})
    assert owner("POST", f"{own}/replay", {})["replay"]["counts"] == []


def test_replay_that_does_not_read_all_requests_says_so(
    gateway: LocalGateway, upstream: FakeOpenAI, owner: SignedInOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardrail_replay, "MAX_REQUESTS", 1)
    upstream.script(Answer("ok"), Answer("ok"))
    converse(gateway)
    replay = owner("POST", f"{add_rule(owner)}/replay", {})["replay"]
    assert (replay["requests"], replay["complete"]) == (1, False)


def test_developer_cannot_replay_a_guardrail(gateway: LocalGateway, owner: SignedInOwner) -> None:
    rule = add_rule(owner)
    organization = owner("GET", "/orgs")["organizations"][0]["id"]
    developer = owner.add_member(organization, "dev@mail.test", "developer")
    refused = developer.web.post(f"{gateway.address}{rule}/replay", json={}, timeout=20)
    assert refused.status_code == 403
