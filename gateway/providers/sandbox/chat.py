"""Writes chat completions as `chat.completion` and `chat.completion.chunk` objects.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object".
"""

import hashlib
from collections.abc import Iterator
from itertools import repeat, zip_longest
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from gateway.providers.sandbox.directives import MAX_TOKENS, Directives, Persona, Voice
from gateway.providers.sandbox.instances import write_instance
from gateway.providers.sandbox.prompt_text import Prompt, Tool, read_prompt
from gateway.providers.sandbox.prose import clip, count, count_slices, fill, slice_text, write_answer, write_thoughts
from gateway.providers.sandbox.response import Response, refuse

# Generates the answer of a sandbox model to a prompt.

MAX_SEARCHED = 100_000  # characters of a prompt that are searched for names of tools
REFUSAL = "The sandbox refuses this, as the directive requested."
EFFORT_TOKENS = {"none": 0, "minimal": 16, "low": 32, "": 64, "medium": 64, "high": 128, "xhigh": 256, "max": 512}


class ToolUse(Struct, frozen=True):
    """A tool call in an answer; `arguments` is JSON, or free text for a custom tool."""

    id: str
    name: str
    arguments: str
    custom: bool = False

    @property
    def tokens(self) -> int:
        return count(self.name) + count(self.arguments)


class SandboxAnswer(Struct, frozen=True):
    """A choice of an answer; `finish` is the wire format's finish reason."""

    text: str = ""
    reasoning: str = ""
    uses: tuple[ToolUse, ...] = ()
    refusal: str = ""
    finish: str = "stop"

    @property
    def tokens(self) -> int:
        """All output tokens, including reasoning."""
        texts = count(self.text) + count(self.reasoning) + count(self.refusal)
        return texts + sum(use.tokens for use in self.uses)


def answer(prompt: Prompt, voice: Voice, directives: Directives) -> tuple[SandboxAnswer, ...]:
    """Return all choices. InvalidRequest when a tool in a directive is missing, a schema cannot be satisfied, or all
    choices together exceed MAX_TOKENS."""
    if prompt.choices * ((directives.tokens or 0) + (directives.reasoning or 0)) > MAX_TOKENS:
        raise refuse(f"The sandbox returns at most {MAX_TOKENS} tokens in all choices.", "n")
    return tuple(_choice(prompt, voice, directives, number) for number in range(prompt.choices))


def _choice(prompt: Prompt, voice: Voice, directives: Directives, number: int) -> SandboxAnswer:
    seed = f"{prompt.digest}/{number}"
    reasoning = _reason(prompt, voice, directives, seed)
    content = _write_content(prompt, voice, directives, seed)
    limited = _limit(replace(content, reasoning=reasoning), prompt.limit)
    if directives.finish:
        return replace(limited, finish=directives.finish)
    return limited


def _write_content(prompt: Prompt, voice: Voice, directives: Directives, seed: str) -> SandboxAnswer:
    if directives.refusal:
        return SandboxAnswer(refusal=REFUSAL)
    uses = _call_tools(prompt, voice, directives, seed)
    if uses:
        return SandboxAnswer(uses=uses, finish="tool_calls")
    if prompt.wants_json or voice == "json":
        return SandboxAnswer(text=_write_json(prompt))
    if prompt.results and voice != "echo":
        text = _quote_results(prompt)
        return SandboxAnswer(text=_stop(prompt, _stretch(text, directives.tokens)))
    text = _echo(prompt, directives.tokens) if voice == "echo" else _template(prompt, directives.tokens, seed)
    return SandboxAnswer(text=_stop(prompt, text))


def _reason(prompt: Prompt, voice: Voice, directives: Directives, seed: str) -> str:
    tokens = directives.reasoning
    if tokens is None:
        tokens = EFFORT_TOKENS[prompt.effort] if voice == "reasoning" else 0
    if tokens:
        return write_thoughts(prompt.text, seed, tokens)
    return ""


def _limit(full: SandboxAnswer, limit: int | None) -> SandboxAnswer:
    """Return the answer truncated to `limit` tokens: first comes reasoning, then text, then tool calls in order."""
    if limit is None or full.tokens <= limit:
        return full
    reasoning = clip(full.reasoning, limit)
    left = limit - count(reasoning)
    text = clip(full.text, left)
    refusal = clip(full.refusal, left)
    left -= count(text) + count(refusal)
    uses: list[ToolUse] = []
    for use in full.uses:
        if left <= count(use.name):
            break
        uses.append(replace(use, arguments=clip(use.arguments, left - count(use.name))))
        left -= uses[-1].tokens
    return SandboxAnswer(text, reasoning, tuple(uses), refusal, "length")


