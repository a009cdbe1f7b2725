"""Retained payloads as conversations, in each dialect, and whatever else a caller or provider may send."""

import base64
import json
import random
import time
from typing import Any

import orjson
import pytest
from support.spoiled_json import spoil

from gateway.surfaces.console.shown_conversation import (
    MAX_BYTES,
    MAX_MESSAGES,
    read_conversation,
    write_pretty,
)
from gateway.surfaces.console.shown_parts import MAX_IMAGE, ShownMessage
from gateway.surfaces.console.truncated_json import mend

PICTURE = base64.b64encode(b"\x89PNG" * 10).decode()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = '{\n  "city": "Rome"\n}'


def read(sent: Any, answer: Any = b"") -> Any:
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    shown = read_conversation(orjson.dumps(sent), body)
    assert shown is not None
    return shown


def parts(messages: list[ShownMessage]) -> list[tuple[str, str, str, str]]:
    return [(one.role, part.kind, part.title, part.text or part.url) for one in messages for part in one.parts]


OPENAI = (
    {
        "model": "gpt-5",
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Weather?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
                ],
            },
            {
                "role": "assistant",
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "description": "Now.", "parameters": SCHEMA}}],
    },
    {"choices": [{"message": {"role": "assistant", "content": "Sunny."}}]},
)
ANTHROPIC = (
    {
        "model": "claude",
        "temperature": 0.5,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Weather?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}]},
        ],
        "tools": [{"name": "weather", "description": "Now.", "input_schema": SCHEMA}],
    },
    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
)
RESPONSES = (
    {
        "model": "gpt-5",
        "temperature": 0.5,
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Weather?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
                ],
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "Now.", "parameters": SCHEMA}],
    },
    {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}]},
)
GOOGLE = (
    {
        "temperature": 0.5,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Weather?"}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"functionCall": {"name": "weather", "args": {"city": "Rome"}}},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": "sunny"}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "weather", "description": "Now.", "parameters": SCHEMA}]}],
    },
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "Sunny."}]}}]},
)


AI_SDK = (
    {
        "temperature": 0.5,
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Weather?"},
                    {"type": "file", "mediaType": "image/png", "data": PICTURE},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": "Hm."},
                    {"type": "tool-call", "toolCallId": "call_1", "toolName": "weather", "input": {"city": "Rome"}},
                ],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "call_1",
                        "toolName": "weather",
                        "output": {"type": "text", "value": "sunny"},
                    }
                ],
            },
        ],
        "tools": [{"type": "function", "name": "weather", "description": "Now.", "inputSchema": SCHEMA}],
    },
    {"content": [{"type": "text", "text": "Sunny."}], "finishReason": "stop"},
)
COHERE = ({**OPENAI[0]}, {"message": {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]}})
DIALECTS = {
    "chat": OPENAI,
    "anthropic": ANTHROPIC,
    "responses": RESPONSES,
    "google": GOOGLE,
    "ai-sdk": AI_SDK,
    "cohere": COHERE,
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_each_dialect_is_the_same_conversation(dialect: tuple[Any, Any]) -> None:
    shown = read(*dialect)
    found = parts(shown.messages)
    assert [(kind, text) for _, kind, _, text in found] == [
        ("text", "Be brief."),
        ("text", "Weather?"),
        ("image", f"data:image/png;base64,{PICTURE}"),
        ("reasoning", "Hm."),
        ("call", CALL),
        ("result", found[-1][3]),
    ]
    assert found[-1][3].strip('"') == "sunny" and found[-1][2] == "weather" and found[4][2] == "weather"
    assert [role for role, *_ in found[:2]] == ["system", "user"] and found[3][0] == "assistant"
    assert parts(shown.answers) == [("assistant", "text", "", "Sunny.")]
    [tool] = shown.tools
    assert (tool.name, tool.description, orjson.loads(tool.schema)) == ("weather", "Now.", SCHEMA)
    assert ("temperature", "0.5") in shown.settings and "tools" not in dict(shown.settings)
    assert (dialect is ANTHROPIC) == shown.messages[0].parts[0].cached


def events(*bodies: Any) -> bytes:
    return b"".join(b"event: x\ndata: " + orjson.dumps(body) + b"\n\n" for body in bodies) + b"data: [DONE]\n\n"


def call_piece(function: dict[str, str]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]}


