"""The description of every operation beside chat: whatever fits it is sent to the sandbox, as JSON or as a form with
files, and is taken, and answered as described: objects, sounds and events."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from jsonschema import Draft202012Validator
from support.every_operation import PNG, write_png, write_wav
from support.shared import Share, Tenant
from support.spending import BESIDE_CHAT, FORMS

EXAMPLES = 6
EVENTS, FORM, JSON = "text/event-stream", "multipart/form-data", "application/json"
# The sandbox model of each operation, so that a valid body gets a response.
MODELS = {
    "/v1/embeddings": "sandbox-embed",
    "/v1/images/generations": "sandbox-image",
    "/v1/images/edits": "sandbox-image",
    "/v1/audio/speech": "sandbox-speak",
    "/v1/audio/transcriptions": "sandbox-transcribe",
    "/v1/audio/translations": "sandbox-transcribe",
    "/v1/moderations": "sandbox-moderate",
    "/v1/rerank": "sandbox-rerank",
    "/v1/ocr": "sandbox-read",
    "/v1/systemone": "sandbox-decide",
}
# Their schema does not say that a body needs texts or inputs.
COHERE = {"/v1/embed", "/v2/embed"}
WAYS = [
    *((path, JSON) for path in MODELS if path not in FORMS),
    *((path, FORM) for path in (*FORMS, "/v1/images/edits")),
]
# Parameters in errors for valid bodies, which are refused because of the model and not of the operation.
OF_THE_MODEL = {
    "model",
    "routing",
    "voice",
    "voice.id",
    "file_id",
    "dimensions",
    "size",
    "quality",
    "pages",
    "response_format",
    "document.file_id",
}
# Nothing is fetched from where a generator happens to say, and a picture is one.
ADDRESSES = ("image_url", "document_url", "url")
FILES = {"file": write_wav(), "image": write_png(), "image[]": write_png(), "mask": write_png(), "markup": write_png()}


@pytest.fixture
def gateway(share: Share) -> Tenant:
    return share.gateway({})


def with_pictures(value: Any) -> Any:
    """The body with a picture wherever it has an address, and whole numbers as programs write them: 29, not 29.0."""
    if isinstance(value, list):
        return [with_pictures(one) for one in value]
    if isinstance(value, dict):
        return {
            name: PNG if name in ADDRESSES and isinstance(one, str) else with_pictures(one)
            for name, one in value.items()
        }
    return int(value) if isinstance(value, float) and value.is_integer() else value


def with_files(body: dict[str, Any]) -> dict[str, Any]:
    """The form with a real file in the place of each, and of an address, without empty texts and names with line
    breaks: the client in process writes neither correctly."""
    if "url" in body:
        body = {"file": b""} | {name: value for name, value in body.items() if name != "url"}
    real = {name: [FILES[name]] * len(one) if isinstance(one, list) else FILES[name]
            for name, one in body.items() if name in FILES}  # fmt: skip
    said = {name: [text for text in one if text != ""] if isinstance(one, list) else one for name, one in body.items()}
    return {name: one for name, one in {**said, **real}.items() if one != "" and not {*name} & {"\r", "\n"}}


def events_of(answer: "schemathesis.Response") -> Iterator[Any]:
    for line in answer.content.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


def event_shape(document: dict[str, Any], path: str) -> Draft202012Validator:
    event_schema = document["paths"][path]["post"]["responses"]["200"]["content"][EVENTS]["x-event-schema"]
    return Draft202012Validator({**event_schema, "components": document["components"]})


def test_every_operation_beside_chat_is_sent() -> None:
    assert sorted({*MODELS, *COHERE}) == BESIDE_CHAT


@pytest.mark.parametrize(("path", "media"), WAYS)
def test_bodies_that_match_the_description_are_accepted(gateway: Tenant, path: str, media: str) -> None:
    from support.described import CHECKS, call, description_of, examples

    schema = description_of(gateway.app.flask)
    headers = {"Accept-Encoding": "identity", "Authorization": f"Bearer {gateway.key}"}
    dice, accepted = random.Random(5), 0

    @examples(EXAMPLES)
    @given(case=schema[path]["POST"].as_strategy())
    def answers(case: schemathesis.Case) -> None:
        nonlocal accepted
        if case.media_type != media:
            return
        case.body = with_files(case.body) if media == FORM else with_pictures(case.body)
        if dice.random() < 0.9:
            case.body["model"] = MODELS[path]
        answer = call(case, headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code != 200:
            assert answer.json()["error"]["param"] in OF_THE_MODEL, (answer.text, case.body)
            return
        accepted += 1
        if answer.headers["content-type"][0].startswith(EVENTS):
            shape = event_shape(schema.raw_schema, path)
            found = list(events_of(answer))
            assert found and [error.message for one in found for error in shape.iter_errors(one)] == []

    answers()
    assert accepted
