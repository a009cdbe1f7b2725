"""Response healing through the whole gateway, with the official SDK."""

import json

import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI

MODEL = "openai/gpt-4o-mini"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASK = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Answer in JSON."}],
    "response_format": {"type": "json_object"},
    "extra_body": {"plugins": [{"id": "response-healing"}]},
}
BROKEN = "Here you are:\n```json\n{'city': 'Oslo',}\n```"
STRATEGIES = ["markdown_extraction", "syntax_fix", "combined_strategies"]


def test_a_whole_answer_is_healed_and_its_metadata_says_how(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(BROKEN))
    answer = client.chat.completions.create(**ASK)
    assert json.loads(answer.choices[0].message.content) == {"city": "Oslo"}
    assert answer.metadata["healing"] == STRATEGIES


def test_a_stream_brings_healed_text_in_one_piece(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(BROKEN, piece=3, prompt=10, completion=5))
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert pieces == ['{"city":"Oslo"}']
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].metadata["healing"] == STRATEGIES
    assert chunks[-1].usage.total_tokens == 15


def test_the_upstream_request_does_not_change(client: OpenAI, upstream: FakeOpenAI) -> None:
    client.chat.completions.create(**ASK)
    client.chat.completions.create(**{**ASK, "extra_body": {}})
    assert upstream.calls[0].body == upstream.calls[1].body


@pytest.mark.parametrize("stream", [False, True])
def test_without_the_plugin_the_text_comes_as_it_was_written(
    client: OpenAI, upstream: FakeOpenAI, stream: bool
) -> None:
    upstream.script(Answer(BROKEN))
    answer = client.chat.completions.create(**{**ASK, "extra_body": {}, "stream": stream})
    text = "".join(c.choices[0].delta.content or "" for c in answer) if stream else answer.choices[0].message.content
    assert text == BROKEN


def test_repairs_that_violate_the_callers_schema_are_not_made(client: OpenAI, upstream: FakeOpenAI) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    upstream.script(Answer("{'town': 'Oslo'}"), Answer("{'city': 'Oslo'}"))
    left = client.chat.completions.create(**{**ASK, "response_format": response_format})
    healed = client.chat.completions.create(**{**ASK, "response_format": response_format})
    assert (left.choices[0].message.content, "healing" in left.metadata) == ("{'town': 'Oslo'}", False)
    assert healed.choices[0].message.content == '{"city":"Oslo"}'
