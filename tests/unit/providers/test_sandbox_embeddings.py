"""Embeddings and moderations of the sandbox."""

import base64
import struct
import threading

import orjson
import pytest
from openai.types import CreateEmbeddingResponse, ModerationCreateResponse

from gateway.clock import Clock
from gateway.providers.protocol import Call
from gateway.providers.sandbox import embeddings
from gateway.providers.sandbox.directives import Directives
from gateway.providers.sandbox.embeddings import respond
from gateway.providers.sandbox.sandbox_server import SandboxServer


def post(path, **body):
    call = Call("POST", f"http://sandbox.invalid/v1/{path}", {}, orjson.dumps(body))
    server = SandboxServer(Clock(), lambda seconds: None)
    reply = server.open(call, deadline=float("inf"), heartbeat_s=10)
    return reply.status, reply.read_all()


def embed(value, **body):
    status, whole = post("embeddings", model="embed", input=value, **body)
    assert status == 200, whole
    return CreateEmbeddingResponse.model_validate_json(whole)


def vector(text):
    return embed(text).data[0].embedding


def likeness(left, right):
    return sum(a * b for a, b in zip(vector(left), vector(right), strict=True))


def test_a_vector_has_length_one_and_the_requested_dimensions():
    made = embed("some words here", dimensions=32).data[0].embedding
    assert len(made) == 32
    assert sum(value * value for value in made) == pytest.approx(1)


def test_texts_with_words_in_common_are_nearer():
    assert likeness("the red apple", "a red apple") > likeness("the red apple", "quantum field theory")


def test_every_input_has_its_vector_in_order():
    answer = embed(["one", "two", "one"])
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert answer.data[0].embedding == answer.data[2].embedding != answer.data[1].embedding


@pytest.mark.parametrize(("count", "apart"), [(2, False), (300, True)])
def test_many_vectors_are_made_in_a_thread(monkeypatch, count, apart):
    made, embed, here = [], embeddings.embed, threading.get_native_id()
    monkeypatch.setattr(embeddings, "embed", lambda *args: made.append(threading.get_native_id()) or embed(*args))
    answer = respond({"model": "embed", "input": ["a"] * count}, None, Directives())
    assert len(orjson.loads(answer.body)["data"]) == count and {one != here for one in made} == {apart}


def test_token_lists_count_as_tokens():
    assert embed([1, 2, 3]).usage.prompt_tokens == 3
    assert len(embed([[1, 2], [3]]).data) == 2


def test_base64_holds_the_same_floats():
    _, whole = post("embeddings", model="embed", input="some words", encoding_format="base64")
    packed = orjson.loads(whole)["data"][0]["embedding"]
    assert list(struct.unpack("<256f", base64.b64decode(packed))) == pytest.approx(vector("some words"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("input", ""), ("input", []), ("input", [""]), ("input", [1, "a"]), ("input", 5), ("dimensions", 0),
     ("encoding_format", "hex"), ("input", ["a"] * 2049)],
)  # fmt: skip
def test_wrong_embedding_request_is_refused(name, value):
    status, whole = post("embeddings", **{"model": "embed", "input": "x", name: value})
    assert status == 400
    assert orjson.loads(whole)["error"]["param"].startswith(name)


def test_unknown_embedding_field_is_refused():
    assert b"supplied: truncate" in post("embeddings", model="embed", input="x", truncate=True)[1]


def test_faults_hit_embeddings_too():
    assert post("embeddings", model="fail-429", input="x")[0] == 429
    assert post("embeddings", model="embed", input=["[[sandbox: status=503]]"])[0] == 503
    assert orjson.loads(post("embeddings", model="embed", input="[[sandbox: no_choices]]")[1])["data"] == []


def test_chat_model_makes_no_embeddings():
    assert post("embeddings", model="echo", input="x")[0] == 400


def moderate(value):
    status, whole = post("moderations", model="moderate", input=value)
    assert status == 200, whole
    return ModerationCreateResponse.model_validate_json(whole).results


def test_category_word_flags_its_category_only():
    clean, flagged = moderate(["a sunny day", "so much violence"])
    assert not clean.flagged
    assert flagged.flagged and flagged.categories.violence and not flagged.categories.hate


def test_flag_directive_flags_and_knows_its_categories():
    assert moderate("hi [[sandbox: flag=self-harm]]")[0].categories.self_harm
    assert post("moderations", model="moderate", input="[[sandbox: flag=noise]]")[0] == 400


def test_content_parts_are_judged_together():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert len(moderate([{"type": "text", "text": "hate"}, image])) == 1