def _stop(prompt: Prompt, text: str) -> str:
    places = [place for place in (text.find(stop) for stop in prompt.stops) if place >= 0]
    if places:
        return text[: min(places)]
    return text


def _notes(prompt: Prompt) -> str:
    return "\n".join(attachment.note for attachment in prompt.attachments)


def _echo(prompt: Prompt, tokens: int | None) -> str:
    text = "\n".join(part for part in (prompt.text, _notes(prompt)) if part)
    return _stretch(text or "(nothing to repeat)", tokens)


def _stretch(text: str, tokens: int | None) -> str:
    """Return the text, or its repetition to exactly `tokens` tokens."""
    if tokens is None:
        return text
    return fill(text, repeat(" " + (text or ".")), tokens)


def _template(prompt: Prompt, tokens: int | None, seed: str) -> str:
    notes = _notes(prompt)
    if tokens is None and notes:
        return f"{notes}\n" + write_answer(prompt.text, seed, None, prompt.limit)
    return write_answer(prompt.text, seed, tokens, prompt.limit)


def _write_json(prompt: Prompt) -> str:
    if prompt.schema is not None:
        value = write_instance(prompt.schema)
    else:
        value = {"reply": prompt.text, "attachments": [attachment.note for attachment in prompt.attachments]}
    return orjson.dumps(value).decode()


def _quote_results(prompt: Prompt) -> str:
    quoted = "; ".join(f'"{text}"' for _, text in prompt.results)
    return f"The tools answered: {quoted}."


def _call_tools(prompt: Prompt, voice: Voice, directives: Directives, seed: str) -> tuple[ToolUse, ...]:
    chosen = _choose_tools(prompt, voice, directives)
    return tuple(_use(tool, prompt, f"{seed}/{place}") for place, tool in enumerate(chosen))


def _choose_tools(prompt: Prompt, voice: Voice, directives: Directives) -> list[Tool]:
    """Return the tools to call: none, the tools in a directive, in the text, or the first tool. A forced tool restricts
    the choice."""
    if prompt.choice == "none":
        return []
    forced = set(prompt.forced)
    offered = [tool for tool in prompt.tools if not forced or tool.name in forced]
    named = _named_by_directive(offered, directives.tool)
    if not offered:
        return []
    must = prompt.choice == "required"
    if prompt.results and not must:
        return []
    if not (must or voice == "tools" or directives.tool or directives.parallel):
        return []
    text = prompt.text[:MAX_SEARCHED]
    chosen = named or [tool for tool in offered if tool.name in text] or offered[:1]
    if directives.parallel and not named:
        chosen = [offered[place % len(offered)] for place in range(directives.parallel)]
    if prompt.parallel:
        return chosen
    return chosen[:1]


def _named_by_directive(offered: list[Tool], names: tuple[str, ...]) -> list[Tool]:
    by_name = {tool.name: tool for tool in offered}
    for name in names:
        if name not in by_name:
            raise refuse(f"The sandbox directive 'tool' names {name[:64]!r}, which is not among the tools.", "tools")
    return [by_name[name] for name in names]


def _use(tool: Tool, prompt: Prompt, seed: str) -> ToolUse:
    ident = f"call_{_short_digest(seed)}"
    if tool.custom:
        return ToolUse(ident, tool.name, prompt.text or "sample input", True)
    return ToolUse(ident, tool.name, orjson.dumps(write_instance(tool.schema, tool.name)).decode())


def _short_digest(seed: str) -> str:
    """Return 24 hex digits for the id of a tool call."""
    return hashlib.sha256(seed.encode()).hexdigest()[:24]


CREATED = 1_735_689_600  # fixed, so that the same request gets the same answer
FINGERPRINT = "fp_sandbox"


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body, as a stream when the body requests one."""
    prompt = read_prompt(body)
    answers = answer(prompt, persona.voice, directives)
    usage = None if directives.no_usage else write_usage(prompt, answers, directives.cached)
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