STREAMS = {
    "chat": events(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "H"}}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "m."}}]},
        {"choices": [{"index": 0, "delta": {"content": "Sun"}}]},
        {"choices": [{"index": 0, "delta": {"content": "ny."}}]},
        {
            "choices": [
                {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": "weather", "arguments": ""}}]}}
            ]
        },
        call_piece({"arguments": '{"city":'}),
        call_piece({"arguments": '"Rome"}'}),
    ),
    "anthropic": events(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Sun"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ny."}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "name": "weather"}},
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": '{"city":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": '"Rome"}'}},
    ),
    "google": events(
        {"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": True}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "Sun"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "ny."}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "weather", "args": {"city": "Rome"}}}]}}]},
    ),
    "responses": events(
        {"type": "response.output_text.delta", "delta": "Sun"},
        {
            "type": "response.completed",
            "response": {
                "output": [
                    {"type": "reasoning", "summary": [{"text": "Hm."}]},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
                    {"type": "function_call", "name": "weather", "arguments": '{"city":"Rome"}'},
                ]
            },
        },
    ),
}
STREAMS["ai-sdk"] = events(
    {"type": "reasoning-delta", "id": "1", "delta": "H"},
    {"type": "reasoning-delta", "id": "1", "delta": "m."},
    {"type": "text-delta", "id": "2", "delta": "Sun"},
    {"type": "text-delta", "id": "2", "delta": "ny."},
    {"type": "tool-call", "toolCallId": "call_1", "toolName": "weather", "input": '{"city":"Rome"}'},
)
STREAMS["responses that ended early"] = events(
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Sun"},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "ny."},
    {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "name": "weather"}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"city":"Rome"}'},
)


def cohere_event(kind: str, index: int, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}


STREAMS["cohere"] = events(
    cohere_event("content-delta", 0, content={"thinking": "Hm."}),
    cohere_event("content-delta", 1, content={"text": "Sun"}),
    cohere_event("content-delta", 1, content={"text": "ny."}),
    cohere_event("tool-call-start", 2, tool_calls={"id": "1", "function": {"name": "weather", "arguments": ""}}),
    cohere_event("tool-call-delta", 2, tool_calls={"function": {"arguments": '{"city":"Rome"}'}}),
)


@pytest.mark.parametrize("name", STREAMS)
def test_a_streamed_answer_is_put_together(name: str) -> None:
    shown = read({"messages": [{"role": "user", "content": "Hi"}]}, STREAMS[name])
    assert [(kind, title, text) for _, kind, title, text in parts(shown.answers)] == [
        ("reasoning", "", "Hm."),
        ("text", "", "Sunny."),
        ("call", "weather", CALL),
    ]


def test_only_pictures_of_the_payload_are_shown() -> None:
    urls = ("https://evil.example/x.png", "data:image/svg+xml;base64,PHN2Zz4=", 'data:image/png;base64,"><script>')
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    large = f"data:image/png;base64,{'A' * (MAX_IMAGE // 2 - 40)}"
    content += [{"type": "image_url", "image_url": {"url": large}}] * 3
    shown = read({"messages": [{"role": "user", "content": content}]})
    kinds = [part.kind for part in shown.messages[0].parts]
    assert kinds == ["file"] * 3 + ["image"] * 2 + ["file"]
    assert shown.messages[0].parts[0].text == urls[0]


def test_a_request_without_a_conversation_or_an_incomplete_one_has_none() -> None:
    whole = orjson.dumps(OPENAI[0])
    for sent in (b"", b"[]", b"1", b"{}", whole[:10], b'{"messages": 3}', b'{"messages": []}', b"\xff\xfe"):
        assert read_conversation(sent, b"") is None
    assert read_conversation(b'{"messages": ["' + b"x" * MAX_BYTES + b'"]}', b"") is None
    assert write_pretty(b'{"a":1}') == '{\n  "a": 1\n}' and write_pretty(b"not json \xff") == "not json �"


