"""Streams with large prompts: once an answer has begun nothing holds the prompt, which makes room for others."""

import http.client
import json

import pytest
from fakes.openai import Answer, FakeOpenAI

STREAMS = 10
PROMPT = "a few words of a long prompt " * 24_000  # 700 KB, which count three times until the answer begins
MESSAGES = [{"role": "user", "content": PROMPT}]
BODIES = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 100},
    "/v1/responses": {"input": PROMPT, "store": False},
}


@pytest.fixture
def small(process):
    """A worker with room for the prompts of three requests of an organization."""
    with FakeOpenAI() as upstream:
        yield (
            process(
                LLM_OPENAI_API_KEY="sk-upstream",
                LLM_OPENAI_BASE_URL=upstream.url,
                LLM_OPENAI_USE_RESPONSES_API="false",
                GATEWAY_SERVER_BODIES_MB="16",
                GATEWAY_SERVER_ORGANIZATION_BODIES_MB="8",
            ),
            upstream,
        )


@pytest.mark.parametrize("path", BODIES)
def test_streams_that_have_begun_leave_room_for_other_large_prompts(small, path):
    gateway, upstream = small
    upstream.script(*[Answer("word " * 100, gap_s=1.0)] * STREAMS)
    content = json.dumps({"model": "openai/gpt-4.1", "stream": True, **BODIES[path]})
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    callers = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60) for _ in range(STREAMS)]
    statuses = []
    for caller in callers:
        caller.request("POST", path, content, headers)
        answer = caller.getresponse()
        while answer.status == 200 and b"word" not in answer.readline():
            continue
        statuses.append(answer.status)
    for caller in callers:
        caller.close()
    assert statuses == [200] * STREAMS
