"""Answers in Gemini's dialect, of completions and of transcriptions have the members that the API description names.

The other dialects are compared in every case of `test_every_protocol.py`.
"""

import io
from typing import Any

import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import Say
from support.described_answers import EVENTS, mistakes_of
from support.sound_files import wave

SAYS = {
    "text": Say("Hello there.", cached=3),
    "length": Say("Hello", finish="length"),
    "filter": Say("Hello", finish="filter"),
    "thinking": Say("Hello.", thinking="They greet me.", sealed="c2VhbA=="),
    "refusal": Say(refusal="I cannot help with that."),
    "source": Say("News of today.", source="https://news.example/today"),
    "call": Say(tools=(("get_weather", '{"city":"Oslo"}'),)),
    "fault": Say(broken=500),
    "invalid": Say(broken=400),
}
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
GEMINI: dict[str, Any] = {
    "contents": [{"role": "user", "parts": [{"text": "Hello?"}]}],
    "tools": [{"functionDeclarations": [TOOL]}],
    "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
}
FORMS = {
    "generateContent": "generateContent",
    "streamGenerateContent": "streamGenerateContent",
    "events": "streamGenerateContent?alt=sse",
}


def check(stage: ContractGateway, operation: str, path: str, *, rebuilt: bool = True, **body: Any) -> None:
    """Send a request and compare its answer, or each event of it, with the description."""
    headers = {"Authorization": f"Bearer {stage.gateway.key}"}
    answer = stage.gateway.app.flask.test_client().post(path, headers=headers, **body)
    media = answer.content_type
    assert mistakes_of(f"POST {operation}", answer.status_code, media, answer.data, rebuilt=rebuilt) == []
    assert not media.startswith(EVENTS) or answer.data.count(b"data: {") > 1


@pytest.mark.parametrize("say", SAYS)
@pytest.mark.parametrize("vendor", ["openai", "responses", "anthropic", "google"])
def test_gemini_answers_are_as_described(stage: ContractGateway, vendor: str, say: str) -> None:
    for name, method in FORMS.items():
        stage.script(vendor, *[SAYS[say]] * 3)
        operation = f"/v1beta/models/{{model}}:{FORMS[name].partition('?')[0]}"
        path = f"/v1beta/models/fake-{vendor}/{vendor}-able:{method}"
        check(stage, operation, path, rebuilt=vendor != "google", json=GEMINI)


@pytest.mark.parametrize("say", [name for name in SAYS if name not in ("call", "thinking")])
@pytest.mark.parametrize("vendor", ["openai", "responses", "anthropic", "google"])
def test_completions_are_as_described(stage: ContractGateway, vendor: str, say: str) -> None:
    body = {"model": f"fake-{vendor}/{vendor}-able", "prompt": "Hello?", "max_tokens": 500}
    for more in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
        stage.script(vendor, *[SAYS[say]] * 3)
        check(stage, "/v1/completions", "/v1/completions", json=body | more)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": "json"},
        {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]},
        {"stream": "true"},
        {"model": "no-such-model"},
    ],
)
@pytest.mark.parametrize("operation", ["transcriptions", "translations"])
def test_transcriptions_are_as_described(stage: ContractGateway, operation: str, fields: dict[str, Any]) -> None:
    path = f"/v1/audio/{operation}"
    form = {"model": "sandbox-transcribe", **fields, "file": (io.BytesIO(wave(1.0, 8000, 16, 1)), "a.wav")}
    check(stage, path, path, data=form)
