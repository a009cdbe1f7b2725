"""The response cache through the whole gateway: same answer, no cost, one upstream call, never another project's."""

import re
import sqlite3
import time
from itertools import count
from typing import Any

import gevent
import httpx
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share
from support.spending import until

from gateway.accounts.keys import Draft, create
from gateway.accounts.projects import ProjectChange, create_project, update_project
from gateway.accounts.rules import add_rule
from gateway.metering.models import CACHED
from gateway.metering.usage_table import find

MODEL = "openai/gpt-4o-mini"
# A Redis that does not answer in time on a busy machine is left out for a second, in which nothing is cached.
PATIENT = {"GATEWAY_REDIS_TIMEOUT_S": "30"}
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(params=["documents", "redis"])
def cached(request, share: Share, upstream: FakeOpenAI) -> LocalGateway:
    """A gateway to a project that caches, in the database and in redis."""
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
    if request.param == "redis":
        environment |= {"REDIS_URL": request.getfixturevalue("redis_url")} | PATIENT
    running = share.gateway(environment)
    switch(running, running.project_id)
    return running


def switch(gateway: LocalGateway, project_id: str, **more: Any) -> None:
    services = gateway.services
    change = ProjectChange(cache_enabled=True, cache_ttl_s=60, **more)
    update_project(services.store.database, services.store.control, project_id, change, actor="test")


def raw(gateway: LocalGateway, key: str = "", messages: list | None = None, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key or gateway.key}", **more.pop("headers", {})}
    body = {"model": MODEL, "messages": messages or HELLO, **more}
    with httpx.Client(timeout=60) as http:
        return http.post(f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=20)


def unique() -> list[dict]:
    """A prompt that no other test of this session's redis has used."""
    return [{"role": "user", "content": f"Hello at {time.time_ns()}"}]


def streamed(gateway: LocalGateway, messages: list) -> tuple[str, Any]:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    chunks = list(client.chat.completions.create(model=MODEL, messages=messages, stream=True))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks), chunks[-1]


def test_a_repeated_request_costs_nothing_and_shows_so(cached, upstream):
    messages = unique()
    first, second = (raw(cached, messages=messages) for _ in range(2))
    first_body, second_body = first.json(), second.json()
    assert len(upstream.calls) == 1
    assert (second_body["id"], second_body["choices"], second_body["usage"]["total_tokens"]) == (
        first_body["id"],
        first_body["choices"],
        first_body["usage"]["total_tokens"],
    )
    assert first_body["usage"]["cost"] > 0 and second_body["usage"]["cost"] == 0
    assert second_body["metadata"]["cached"] is True and "cached" not in first_body["metadata"]
    assert second.headers["x-llmgateway-cache"] == "HIT" and "x-llmgateway-cache" not in first.headers
    assert second_body["metadata"]["log_id"] != first_body["metadata"]["log_id"]


def test_a_replay_has_its_own_row_at_no_cost(cached):
    messages = unique()
    raw(cached, messages=messages)
    log_id = raw(cached, messages=messages).json()["metadata"]["log_id"]
    (row,) = find(cached.services.store.database, log_id)
    assert row.flags & CACHED and row.cost_nusd == 0 and row.output > 0


def test_a_stream_is_given_again_chunk_by_chunk(cached, upstream):
    upstream.script(Answer("Good day to you all.", piece=4, gap_s=0.02))
    messages = unique()
    text, tail = streamed(cached, messages)
    again, second_chunk = streamed(cached, messages)
    assert again == text == "Good day to you all." and len(upstream.calls) == 1
    assert second_chunk.metadata["cached"] is True and second_chunk.usage.cost == 0
    assert (second_chunk.id, second_chunk.usage.total_tokens) == (tail.id, tail.usage.total_tokens)


def test_no_cache_neither_reads_nor_writes(cached, upstream):
    messages = unique()
    for _ in range(2):
        raw(cached, messages=messages, headers={"x-no-cache": "true"})
    raw(cached, messages=messages)
    raw(cached, messages=messages, headers={"x-no-cache": "true"})
    assert len(upstream.calls) == 4


