"""Values in every place of a request of every operation: none reaches a provider where a rule masks them."""

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.server import FakeServer, send_json
from openai import OpenAI
from support.gateways import LocalGateway
from support.labelled_texts import MAKERS
from support.operation_samples import sound_of
from support.shared import Share

from gateway.accounts import guardrail_changes
from gateway.guardrails.rule_sets import GuardrailRule

Json = dict[str, Any]
PROVIDERS = (
    "OPENAI",
    "ANTHROPIC",
    "GOOGLE_AI_STUDIO",
    "MISTRAL",
    "COHERE",
    "XAI",
    "JINA",
    "VOYAGE",
    "ELEVENLABS",
    "GROQ",
)
CHAT_MODELS = (
    *("openai/gpt-4o-mini", "anthropic/claude-haiku-4-5", "google-ai-studio/gemini-2.5-flash"),
    *("mistral/mistral-small-latest", "cohere/command-a-03-2025"),
)
KINDS = (
    "email",
    "payment_card",
    "iban",
    "github_token",
    "gitlab_token",
    "huggingface_token",
    "openai_key",
    "npm_token",
)
PLANTED = 10_000  # values in requests of the extended test, and in answers
# Members that models cannot have beside the others.
UNSUPPORTED = {"google-ai-studio": ("response_format", "text"), "cohere": ("response_format", "text")}


class Recorder(FakeServer):
    """A provider of any protocol that keeps what it receives, and refuses it."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = "\n".join(f"{name}: {value}" for name, value in environ.items() if name.startswith("HTTP_"))
        place = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        body = environ["wsgi.input"].read().decode("utf-8", "replace")
        self.calls.append(f"{place}\n{headers}\n{body}")
        return send_json(start, 400, {"error": {"message": "no", "type": "invalid_request_error"}})


class Planted:
    """Makes values; each is in one place."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        return f"planted{self.places.setdefault(place, str(len(self.places)))}x@mail.test"


