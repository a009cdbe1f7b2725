"""Costs of translations, as executed lines: the fast paths stay fast when the formats grow."""

from collections.abc import Callable

import orjson
import pytest
from support.replies import MemoryReply
from support.steps import count_steps

from bench import lanes
from gateway.catalogue.entries import Mapping, Provider
from gateway.providers import upstream_calls
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Codec, Credential, StreamCodec, Target
from gateway.surfaces.openai import chat_reader, chat_schema, chat_writer

QUESTION = orjson.dumps(
    {
        "model": "m",
        "temperature": 0.7,
        "max_tokens": 200,
        "max_completion_tokens": 200,
        "stream": False,
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Say hello."},
        ],
    }
)
ANTHROPIC = AnthropicMessages()
GOOGLE = GoogleGenerate(lambda secret: secret)
OPENAI = OpenAIChat()


def target_of(protocol: str, model: str) -> Target:
    mapping = Mapping("acme", "m", model, reasoning=True, max_output=64_000)
    return Target(Provider("acme", "Acme", protocol), mapping, Credential("k"), "http://127.0.0.1:1/v1", trusted=True)


def warm(work: Callable[[], object]) -> int:
    """The steps of a second time: what is worked out once is no part of them."""
    work()
    return count_steps(work)


@pytest.mark.parametrize(
    ("codec", "target", "answer", "maximum"),
    [
        (ANTHROPIC, target_of("anthropic", "claude-haiku-4-5"), lanes.ANTHROPIC, 420),
        (GOOGLE, target_of("google", "gemini-2.5-flash-lite"), lanes.GOOGLE, 466),
    ],
)
def test_a_short_request_and_its_answer_are_translated_in_few_steps(
    codec: Codec, target: Target, answer: dict, maximum: int
) -> None:
    body = orjson.dumps(answer)

    def translate() -> None:
        request = chat_reader.read_chat(chat_schema.decode(QUESTION), QUESTION)
        codec.write(request, target)
        result = upstream_calls.read_answer(codec, MemoryReply(body, headers={}), relayed=False)
        chat_writer.write_choice(result.choices[0], 0)

    assert warm(translate) <= maximum


@pytest.mark.parametrize(
    ("codec", "stream", "relayed", "maximum"),
    [
        (OPENAI, lanes.OPENAI_STREAM, True, 10),
        (OPENAI, lanes.OPENAI_STREAM, False, 11),
        (ANTHROPIC, lanes.ANTHROPIC_STREAM, False, 18),
        (ANTHROPIC, lanes.ANTHROPIC_STREAM, True, 40),
        (GOOGLE, lanes.GOOGLE_STREAM, False, 17),
    ],
)
def test_a_stream_is_read_in_few_steps_a_piece(codec: StreamCodec, stream: bytes, relayed: bool, maximum: int) -> None:
    steps = warm(lambda: list(codec.read_stream(MemoryReply(stream), relayed)))
    assert steps / lanes.EVENTS <= maximum  # the beginning and the end of the stream included
