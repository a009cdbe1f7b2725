"""Writes chat completions as `chat.completion` and `chat.completion.chunk` objects.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object".
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import orjson

from gateway.providers.sandbox.counting import count, count_slices, slice_text
from gateway.providers.sandbox.directives import Directives
from gateway.providers.sandbox.generated_answers import SandboxAnswer, ToolUse, answer
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.prompt_text import Prompt, read_prompt
from gateway.providers.sandbox.response import Response

CREATED = 1_735_689_600  # fixed, so that the same request gets the same answer
FINGERPRINT = "fp_sandbox"


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body, as a stream when the body requests one."""
    prompt = read_prompt(body)
    answers = answer(prompt, persona.voice, directives)
    if directives.no_usage:
        usage = None
    else:
        usage = write_usage(prompt, answers, directives.cached)
    if prompt.stream:
        deltas = _interleave([_deltas(choice, directives.chunk) for choice in answers])
        frames = tuple(_frames(prompt, deltas, usage, directives.no_choices))
        return Response(frames=frames, streamed=True)
    whole = write_completion(prompt, answers, usage)
    bare = orjson.dumps({**whole, "choices": []})
    pieces = sum(_count_deltas(choice, directives.chunk) for choice in answers)
    return Response(orjson.dumps(whole), pieces=pieces, bare=bare)


def write_completion(
    prompt: Prompt, answers: tuple[SandboxAnswer, ...], usage: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a `chat.completion` object; `usage` is left out when None."""
    choices = [
        {"index": index, "message": _message(choice), "logprobs": None, "finish_reason": choice.finish}
        for index, choice in enumerate(answers)
    ]
    whole = {**_head(prompt, "chat.completion"), "choices": choices}
    if usage:
        return {**whole, "usage": usage}
    return whole


def write_usage(prompt: Prompt, answers: tuple[SandboxAnswer, ...], cached: int) -> dict[str, Any]:
    """Return the `usage` object by the sandbox's token rule; `cached` is capped by the prompt's tokens."""
    completion = sum(choice.tokens for choice in answers)
    details: dict[str, int] = {"cached_tokens": min(cached, prompt.tokens)}
    details["audio_tokens"] = prompt.extra.get("audio", 0)
    return {
        "prompt_tokens": prompt.tokens,
        "completion_tokens": completion,
        "total_tokens": prompt.tokens + completion,
        "prompt_tokens_details": details,
        "completion_tokens_details": {
            "reasoning_tokens": sum(count(choice.reasoning) for choice in answers),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(prompt: Prompt, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{prompt.digest[:32]}",
        "object": kind,
        "created": CREATED,
        "model": prompt.model,
        "service_tier": prompt.service_tier,
        "system_fingerprint": FINGERPRINT,
    }


def _message(choice: SandboxAnswer) -> dict[str, Any]:
    without_text = not choice.text and (choice.uses or choice.refusal)
    message: dict[str, Any] = {"role": "assistant", "content": None if without_text else choice.text}
    message["refusal"] = choice.refusal or None
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.uses:
        message["tool_calls"] = [_write_use(use) for use in choice.uses]
    return message


def _write_use(use: ToolUse) -> dict[str, Any]:
    if use.custom:
        return {"id": use.id, "type": "custom", "custom": {"name": use.name, "input": use.arguments}}
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}


Delta = tuple[int, dict[str, Any], str | None]  # choice, delta, finish reason


def _interleave(streams: list[list[tuple[dict[str, Any], str | None]]]) -> list[Delta]:
    """Return the deltas of all choices alternately, as parallel sampling sends them."""
    rounds = zip_longest(*streams)
    return [(index, *pair) for pairs in rounds for index, pair in enumerate(pairs) if pair is not None]


def _deltas(choice: SandboxAnswer, size: int) -> list[tuple[dict[str, Any], str | None]]:
    """Return an opening delta, pieces of at most `size` tokens, and a closing delta with the finish reason."""
    opening = {"role": "assistant", "content": None if choice.uses and not choice.text else "", "refusal": None}
    deltas: list[dict[str, Any]] = [opening]
    for name, text in (
        ("reasoning_content", choice.reasoning),
        ("refusal", choice.refusal),
        ("content", choice.text),
    ):
        deltas.extend({name: piece} for piece in slice_text(text, size))
    for place, use in enumerate(choice.uses):
        deltas.extend({"tool_calls": [part]} for part in _use_deltas(use, place, size))
    return [*((delta, None) for delta in deltas), ({}, choice.finish)]


def _count_deltas(choice: SandboxAnswer, size: int) -> int:
    """Return the number of deltas that `_deltas` makes."""
    texts = (choice.reasoning, choice.refusal, choice.text, *(use.arguments for use in choice.uses))
    return 2 + len(choice.uses) + sum(count_slices(text, size) for text in texts)


def _use_deltas(use: ToolUse, place: int, size: int) -> Iterator[dict[str, Any]]:
    if use.custom:
        kind, field = ("custom", "input")
    else:
        kind, field = ("function", "arguments")
    yield {"index": place, "id": use.id, "type": kind, kind: {"name": use.name, field: ""}}
    for piece in slice_text(use.arguments, size):
        yield {"index": place, kind: {field: piece}}


def _frames(prompt: Prompt, deltas: list[Delta], usage: dict[str, Any] | None, hollow: bool) -> Iterator[bytes]:
    """Yield server-sent events without the closing mark. With `include_usage` every chunk has `usage`, which is null
    except in the last chunk."""
    head = _head(prompt, "chat.completion.chunk")
    tail: dict[str, Any] = {"usage": None} if prompt.include_usage else {}
    for index, delta, finish in [] if hollow else deltas:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield write_frame({**head, "choices": [choice], **tail})
    if prompt.include_usage and usage:
        yield write_frame({**head, "choices": [], "usage": usage})


def write_frame(value: dict[str, Any]) -> bytes:
    """Return a server-sent event with a JSON value."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