class PlantedKinds(Planted):
    """Makes values of several kinds; `values` are all of them by their place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self.values: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        if place not in self.values:
            make, _ = MAKERS[self._rng.choice(KINDS)]
            self.values[place] = make(self._rng)
        return self.values[place]


def function(p: Planted) -> Json:
    schema = {
        "type": "object",
        "title": p("schema title"),
        "properties": {"to": {"type": "string", "description": p("schema text"), "enum": [p("schema enum")]}},
    }
    return {"name": "mail", "description": p("tool text"), "parameters": schema}


def chat(p: Planted) -> Json:
    file = {"filename": p("file name"), "file_data": "data:text/plain;base64," + b64encode(p("file").encode()).decode()}
    call = {
        "name": "mail",
        "arguments": json.dumps({p("key"): [p("argument")], "text": json.dumps({"a": p("in json")})}),
    }
    schema = {"name": "answer", "schema": {"type": "object", "description": p("answer schema"), "properties": {}}}
    return {
        "messages": [
            {"role": "system", "content": p("system")},
            {"role": "user", "content": [{"type": "text", "text": p("text part")}, {"type": "file", "file": file}]},
            {
                "role": "assistant",
                "content": p("history"),
                "reasoning_content": p("reasoning"),
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": json.dumps({"r": "a\n" + p("tool result")})},
            {"role": "user", "content": p("prompt"), "name": "anna"},
        ],
        "tools": [{"type": "function", "function": function(p)}],
        "response_format": {"type": "json_schema", "json_schema": schema},
        "stop": [p("stop")],
        "user": p("user"),
        "safety_identifier": p("safety id"),
        "prompt_cache_key": p("cache key"),
        "metadata": {"who": p("metadata")},
        "prediction": {"type": "content", "content": p("prediction")},
        "unheard_of": {"a": p("unknown member")},
        "max_tokens": 50,
    }


def responses(p: Planted) -> Json:
    return {
        "instructions": p("instructions"),
        "input": [
            {"role": "developer", "content": p("developer")},
            {"role": "user", "content": [{"type": "input_text", "text": p("text part")}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": p("summary")}]},
            {"type": "function_call", "call_id": "c1", "name": "mail", "arguments": json.dumps({"to": p("argument")})},
            {"type": "function_call_output", "call_id": "c1", "output": p("tool result")},
            {"role": "assistant", "content": [{"type": "output_text", "text": p("history"), "annotations": []}]},
            {"role": "user", "content": p("prompt")},
        ],
        "tools": [{"type": "function", **function(p)}],
        "text": {
            "format": {
                "type": "json_schema",
                "name": "a",
                "schema": {"type": "object", "title": p("format"), "properties": {}},
            }
        },
        "user": p("user"),
        "metadata": {"who": p("metadata")},
        "prompt_cache_key": p("cache key"),
        "safety_identifier": p("safety id"),
        "unheard_of": p("unknown member"),
        "max_output_tokens": 50,
    }


def messages(p: Planted) -> Json:
    tool = function(p)
    document = {
        "type": "document",
        "title": p("title"),
        "context": p("context"),
        "source": {"type": "text", "media_type": "text/plain", "data": p("document")},
    }
    return {
        "system": [{"type": "text", "text": p("system")}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": p("text part")}, document]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": p("history")},
                    {"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {"to": p("argument"), p("key"): 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": p("result")}],
                    },
                    {"type": "text", "text": p("prompt")},
                ],
            },
        ],
        "tools": [{"name": "mail", "description": tool["description"], "input_schema": tool["parameters"]}],
        "stop_sequences": [p("stop")],
        "metadata": {"user_id": p("user")},
        "max_tokens": 50,
        "unheard_of": p("unknown member"),
    }


def gemini(p: Planted) -> Json:
    return {
        "systemInstruction": {"parts": [{"text": p("system")}]},
        "contents": [
            {"role": "user", "parts": [{"text": p("text part")}]},
            {"role": "model", "parts": [{"functionCall": {"name": "mail", "args": {"to": p("argument")}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "mail", "response": {"r": p("result")}}}]},
            {
                "role": "user",
                "parts": [
                    {"text": p("prompt")},
                    {"inlineData": {"mimeType": "text/plain", "data": b64encode(p("file").encode()).decode()}},
                ],
            },
        ],
        "tools": [{"functionDeclarations": [function(p)]}],
        "generationConfig": {"stopSequences": [p("stop")], "maxOutputTokens": 50},
        "labels": {"who": p("label")},
        "unheardOf": p("unknown member"),
    }


def cohere(p: Planted) -> Json:
    return {
        "messages": [{"role": "system", "content": p("system")}, {"role": "user", "content": p("prompt")}],
        "documents": [{"id": "d", "data": {"title": p("title"), "text": p("document")}}, p("text document")],
        "stop_sequences": [p("stop")],
        "tools": [{"type": "function", "function": function(p)}],
    }


def cohere_v1(p: Planted) -> Json:
    return {
        "message": p("prompt"),
        "preamble": p("system"),
        "chat_history": [{"role": "USER", "message": p("history")}],
        "documents": [{"title": p("title"), "snippet": p("document")}],
        "stop_sequences": [p("stop")],
    }


def ai_sdk(p: Planted) -> Json:
    return {
        "prompt": [
            {"role": "system", "content": p("system")},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": p("prompt")},
                    {
                        "type": "file",
                        "mediaType": "text/plain",
                        "filename": p("name"),
                        "data": b64encode(p("file").encode()).decode(),
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": p("history")},
                    {"type": "tool-call", "toolCallId": "c1", "toolName": "mail", "input": {"to": p("argument")}},
                ],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "c1",
                        "toolName": "mail",
                        "output": {"type": "json", "value": {"r": p("result")}},
                    }
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": p("last")}]},
        ],
        "stopSequences": [p("stop")],
        "providerOptions": {"openai": {"user": p("user")}},
        "tools": [
            {"type": "function", "name": "mail", "description": p("tool"), "inputSchema": function(p)["parameters"]}
        ],
    }


CHATS = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/v1beta/models/MODEL:generateContent": gemini,
    "/v1beta/models/MODEL:streamGenerateContent": gemini,
    "/v2/chat": cohere,
    "/v1/chat": cohere_v1,
    "/v3/ai/language-model": ai_sdk,
}
OTHERS: list[tuple[str, str, Any]] = [
    (
        "/v1/completions",
        "openai/gpt-4o-mini",
        lambda p: {"prompt": p("prompt"), "suffix": p("suffix"), "stop": p("stop"), "user": p("user")},
    ),
    (
        "/v1/fim/completions",
        "mistral/codestral-latest",
        lambda p: {"prompt": p("prompt"), "suffix": p("suffix"), "stop": [p("stop")]},
    ),
    ("/v1/responses/compact", "openai/gpt-4o-mini", lambda p: {"input": p("input"), "instructions": p("instructions")}),
    (
        "/v1/embeddings",
        "openai/text-embedding-3-small",
        lambda p: {"input": [p("input"), p("second")], "user": p("user")},
    ),
    ("/v1/embeddings", "cohere/embed-v4.0", lambda p: {"input": p("input")}),
    ("/v2/embed", "cohere/embed-v4.0", lambda p: {"texts": [p("input")], "input_type": "search_query"}),
    (
        "/v1beta/models/MODEL:embedContent",
        "google-ai-studio/gemini-embedding-2",
        lambda p: {"content": {"parts": [{"text": p("input")}]}, "title": p("title")},
    ),
    ("/v1/moderations", "openai/omni-moderation-latest", lambda p: {"input": [p("input")]}),
    ("/v1/moderations", "mistral/mistral-moderation-2603", lambda p: {"input": p("input")}),
    ("/v1/rerank", "cohere/rerank-v4.0-pro", lambda p: {"query": p("query"), "documents": [p("document"), "x"]}),
    ("/v1/rerank", "voyage/rerank-3", lambda p: {"query": p("query"), "documents": [p("document"), "x"]}),
    ("/v1/images/generations", "openai/gpt-image-1", lambda p: {"prompt": p("prompt"), "user": p("user")}),
    ("/v1/images/generations", "google-ai-studio/gemini-3-pro-image", lambda p: {"prompt": p("prompt")}),
    (
        "/v1/audio/speech",
        "openai/gpt-4o-mini-tts",
        lambda p: {"input": p("input"), "voice": "alloy", "instructions": p("how")},
    ),
    ("/v1/audio/speech", "elevenlabs/eleven-multilingual-v2", lambda p: {"input": p("input"), "voice": "Sarah"}),
    (
        "/v1/ocr",
        "mistral/mistral-ocr-4-1",
        lambda p: {
            "document": {
                "type": "document_url",
                "document_url": "https://files.example.com/a.pdf",
                "document_name": p("name"),
            },
            "document_annotation_prompt": p("prompt"),
            "document_annotation_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object", "description": p("schema")}},
            },
        },
    ),
]


def without_files(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_files(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_files(one) for one in value if not (isinstance(one, dict) and one.get("type") == "file")]
    return value


@pytest.fixture
def recorder(share: Share) -> Recorder:
    return share.fake(Recorder)


@pytest.fixture
def gateway(share: Share, recorder: Recorder) -> Iterator[LocalGateway]:
    names = {name: f"{recorder.address}/v1" for name in PROVIDERS}
    keys = {f"LLM_{name}_API_KEY": "sk-upstream" for name in names}
    gateway = share.gateway({**keys, **{f"LLM_{name}_BASE_URL": url for name, url in names.items()}})
    store = gateway.services.store
    organization = gateway.organization_id
    rule = GuardrailRule("", "Mask people", "mask", detectors=("email",))
    place = (organization, "organization", organization)
    stored = guardrail_changes.add_guardrail(store.database, store.control, *place, rule, active=True, actor="operator")
    yield gateway
    guardrail_changes.remove_guardrail(store.database, store.control, organization, stored.id, actor="operator")


def check(
    gateway: LocalGateway, recorder: Recorder, path: str, model: str, body: Json, p: Planted, **more: Any
) -> None:
    recorder.calls.clear()
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if "language-model" in path:
        headers |= {"ai-language-model-id": model, "ai-language-model-specification-version": "3"}
        headers |= {"ai-gateway-protocol-version": "0.0.1"}
    url = gateway.address + path.replace("MODEL", model)
    given = body if "MODEL" in path or "language-model" in path else {**body, "model": model}
    answer = httpx.post(url, headers=headers, timeout=60, **(more or {"json": given}))
    sent = "\n".join(recorder.calls)
    plain = sent.replace("\\u0040", "@").replace("%40", "@")
    leaked = [
        place for place, number in p.places.items() if f"planted{number}x@" in plain or f"planted{number}x" in plain
    ]
    assert leaked == [], (path, model, answer.status_code)
    encoded = [place for place in p.places if b64encode(p(place).encode()).decode()[:20] in sent]
    assert encoded == [], (path, model)
    assert recorder.calls, (path, model, answer.status_code, answer.text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", CHAT_MODELS)
@pytest.mark.parametrize("path", CHATS)
def test_no_value_of_a_conversation_reaches_the_provider(
    gateway: LocalGateway, recorder: Recorder, path: str, model: str, stream: bool
) -> None:
    p = Planted()
    body = CHATS[path](p)
    for member in UNSUPPORTED.get(model.partition("/")[0], ()):
        body.pop(member, None)
    if "mistral" in model or "cohere" in model:
        body = without_files(body)
    if stream and "MODEL" not in path and "language-model" not in path:
        body["stream"] = True
    check(gateway, recorder, path, model, body, p)


@pytest.mark.parametrize(("path", "model", "make"), OTHERS)
def test_no_value_of_another_operation_reaches_the_provider(
    gateway: LocalGateway, recorder: Recorder, path: str, model: str, make: Any
) -> None:
    p = Planted()
    check(gateway, recorder, path, model, make(p), p)


def test_no_value_of_a_form_reaches_the_provider(gateway: LocalGateway, recorder: Recorder) -> None:
    p = Planted()
    form = {"model": "openai/gpt-4o-transcribe", "prompt": p("prompt")}
    file = {"file": (f"{p('name')}.wav", sound_of(1.0), "audio/wav")}
    check(gateway, recorder, "/v1/audio/transcriptions", form["model"], {}, p, data=form, files=file)


@pytest.mark.extended
def test_of_ten_thousand_values_of_many_kinds_none_reaches_a_provider(
    gateway: LocalGateway, recorder: Recorder
) -> None:
    store = gateway.services.store
    place = (gateway.organization_id, "organization", gateway.organization_id)
    secrets = GuardrailRule("", "Mask all", "mask", detectors=("secrets", "personal"))
    stored = guardrail_changes.add_guardrail(
        store.database, store.control, *place, secrets, active=True, actor="operator"
    )
    planted = seed = 0
    operations = [(path, model, CHATS[path]) for path in CHATS for model in CHAT_MODELS] + OTHERS
    headers = {"Authorization": f"Bearer {gateway.key}"}
    with httpx.Client(headers=headers, timeout=60) as web:
        while planted < PLANTED:
            for path, model, make in operations:
                seed += 1
                p = PlantedKinds(seed)
                body = make(p)
                for member in UNSUPPORTED.get(model.partition("/")[0], ()):
                    body.pop(member, None)
                if "mistral" in model or "cohere" in model:
                    body = without_files(body)
                more = {"ai-language-model-id": model, "ai-language-model-specification-version": "3"}
                more |= {"ai-gateway-protocol-version": "0.0.1"}
                bare = "MODEL" in path or "language-model" in path
                recorder.calls.clear()
                web.post(
                    gateway.address + path.replace("MODEL", model),
                    headers=more if "language-model" in path else {},
                    json=body if bare else {**body, "model": model, **({"stream": True} if seed % 2 else {})},
                )
                sent = "\n".join(recorder.calls).replace("\\u0040", "@").replace("%40", "@")
                leaked = {where: value for where, value in p.values.items() if value in sent}
                assert leaked == {}, (path, model, seed)
                planted += len(p.values) if recorder.calls else 0
    guardrail_changes.remove_guardrail(store.database, store.control, place[0], stored.id, actor="operator")


@pytest.mark.extended
def test_ten_thousand_values_come_back_in_pieces_of_any_size(share: Share) -> None:
    upstream = share.fake(FakeOpenAI)
    names = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
    gateway = share.gateway({**names, "LLM_OPENAI_USE_RESPONSES_API": "false"})
    store = gateway.services.store
    place = (gateway.organization_id, "organization", gateway.organization_id)
    rule = GuardrailRule("", "Mask all", "mask", detectors=("secrets", "personal"))
    stored = guardrail_changes.add_guardrail(store.database, store.control, *place, rule, active=True, actor="operator")
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    rng = random.Random(7)
    tool = {"type": "function", "function": {"name": "mail", "parameters": {"type": "object"}}}
    restored = 0
    for piece in (*range(1, 30), 64, 1000) * 4:
        values = [MAKERS[rng.choice(KINDS)][0](rng) for _ in range(100)]
        text = " and ".join(values)
        content: Any = [{"role": "user", "content": text}]
        upstream.script(Answer("ok"))
        client.chat.completions.create(model="openai/gpt-4o-mini", messages=content)
        masked = upstream.calls[-1].body["messages"][0]["content"]
        assert not [value for value in values if value in masked]
        upstream.script(Answer(masked, tools=(("mail", json.dumps({"to": masked})),), piece=piece))
        chunks = client.chat.completions.create(
            model="openai/gpt-4o-mini",
            messages=content,
            tools=[tool],
            stream=True,  # type: ignore[list-item]
        )
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == text, piece
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
        arguments = "".join(call.function.arguments or "" for call in calls if call.function)
        assert json.loads(arguments) == {"to": text}, piece
        restored += 2 * len(values)
    guardrail_changes.remove_guardrail(store.database, store.control, place[0], stored.id, actor="operator")
    assert restored >= PLANTED
