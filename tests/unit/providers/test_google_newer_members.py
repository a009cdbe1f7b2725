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
    return reader.read("m", *schema.decode(raw), stream=False)


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
