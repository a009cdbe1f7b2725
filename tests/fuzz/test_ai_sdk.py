"""Call options and prompts of any shape: read, or refused in the envelope; nothing else ever happens."""

import contextlib
import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.configuration import settings as settings_module
from gateway.errors import InvalidRequest
from gateway.surfaces.aisdk import reader
from gateway.surfaces.aisdk.routes import without_headers
from gateway.surfaces.web.http import Inbound

LIMITS = settings_module.load({"GATEWAY_ENV": "test"}).limits
TEXTS = st.sampled_from(
    ["", "a", "é\u2028", "data:image/png;base64,AAAA", "data:,x", "https://x.example/a", "AAAA", "{", "\ud7ff"]
)
SCALARS = st.none() | st.booleans() | st.integers(-9, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=10
)
NAMESPACES = st.sampled_from(["llmgateway", "anthropic", "openai", "gateway", "x"])
CONTROLS = st.fixed_dictionaries({"cacheControl": st.fixed_dictionaries({"type": st.just("ephemeral")}) | VALUES})
SEALS = st.fixed_dictionaries({}, optional=dict.fromkeys(("signature", "sealed", "vendor", "id", "summary"), VALUES))
CHAT_FIELDS = (
    *("temperature", "max_tokens", "tools", "tool_choice", "reasoning", "web_search", "plugins", "n", "user"),
    *("response_format", "functions", "service_tier", "model", "messages", "stream"),
)
FIELDS = st.dictionaries(st.sampled_from(CHAT_FIELDS), VALUES, max_size=3)
OPTIONS = st.dictionaries(NAMESPACES, CONTROLS | SEALS | FIELDS | VALUES, max_size=2) | VALUES
KINDS = {
    "text": ("text",),
    "file": ("data", "mediaType", "filename"),
    "reasoning": ("text",),
    "reasoning-file": (),
    "custom": ("kind",),
    "tool-call": ("toolCallId", "toolName", "input", "providerExecuted"),
    "tool-result": ("toolCallId", "toolName", "output"),
    "tool-approval-response": ("approvalId", "approved"),
    "media": ("data", "mediaType"),
    "image-data": ("data", "mediaType"),
    "image-url": ("url",),
    "file-url": ("url",),
    "file-id": ("fileId",),
    "smell": (),
}
TAGGED = st.fixed_dictionaries(
    {"type": st.sampled_from(["data", "url", "text", "reference"])},
    optional=dict.fromkeys(("data", "url", "text"), TEXTS),
)
MEDIA = st.sampled_from(
    ["image/png", "image/*", "image", "audio/wav", "audio", "text/plain", "application/pdf", "", "/", "x"]
)


@st.composite
def parts(draw: Any, depth: int = 0) -> Any:
    kind = draw(st.sampled_from(sorted(KINDS)))
    part: dict[str, Any] = {"type": kind}
    for name in KINDS[kind]:
        if draw(st.integers(0, 20)) == 0:
            continue
        part[name] = draw(member(name, depth))
    if draw(st.booleans()):
        part["providerOptions"] = draw(OPTIONS)
    return part


def member(name: str, depth: int) -> st.SearchStrategy:
    right: dict[str, st.SearchStrategy] = {
        "data": TEXTS | TAGGED,
        "mediaType": MEDIA,
        "input": VALUES,
        "providerExecuted": st.booleans(),
        "output": outputs(depth) if depth == 0 else VALUES,
    }
    return right.get(name, TEXTS) | st.nothing() if name != "fileId" else VALUES


def outputs(depth: int) -> st.SearchStrategy:
    kinds = st.sampled_from(["text", "json", "error-text", "error-json", "execution-denied", "content", "odd"])
    inside = TEXTS | VALUES | st.lists(parts(depth + 1), max_size=3)
    return st.fixed_dictionaries({"type": kinds}, optional={"value": inside, "reason": TEXTS})


MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool", "robot"]),
        "content": st.lists(parts(), max_size=3) | TEXTS | VALUES,
    },
    optional={"providerOptions": OPTIONS},
)
TOOLS = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "provider", "provider-defined", "odd"]), "name": TEXTS | st.just("look")},
    optional={
        "id": st.sampled_from(["openai.web_search", "google.google_search", "openai.code_interpreter", ""]),
        "args": VALUES,
        "inputSchema": VALUES | st.just({"type": "object"}),
        "inputExamples": st.lists(st.fixed_dictionaries({"input": VALUES}), max_size=2) | VALUES,
        "strict": st.booleans() | VALUES,
        "description": TEXTS,
        "providerOptions": OPTIONS,
    },
)
BODIES = st.fixed_dictionaries(
    {"prompt": st.lists(MESSAGES, max_size=3) | VALUES},
    optional={
        "tools": st.lists(TOOLS, max_size=3) | VALUES,
        "toolChoice": st.fixed_dictionaries(
            {"type": st.sampled_from(["auto", "none", "required", "tool", "odd"])}, optional={"toolName": TEXTS}
        )
        | VALUES,
        "responseFormat": st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "json", "odd"])}, optional={"schema": VALUES, "name": TEXTS}
        ),
        "reasoning": st.sampled_from(["none", "max", "provider-default", "odd"]) | VALUES,
        "maxOutputTokens": VALUES,
        "temperature": VALUES,
        "stopSequences": VALUES,
        "seed": VALUES,
        "topK": VALUES,
        "headers": VALUES,
        "providerOptions": OPTIONS,
    },
)
HEADERS = {reader.MODEL_HEADER: "openai/x", reader.STREAMING_HEADER: "true"}


def read(raw: bytes) -> reader.Question:
    return reader.read_question(Inbound("POST", "/v4/ai/language-model", HEADERS, raw), 4, LIMITS)


@given(BODIES)
def test_call_options_of_any_shape_are_read_or_refused(body: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        question = read(json.dumps(body).encode())
        talk = question.request.conversation()
        assert talk.messages and question.request.native is None
        orjson.dumps(question.warnings)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        read(raw).request.conversation()
    without_headers(raw)


BROKEN = (b"\xff", b"\xed\xa0\x80", b"\\ud800", b'"', b"}", b"\\", b"\0")


@given(BODIES, st.integers(0, 3000), st.sampled_from(BROKEN))
def test_a_damaged_body_is_read_or_refused(body: Any, at: int, spoilt: bytes) -> None:
    raw = json.dumps(body).encode()
    raw = raw[: at % len(raw)] + spoilt + raw[at % len(raw) :]
    with contextlib.suppress(InvalidRequest):
        orjson.dumps([str(part) for part in read(raw).request.conversation().messages])


@given(BODIES)
def test_retained_bodies_lack_only_the_headers(body: Any) -> None:
    kept = json.loads(without_headers(json.dumps(body).encode()))
    assert kept == {name: value for name, value in json.loads(json.dumps(body)).items() if name != "headers"}