@pytest.mark.parametrize(
    "more", [{"temperature": 0.5}, {"max_tokens": 7}, {"n": 2}, {"stream": True}, {"prompt_cache_key": "k"}]
)
def test_options_that_shape_the_response_are_part_of_the_cache_key(cached, upstream, more):
    messages = unique()
    upstream.script(Answer("a"), Answer("b", n=more.get("n", 1)))
    raw(cached, messages=messages)
    assert raw(cached, messages=messages, **more).status_code == 200
    assert len(upstream.calls) == 2


@pytest.mark.parametrize("answer", [Answer(status=500), Answer("Half an ans", cut=1100)])
def test_a_failed_or_broken_answer_is_not_kept(cached, upstream, answer):
    messages = unique()
    upstream.script(answer)
    with pytest.raises(openai.APIError):
        streamed(cached, messages)
    assert streamed(cached, messages)[0] == "Hello." and len(upstream.calls) == 2


def test_two_projects_never_share_an_answer(cached, upstream):
    services = cached.services
    other_project = create_project(
        services.store.database, services.store.control, cached.organization_id, "Other", actor="test"
    )
    switch(cached, other_project.id)
    key = new_key(cached, other_project.id)
    messages = unique()
    assert [raw(cached, one, messages).status_code for one in (cached.key, key, cached.key, key)] == [200] * 4
    assert len(upstream.calls) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_progress_is_shared_only_with_callers_that_may_use_each_of_its_models(
    cached: LocalGateway, upstream: FakeOpenAI, stream: bool
) -> None:
    services = cached.services
    stores = (services.store.database, services.store.control)
    narrow = new_key(cached, cached.project_id)
    key_id = services.accounts.authentication.caller(narrow).key_id
    add_rule(*stores, "key", key_id, "deny_models", {"models": ["gpt-4o"]}, actor="test")
    more = {"models": ["openai/gpt-4o"], "stream": stream}
    messages = unique()
    upstream.script(Answer(status=500), Answer("dear", piece=100, silence_s=1.0), Answer("cheap"))
    first = gevent.spawn(raw, cached, messages=messages, **more)
    assert until(lambda: len(upstream.calls) == 2)
    second = raw(cached, narrow, messages, **more)
    assert [call.body["model"] for call in upstream.calls] == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini"]
    assert "dear" not in second.text and "dear" in first.get(timeout=60).text


def new_key(gateway: LocalGateway, project_id: str) -> str:
    services = gateway.services
    member = services.accounts.authentication.caller(gateway.key).member_id
    draft = Draft(project_id, member, "Second")
    return create(
        services.store.database, services.store.control, services.store.secrets.hash_keys, draft, actor="test"
    ).token


def test_identical_requests_at_once_make_one_upstream_call(cached, upstream):
    upstream.script(Answer("Once.", silence_s=0.3))
    messages = unique()
    jobs = [gevent.spawn(raw, cached, messages=messages) for _ in range(8)]
    gevent.joinall(jobs, timeout=60)
    texts = {job.value.json()["choices"][0]["message"]["content"] for job in jobs}
    assert texts == {"Once."} and len(upstream.calls) == 1
    assert sum(job.value.json()["usage"]["cost"] > 0 for job in jobs) == 1


def test_followers_of_a_stream_get_it_as_it_comes(cached, upstream):
    upstream.script(Answer("One two three four", piece=3, gap_s=0.05, silence_s=0.2))
    messages = unique()
    jobs = [gevent.spawn(streamed, cached, messages) for _ in range(5)]
    gevent.joinall(jobs, timeout=60)
    assert {job.value[0] for job in jobs} == {"One two three four"} and len(upstream.calls) == 1
    assert len({job.value[1].id for job in jobs}) == 1


def test_the_first_caller_can_hang_up_and_the_others_read_on(cached, upstream):
    upstream.script(Answer("One two three four five six", piece=3, gap_s=0.05))
    messages = unique()
    client = OpenAI(base_url=cached.url, api_key=cached.key, max_retries=0)
    leader = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    next(iter(leader))
    follower = gevent.spawn(streamed, cached, messages)
    gevent.sleep(0.1)
    leader.close()
    assert follower.get(timeout=60)[0] == "One two three four five six" and len(upstream.calls) == 1