def test_long_conversations_are_cut_in_the_middle() -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(MAX_MESSAGES + 50)]
    shown = read({"messages": messages})
    texts = [message.parts[0].text for message in shown.messages]
    assert shown.left_out == 50 and len(texts) == MAX_MESSAGES
    assert texts[0] == "0" and texts[-1] == str(MAX_MESSAGES + 49)


def test_deep_values_are_not_written() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    sent = b'{"messages": [{"role": "user", "content": [{"type": "new", "deep": ' + b"[" * 400 + b"]" * 400 + b"}]}]}"
    shown = read_conversation(sent, sent)
    assert shown is not None and "nested too deeply" in shown.messages[0].parts[0].text


def test_results_in_results_are_read_however_deep_they_are() -> None:
    nested = b'[{"type":"tool_result","content":' * 450 + b'"sunny"' + b"}]" * 450
    shown = read_conversation(b'{"messages":[{"role":"user","content":' + nested + b"}]}", nested)
    assert shown is not None and shown.messages[0].parts[0].kind == "result"


def test_indentation_does_not_make_a_payload_many_times_as_long() -> None:
    deep = b"[" * 200 + b",".join([b"1"] * 100_000) + b"]" * 200
    assert len(write_pretty(deep)) == len(deep)
    assert write_pretty(b'{"a":[1]}').count("\n") == 4


def test_a_picture_is_no_address_of_the_console() -> None:
    part = {"type": "input_image", "image_url": f"image/png;base64,{PICTURE}"}
    shown = read({"input": [{"role": "user", "content": [part]}]})
    assert shown.messages[0].parts[0].kind == "file"


def test_whatever_is_sent_is_read() -> None:
    """Any member of a conversation replaced by any value: never an error."""
    dice = random.Random(5)
    values: tuple[Any, ...] = (None, 0, -1.5, True, "", "x", "{}", [], [None], {}, {"type": 3}, {"text": []}, [["x"]])

    for _ in range(1_500):
        sent, answer = (spoil(body, dice, values) for body in dice.choice(list(DIALECTS.values())))
        stream = [orjson.loads(line[6:]) for line in STREAMS["chat"].splitlines() if line.startswith(b"data: {")]
        for body in (orjson.dumps(answer), events(*[spoil(event, dice, values) for event in stream])):
            shown = read_conversation(orjson.dumps(sent), body)
            for message in () if shown is None else (*shown.messages, *shown.answers):
                assert all(isinstance(part.text, str) and isinstance(part.title, str) for part in message.parts)


CITED = {
    "chat": {
        "choices": [
            {
                "message": {
                    "content": "Sunny.",
                    "annotations": [
                        {"type": "url_citation", "url_citation": {"url": "https://rome.example", "title": "Rome"}}
                    ],
                }
            }
        ]
    },
    "anthropic": {
        "content": [
            {
                "type": "text",
                "text": "Sunny.",
                "citations": [{"cited_text": "sun", "url": "https://rome.example", "title": "Rome"}],
            }
        ]
    },
    "responses": {
        "output": [
            {
                "type": "message",
                "content": [
                    {
                        "type": "output_text",
                        "text": "Sunny.",
                        "annotations": [{"type": "url_citation", "url": "https://rome.example", "title": "Rome"}],
                    }
                ],
            }
        ]
    },
    "google": {
        "candidates": [
            {
                "content": {"parts": [{"text": "Sunny."}]},
                "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://rome.example", "title": "Rome"}}]},
            }
        ]
    },
    "ai-sdk": {
        "content": [
            {"type": "text", "text": "Sunny."},
            {"type": "source", "sourceType": "url", "id": "1", "url": "https://rome.example", "title": "Rome"},
        ]
    },
    "cohere": {
        "message": {
            "content": [{"type": "text", "text": "Sunny."}],
            "citations": [
                {"text": "Sunny", "sources": [{"document": {"title": "Rome", "url": "https://rome.example"}}]}
            ],
        }
    },
}


@pytest.mark.parametrize("name", CITED)
def test_citations_are_shown_with_their_sources(name: str) -> None:
    shown = read({"messages": [{"role": "user", "content": "Hi"}]}, CITED[name])
    sources = [source for message in shown.answers for part in message.parts for source in part.sources]
    assert [(source.title, source.url) for source in sources] == [("Rome", "https://rome.example")]


