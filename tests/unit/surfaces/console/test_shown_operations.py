"""Retained payloads of operations other than chat, in a readable form."""

import base64
import random
import struct
from typing import Any

import orjson
import pytest
from support.spoiled_json import spoil

from gateway.surfaces.console.shown_operations import is_text, read_payload

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
FLOATS = base64.b64encode(struct.pack("<3f", 0.5, 0.25, -1)).decode()
VECTORS = "2 vectors of 3 dimensions"
RANKED = {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]}
FLAGGED = {
    "results": [{"flagged": True, "categories": {"hate": True, "self": False}, "category_scores": {"hate": 0.8}}]
}
# Operation → request, answer, the texts of both.
CASES: dict[str, tuple[str, Any, Any, list[str], str]] = {
    "embeddings": (
        "embeddings",
        {"model": "m", "input": ["one", "two"]},
        {"data": [{"embedding": [0.5, 0.25, -1]}, {"embedding": [1, 2, 3]}]},
        ["one", "two"],
        VECTORS,
    ),
    "embeddings in base64": (
        "embeddings",
        {"input": "one"},
        {"data": [{"embedding": FLOATS}, {"embedding": FLOATS}]},
        ["one"],
        VECTORS,
    ),
    "embeddings of Cohere": (
        "embeddings",
        {"texts": ["one", "two"]},
        {"embeddings": {"float": [[0.5, 0.25, -1], [1, 2, 3]]}},
        ["one", "two"],
        VECTORS,
    ),
    "embeddings of Google": (
        "embeddings",
        {"requests": [{"content": {"parts": [{"text": "one"}]}}]},
        {"embeddings": [{"values": [0.5, 0.25, -1]}, {"values": [1, 2, 3]}]},
        ["one"],
        VECTORS,
    ),
    "tokens": ("embeddings", {"input": [1, 2, 3]}, {}, ["3 token ids"], ""),
    "rerank": (
        "rerank",
        {"query": "cat", "documents": ["a dog", "a cat"]},
        RANKED,
        ["cat", "a dog", "a cat"],
        "0.9000 · document 1: a cat",
    ),
    "moderations": ("moderations", {"input": "bad"}, FLAGGED, ["bad"], "Input 0: hate 0.800 flagged"),
    "transcriptions": ("transcriptions", None, {"text": "Hello."}, [], "Hello."),
    "ocr": (
        "ocr",
        {"document": {"type": "document_url"}},
        {"pages": [{"index": 0, "markdown": "# A"}]},
        [],
        "Page 0\n\n# A",
    ),
    "speech": ("speech", {"input": "Hello", "voice": "alloy"}, b"ID3\x00\x01\xff", ["Hello"], "6 bytes of sound"),
    "decisions": ("decisions", {"state": "It boils."}, {"answers": {"tea": 1}}, ["It boils."], '"tea": 1'),
    "error": ("images", {"prompt": "a cat"}, {"error": {"message": "No."}}, ["a cat"], "No."),
}


@pytest.mark.parametrize("name", CASES)
def test_inputs_and_results_are_readable(name: str) -> None:
    operation, sent, answer, inputs, result = CASES[name]
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    shown = read_payload(operation, b"" if sent is None else orjson.dumps(sent), body)
    assert shown is not None
    texts = [part.text for message in shown.messages for part in message.parts if part.kind == "text"]
    assert texts == inputs
    assert any(result in part.text for message in shown.answers for part in message.parts)
    assert not {"input", "prompt", "query", "documents"} & dict(shown.settings).keys()


def test_drawn_pictures_are_shown_and_addresses_are_not_loaded() -> None:
    answer = {"data": [{"b64_json": PICTURE}, {"url": "https://evil.example/x.png"}]}
    shown = read_payload("images", b'{"prompt":"a cat"}', orjson.dumps(answer))
    assert shown is not None
    [message] = shown.answers
    assert [part.kind for part in message.parts] == ["image", "file"]
    assert message.parts[0].url.startswith("data:image/png;base64,") and not message.parts[1].url


def test_text_is_told_from_sound() -> None:
    assert is_text(b"") and is_text("größe".encode()) and is_text(b"x" * 65_535 + "ß".encode())
    assert not is_text(b"\xff\xfb\x90") and not is_text(b"RIFF\x00\x00")


def test_whatever_is_sent_or_answered_is_read() -> None:
    dice = random.Random(7)
    values: tuple[Any, ...] = (None, 0, -1.5, True, "", "x", [], [None], {}, {"text": []}, [["x"]], [[1]], "AAAA")

    for _ in range(1_500):
        operation, sent, answer, *_ = dice.choice(list(CASES.values()))
        body = answer if isinstance(answer, bytes) else orjson.dumps(spoil(answer, dice, values))
        shown = read_payload(operation, orjson.dumps(spoil(sent, dice, values)), body)
        for message in () if shown is None else (*shown.messages, *shown.answers):
            assert all(isinstance(part.text, str) and isinstance(part.title, str) for part in message.parts)