def test_when_all_hang_up_the_upstream_call_ends(cached, upstream):
    upstream.script(Answer("word " * 400, piece=3, gap_s=0.05))
    client = OpenAI(base_url=cached.url, api_key=cached.key, max_retries=0)
    stream = client.chat.completions.create(model=MODEL, messages=unique(), stream=True)
    next(iter(stream))
    stream.close()
    assert until(lambda: upstream.calls[0].hung_up)


def test_requests_that_waited_for_a_failed_response_send_their_own(cached, upstream):
    upstream.script(Answer(status=500, silence_s=0.3))
    messages = unique()
    jobs = [gevent.spawn(raw, cached, messages=messages) for _ in range(3)]
    gevent.joinall(jobs, timeout=60)
    assert sorted(job.value.status_code for job in jobs) == [200, 200, 502]


def test_four_workers_make_one_upstream_call_where_redis_is(process, upstream, redis_url):
    upstream.script(Answer("Once.", silence_s=0.5))
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
    gateway = process(workers=4, REDIS_URL=redis_url, **PATIENT, **environment)
    with sqlite3.connect(gateway.data / "gateway.db", timeout=10) as database:
        database.execute("UPDATE project SET cache_enabled = 1")
        database.execute("UPDATE control SET version = version + 1")
    gevent.sleep(1.2)
    body = {"model": MODEL, "messages": unique()}
    jobs = [gevent.spawn(gateway.post, "/v1/chat/completions", body) for _ in range(12)]
    gevent.joinall(jobs, timeout=60)
    assert {job.value[1]["choices"][0]["message"]["content"] for job in jobs} == {"Once."}
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_replayed_response_is_stored_under_a_new_id(cached, stream: bool) -> None:
    text = unique()[0]["content"]
    headers = {"Authorization": f"Bearer {cached.key}"}
    with httpx.Client(base_url=cached.url, headers=headers, timeout=20) as http:

        def create_response() -> tuple[str, str]:
            answer = http.post("/responses", json={"model": MODEL, "input": text, "stream": stream})
            assert answer.status_code == 200, answer.text
            return answer.headers.get("x-llmgateway-cache", ""), re.findall(r"resp_[0-9a-f]{32}", answer.text)[-1]

        (_, first), (hit, second), (again, third) = create_response(), create_response(), create_response()
        assert (hit, again) == ("HIT", "HIT") and len({first, second, third}) == 3
        for ident in (first, second, third):
            assert http.get(f"/responses/{ident}").json()["id"] == ident


LONG = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}] * 8000}]


def post(gateway: LocalGateway, body: dict) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    return httpx.post(f"{gateway.url}/responses", json=body, headers=headers, timeout=60)


def respond(gateway: LocalGateway, previous: str, text: str) -> httpx.Response:
    body = {"model": MODEL, "input": text, "previous_response_id": previous}
    return post(gateway, body)


def test_a_long_conversation_in_the_cache_is_answered_without_credits(cached, upstream):
    ident = post(cached, {"model": MODEL, "input": LONG}).json()["id"]
    assert respond(cached, ident, "More").status_code == 200
    ledger = cached.services.billing.ledger
    organization = cached.services.accounts.authentication.caller(cached.key).organization_id
    ledger.post(organization, "adjustment", -ledger.balance(organization).balance_nusd, f"all of {organization}")
    # Another question each time, because the first ones may still be paid, and are in the cache then.
    numbers = count()
    assert until(lambda: respond(cached, ident, f"Other {next(numbers)}").status_code == 402)
    calls = len(upstream.calls)
    assert respond(cached, ident, "More").headers["x-llmgateway-cache"] == "HIT"
    # Another one is allowed every two seconds, so a slow machine needs more of them.
    refused = until(lambda: respond(cached, ident, "More").status_code == 402)
    assert refused, "it is read a few times only"
    assert len(upstream.calls) == calls