def test_streamed_citations_are_shown() -> None:
    citation = {"type": "citations_delta", "citation": {"url": "https://rome.example", "title": "Rome"}}
    stream = events(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Sunny."}},
        {"type": "content_block_delta", "index": 0, "delta": citation},
    )
    shown = read({"messages": [{"role": "user", "content": "Hi"}]}, stream)
    assert [part.kind for part in shown.answers[0].parts] == ["text", "sources"]


def test_a_request_that_was_stored_in_part_is_shown_up_to_there() -> None:
    said = ['a "quoted" \\ text', "größe 😀", "[{"] * 3
    whole = json.dumps({"messages": [{"role": "user", "content": text} for text in said]})  # with escapes
    plain = orjson.dumps({"messages": [{"role": "user", "content": text} for text in said]})
    for body in (whole.encode(), plain):
        for length in range(60, len(body)):
            shown = read_conversation(body[:length], b"")
            assert shown is not None and shown.is_cut
            texts = [message.parts[0].text for message in shown.messages]
            assert texts[:-1] == said[: len(texts) - 1] and said[len(texts) - 1].startswith(texts[-1])
        assert len(texts) == 9


def test_a_text_that_is_longer_than_what_is_stored_is_shown_in_part() -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": "x" * (2 * MAX_BYTES)}]})
    shown = read_conversation(body[:MAX_BYTES], b"")
    assert shown is not None and shown.is_cut and shown.messages[0].parts[0].text.startswith("xxx")


def test_a_cut_in_many_brackets_is_mended_in_linear_time() -> None:
    began = time.process_time()
    quotes = b'{"a":"' + b'\\"' * 500_000 + b"\\"
    for cut in (
        quotes,
        b'{"a":[' + b"[1,2]," * 100_000,
        b'{"a":[' + b"[" * 390 + b"1," * 300_000,
        b'{"a":' + b"[" * 900_000,
    ):
        mended = mend(cut)
        assert not mended or isinstance(orjson.loads(mended), dict)
    assert time.process_time() - began < 5


def test_a_page_has_room_for_the_newest_texts() -> None:
    messages = [{"role": "user", "content": f"{number} " + "x" * 39_000} for number in range(100)]
    shown = read({"messages": messages})
    lengths = [len(message.parts[0].text) for message in shown.messages]
    assert lengths[-1] > 39_000 and lengths[0] < 300 and sum(lengths) < 700_000


def test_deep_arguments_of_many_calls_are_not_indented() -> None:
    arguments = orjson.dumps({"a": orjson.loads("[" * 200 + "]" * 200)}).decode()
    calls = [{"id": "x", "function": {"name": "f", "arguments": arguments}}] * 5
    shown = read({"messages": [{"role": "assistant", "tool_calls": calls}] * 300})
    assert sum(len(part.text) for message in shown.messages for part in message.parts) < 1_000_000


def test_what_an_agent_adds_stands_apart_from_what_the_user_wrote() -> None:
    reminder = "<system-reminder>\nToday is Monday.\n</system-reminder>"
    content = [{"type": "text", "text": reminder}, {"type": "text", "text": f"{reminder}\n\nFix the <b>test</b>."}]
    body = {"messages": [{"role": "user", "content": content}, {"role": "user", "content": "<doc>mine</doc>"}]}
    shown = read_conversation(orjson.dumps(body), b"")
    assert shown is not None
    first, second = shown.messages
    assert [(part.kind, part.title, part.text) for part in first.parts] == [
        ("added", "2 × system-reminder", "Today is Monday.\n\nToday is Monday."),
        ("text", "", "Fix the <b>test</b>."),
    ]
    assert [(part.kind, part.text) for part in second.parts] == [("text", "<doc>mine</doc>")]
    open_ended = {"messages": [{"role": "user", "content": "<system-reminder>" * 9}]}
    shown = read_conversation(orjson.dumps(open_ended), b"")
    assert shown is not None and [part.kind for part in shown.messages[0].parts] == ["text"]
