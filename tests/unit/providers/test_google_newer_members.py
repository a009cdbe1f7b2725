"""Members of Gemini's format that are newer than the gateway, in bodies that are rebuilt for Google's servers."""

from typing import Any

import orjson
import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.neutral.chat import ChatRequest
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Call, Credential, Target
from gateway.surfaces.google import reader, schema

Json = dict[str, Any]
CALL = {"functionCall": {"name": "look", "args": {}, "id": "a"}, "hologram": {"shape": "cube"}}
RESULT = {"functionResponse": {"name": "look", "id": "a", "response": {"output": "A cat."}}, "hologram": 1}
FILE = {
    "fileData": {"fileUri": "https://media.example/a.mp4", "mimeType": "video/mp4"},
    "videoMetadata": {"startOffset": "10s"},
    "hologram": True,
}
PICTURE = {"fileData": {"fileUri": "https://media.example/a.png", "mimeType": "image/png"}, "hologram": True}
LOOK = {"functionDeclarations": [{"name": "look"}]}


def read(**body: Any) -> ChatRequest:
    raw = orjson.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [LOOK]} | body)
    return reader.read_generation("m", *schema.decode(raw), stream=False)


def written_for(protocol: str, request: ChatRequest) -> tuple[Json, Call]:
    provider = Provider("acme", "Acme", protocol)
    mapping = Mapping("acme", "m", "gemini-3-flash" if protocol == "google" else "m", tools=True, vision=True)
    target = Target(provider, mapping, Credential("k"), "https://acme.example/v1")
    codec = GoogleGenerate(lambda secret: secret) if protocol == "google" else OpenAIChat()
    call = codec.write(request, target)
    return orjson.loads(call.body), call


@pytest.mark.parametrize("part", [FILE, PICTURE])
def test_members_beside_a_file_stay(part: Json) -> None:
    body, call = written_for("google", read(contents=[{"role": "user", "parts": [part]}]))
    assert body["contents"] == [{"role": "user", "parts": [part]}] and not call.warnings


def test_members_beside_calls_and_results_stay() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [CALL | {"thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [RESULT]},
    ]
    body, call = written_for("google", read(contents=contents))
    assert body["contents"] == contents and not call.warnings


def test_another_vendor_gets_the_parts_without_them_and_a_warning() -> None:
    contents = [
        {"role": "user", "parts": [PICTURE]},
        {"role": "model", "parts": [CALL]},
        {"role": "user", "parts": [RESULT]},
    ]
    body, call = written_for("openai", read(contents=contents))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert "hologram" not in str(body) and any("hologram" in warning for warning in call.warnings)


def test_a_newer_calling_mode_is_for_google_alone() -> None:
    config = {"functionCallingConfig": {"mode": "SOMETIMES", "allowedFunctionNames": ["look"]}}
    request = read(toolConfig=config)
    assert request.native is not None and request.native.body["toolConfig"] == config
    body, call = written_for("google", request)
    assert body["toolConfig"] == config and not call.warnings
    body, call = written_for("openai", request)
    assert "tool_choice" not in body and any("SOMETIMES" in warning for warning in call.warnings)


def test_a_newer_thinking_level_is_for_google_alone() -> None:
    config = {"thinkingConfig": {"thinkingLevel": "DEEPEST"}}
    request = read(generationConfig=config)
    assert request.native is not None and request.native.body["generationConfig"] == config
    assert "thinkingLevel" in request.warnings[0]
    assert "reasoning_effort" not in written_for("openai", request)[0]


def test_a_warning_names_a_few_of_many_newer_members() -> None:
    members = {f"hologram{number}": number for number in range(1000)}
    contents = [{"role": "user", "parts": [PICTURE | members]}]
    _, call = written_for("openai", read(contents=contents))
    (warning,) = [text for text in call.warnings if "hologram0" in text]
    assert len(warning) < 1000


PIXEL = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
NOTED: dict[str, Json] = {
    "a text": {"text": "Hi", "partMetadata": {"id": 7}},
    "an image": PIXEL | {"mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"}, "partMetadata": {"id": 7}},
    "a video": {
        "inlineData": {"mimeType": "video/mp4", "data": "aGk="},
        "videoMetadata": {"fps": 1},
        "partMetadata": {"id": 7},
    },
    "a signed text": {"text": "Hi", "thoughtSignature": "c2ln", "partMetadata": {"id": 7}},
    "a text with a newer member": {"text": "Hi", "hologram": 1, "partMetadata": {"id": 7}},
    "an image with a newer member": PIXEL | {"hologram": 1, "partMetadata": {"id": 7}},
}


@pytest.mark.parametrize("kind", NOTED)
def test_notes_beside_a_part_stay_for_google(kind: str) -> None:
    contents = [{"role": "user", "parts": [{"text": "See:"}]}, {"role": "model", "parts": [NOTED[kind]]}]
    request = read(contents=[*contents, {"role": "user", "parts": [NOTED[kind], {"text": "Well?"}]}])
    assert request.native is not None and request.native.body["contents"][1]["parts"] == [NOTED[kind]]
    body, call = written_for("google", request)
    assert body["contents"][1]["parts"][0] == NOTED[kind] and not call.warnings
    assert body["contents"][-1]["parts"][0].items() >= {"partMetadata": {"id": 7}}.items()


@pytest.mark.parametrize("kind", ["a text", "an image", "a text with a newer member", "an image with a newer member"])
def test_a_warning_names_the_notes_that_another_vendor_does_not_get(kind: str) -> None:
    body, call = written_for("openai", read(contents=[{"role": "user", "parts": [NOTED[kind], {"text": "Well?"}]}]))
    kinds = [part["type"] for part in body["messages"][0]["content"]]
    assert kinds == ["image_url" if "image" in kind else "text", "text"]
    names = [name for name in NOTED[kind] if name not in ("text", "inlineData")]
    (warning,) = call.warnings
    assert all(name in warning for name in names)


def test_texts_with_notes_are_not_joined() -> None:
    parts = [{"text": "One."}, {"text": "Two.", "partMetadata": {"id": 7}}, {"text": "Three."}]
    body, _ = written_for("google", read(contents=[{"role": "model", "parts": parts}]))
    assert body["contents"][0]["parts"] == parts
