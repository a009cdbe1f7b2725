"""POST /v1/completions and /v1/fim/completions with the official clients, by a chat and by providers that fill gaps
themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import mistralai.client
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.server import FakeServer, headers_of, send_json
from openai import APIError, BadRequestError, OpenAI
from support.gateways import LocalGateway
from support.shared import Share, usage_of

MODEL = "openai/gpt-4o-mini"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class Filler(FakeServer):
    """A service that fills gaps: answers of text, or of chat form at an address that ends so."""

    base = "/v1"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        body, path = json.loads(environ["wsgi.input"].read()), environ["PATH_INFO"]
        self.calls.append((path, headers_of(environ), body))
        shape = {"message": {"role": "assistant", "content": "a, b"}} if "/fim/" in path else {"text": "a, b"}
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": "stop", **shape}
            return send_json(start, 200, {"id": "x", "model": body["model"], "choices": [choice], "usage": USAGE})
        start("200 OK", [("Content-Type", "text/event-stream")])
        pieces = [{"delta": {"content": p}} if "/fim/" in path else {"text": p} for p in ("a, ", "b")]
        chunks = [{"choices": [{"index": 0, "finish_reason": None, **piece}]} for piece in pieces]
        chunks.append({"choices": [{"index": 0, "finish_reason": "stop", "text": "", "delta": {}}], "usage": USAGE})
        return iter(
            [b"data: " + json.dumps({"id": "x", **chunk}).encode() + b"\n\n" for chunk in chunks]
            + [b"data: [DONE]\n\n"]
        )


def test_a_chat_model_goes_on_with_a_text(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("there was a gateway."))
    answer = client.completions.create(model=MODEL, prompt="Once ", max_tokens=20, stop=["\n\n"], echo=True)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.choices[0].text == "Once there was a gateway." and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens > 0 and answer.usage.model_extra["cost"] > 0
    sent = upstream.calls[-1].body
    assert sent["messages"] == [{"role": "user", "content": "Once "}]
    assert (sent["max_completion_tokens"], sent["stop"]) == (20, ["\n\n"])


def test_a_chat_model_fills_a_gap(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("```python\na, b\n```"), Answer("```python\na, b\n```", piece=3))
    body = {"model": MODEL, "prompt": "def f(", "suffix": "):", "max_tokens": 50}
    assert client.completions.create(**body).choices[0].text == "a, b"
    chunks = list(client.completions.create(**body, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "a, b"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == ["stop", None]
    assert chunks[-1].usage.completion_tokens > 0


@pytest.fixture
def filler(share: Share) -> Filler:
    return share.fake(Filler)


@pytest.fixture
def filling(share: Share, filler: Filler) -> LocalGateway:
    keys = {"LLM_DEEPSEEK_API_KEY": "sk-d", "LLM_MISTRAL_API_KEY": "sk-m"}
    urls = {"LLM_DEEPSEEK_BASE_URL": filler.url, "LLM_MISTRAL_BASE_URL": filler.url}
    return share.gateway(keys | urls)


@pytest.mark.parametrize(
    ("model", "path"),
    [("deepseek/deepseek-v4.1-flash", "/beta/completions"), ("mistral/codestral-latest", "/v1/fim/completions")],
)
def test_a_provider_that_fills_gaps_gets_the_parameter_for_it(
    filling: LocalGateway, filler: Filler, model: str, path: str
) -> None:
    client = OpenAI(base_url=filling.url, api_key=filling.key, max_retries=0)
    request = {"model": model, "prompt": "def f(", "suffix": "):", "max_tokens": 50, "temperature": 0.2}
    whole = client.completions.create(**request)
    assert (whole.choices[0].text, whole.usage.completion_tokens) == ("a, b", 3)
    chunks = list(client.completions.create(**request, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "a, b"
    assert chunks[-1].usage.completion_tokens == 3 and chunks[-1].usage.model_extra["cost"] > 0
    assert [call[0] for call in filler.calls] == [path, path]
    body = filler.calls[0][2]
    assert (body["prompt"], body["suffix"], body["max_tokens"]) == ("def f(", "):", 50)
    assert "messages" not in body


@contextmanager
def mistral_client(gateway: LocalGateway) -> Iterator[mistralai.client.Mistral]:
    with (
        httpx.Client(timeout=60) as http,
        mistralai.client.Mistral(api_key=gateway.key, server_url=gateway.address, client=http) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("model", "path"),
    [("deepseek/deepseek-v4.1-flash", "/beta/completions"), ("codestral-latest", "/v1/fim/completions")],
)
def test_mistrals_client_fills_a_gap_at_any_provider_that_does(
    filling: LocalGateway, filler: Filler, model: str, path: str
) -> None:
    sampling = {"max_tokens": 50, "temperature": 0.2, "top_p": 0.5}
    request = {"model": model, "prompt": "def f(", "suffix": "):", "stop": "\n\n", **sampling}
    with mistral_client(filling) as client:
        whole = client.fim.complete(**request, metadata={"editor": "vim"})
        assert (whole.choices[0].message.content, whole.usage.completion_tokens) == ("a, b", 3)
        with client.fim.stream(**request) as events:
            chunks = [event.data for event in events]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "a, b"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2] == "stop"
    assert chunks[-1].usage.completion_tokens == 3
    assert [call[0] for call in filler.calls] == [path, path]
    body = filler.calls[0][2]
    assert (body["prompt"], body["suffix"], body["stop"]) == ("def f(", "):", ["\n\n"])
    assert sampling.items() <= body.items()
    rows = usage_of(filling)
    assert [(row.input, row.output) for row in rows] == [(7, 3)] * 2 and rows[0].cost_nusd == rows[1].cost_nusd > 0


def test_mistrals_client_fills_a_gap_with_a_chat_model(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    fenced = "```python\na, b\n```"
    upstream.script(Answer(fenced), Answer(fenced, piece=3), Answer(fenced))
    request = {"model": MODEL, "prompt": "def f(", "suffix": "):"}
    with mistral_client(gateway) as client:
        assert client.fim.complete(**request).choices[0].message.content == "a, b"
        with client.fim.stream(**request) as events:
            assert "".join(event.data.choices[0].delta.content or "" for event in events) == "a, b"
        # Without a suffix the text is continued, and a fence belongs to it.
        assert client.fim.complete(model=MODEL, prompt="def f(").choices[0].message.content == fenced
        with pytest.raises(mistralai.client.errors.SDKError) as caught:
            client.fim.complete(**request, max_tokens=-1)
    assert "max_tokens" in str(caught.value) and len(upstream.calls) == 3


def test_several_prompts_are_answered_in_one_call_and_billed_exactly(client: OpenAI, upstream: FakeOpenAI) -> None:
    completion = client.completions.create(model=MODEL, prompt="a")
    prompts = ["a", "b", "c", "d", "e", "f"]
    upstream.calls.clear()
    answer = client.completions.create(model=MODEL, prompt=prompts, echo=True)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text[0] for choice in answer.choices] == prompts
    sent = [call.body["messages"][0]["content"] for call in upstream.calls]
    assert sorted(sent) == prompts and sent[0] == "a"
    assert answer.usage.completion_tokens == 6 * completion.usage.completion_tokens
    assert round(answer.usage.cost * 1e9) == 6 * round(completion.usage.cost * 1e9)
    assert len(set(answer.metadata["log_ids"])) == 6 and answer.metadata["log_ids"][0] == answer.metadata["log_id"]


def test_several_prompts_are_streamed_one_after_the_other(client: OpenAI, upstream: FakeOpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt=["a", "b"])
    chunks = list(client.completions.create(model=MODEL, prompt=["a", "b"], stream=True))
    texts = {0: "", 1: ""}
    for chunk in chunks[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {choice.index: choice.text for choice in whole.choices} and len({c.id for c in chunks}) == 1
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert round(chunks[-1].usage.cost * 1e9) == round(whole.usage.cost * 1e9)


def test_a_prompt_that_fails_is_the_error_of_the_call(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("fine"), Answer(status=400))
    with pytest.raises(BadRequestError):
        client.completions.create(model=MODEL, prompt=["a", "b"])
    upstream.script(Answer("fine"), Answer(status=400))
    with pytest.raises(APIError):
        list(client.completions.create(model=MODEL, prompt=["a", "b"], stream=True))


def test_invalid_requests_are_reported_and_cost_nothing(client: OpenAI, upstream: FakeOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[1, 2])
    assert caught.value.param == "prompt" and not upstream.calls
