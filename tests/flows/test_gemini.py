"""Gemini's own API through the whole gateway, with the official SDK in its default settings over strict fakes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator

import google.genai as genai
import httpx
import pytest
from fakes.anthropic import Answer as ClaudeAnswer
from fakes.anthropic import FakeAnthropic
from fakes.embedding_services import FakeEmbeddingServices
from fakes.google import Answer as GoogleAnswer
from fakes.google import FakeGoogle
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import GatewayProcess, LocalGateway
from support.shared import Share

OPENAI = "openai/gpt-4o-mini"
GEMINI = "google-ai-studio/gemini-3.8-flash"
CLAUDE = "anthropic/claude-sonnet-5"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


@pytest.fixture
def google(share: Share) -> FakeGoogle:
    return share.fake(FakeGoogle)


@pytest.fixture
def claude(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def upstream_environment(
    upstream_environment: dict[str, str], google: FakeGoogle, claude: FakeAnthropic
) -> dict[str, str]:
    return upstream_environment | {
        "LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream",
        "LLM_GOOGLE_AI_STUDIO_BASE_URL": google.url,
        "LLM_ANTHROPIC_API_KEY": "sk-ant-upstream",
        "LLM_ANTHROPIC_BASE_URL": claude.url,
    }


def client_of(gateway: LocalGateway, key: str = "") -> genai.Client:
    """The official SDK, pointed at the gateway and otherwise unchanged."""
    return genai.Client(api_key=key or gateway.key, http_options=genai.types.HttpOptions(base_url=gateway.address))


@pytest.fixture
def openai(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.fixture
def gemini(gateway: LocalGateway) -> Iterator[genai.Client]:
    with client_of(gateway) as client:
        yield client


def test_an_answer_of_another_format_is_a_response(gemini: genai.Client, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500, cached=400))
    config = genai.types.GenerateContentConfig(
        system_instruction="Be brief.", temperature=0.5, top_p=0.9, max_output_tokens=50, stop_sequences=["END"]
    )
    answer = gemini.models.generate_content(model=OPENAI, contents="Hello", config=config)
    assert answer.text == "Good day." and answer.candidates[0].finish_reason == genai.types.FinishReason.STOP
    usage = answer.usage_metadata
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (1000, 400)
    assert (usage.candidates_token_count, usage.total_token_count) == (500, 1500)
    assert answer.model_version == OPENAI
    sent = upstream.calls[0].body
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert (sent["temperature"], sent["top_p"], sent["stop"]) == (0.5, 0.9, ["END"])


def test_a_stream_of_another_format_is_a_streamed_response(gemini: genai.Client, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day to you.", fragment=3))
    chunks = list(gemini.models.generate_content_stream(model=OPENAI, contents="Hello"))
    assert "".join(chunk.text or "" for chunk in chunks) == "Good day to you."
    assert all(chunk.candidates[0].content.parts for chunk in chunks)
    assert chunks[-1].candidates[0].finish_reason == genai.types.FinishReason.STOP
    assert chunks[-1].usage_metadata.total_token_count > 0


@pytest.mark.parametrize("model", [OPENAI, GEMINI, CLAUDE])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_chat_calls_functions_with_every_vendor(
    gemini: genai.Client, upstream: FakeOpenAI, google: FakeGoogle, claude: FakeAnthropic, model: str, streamed: bool
) -> None:
    tools = (("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Bergen"}'))
    upstream.script(Answer(tools=tools), Answer("Rain."))
    google.script(GoogleAnswer(tools=tuple((name, json.loads(args)) for name, args in tools)), GoogleAnswer("Rain."))
    claude.script(ClaudeAnswer(tools=tuple((name, args) for name, args in tools)), ClaudeAnswer("Rain."))
    config = genai.types.GenerateContentConfig(tools=[weather])
    chat = gemini.chats.create(model=model, config=config)
    if streamed:
        text = "".join(chunk.text or "" for chunk in chat.send_message_stream("The weather?"))
    else:
        text = chat.send_message("The weather?").text
    assert text == "Rain."
    calls = [*upstream.calls, *google.calls, *claude.calls]
    assert [call.status for call in calls] == [200, 200]
    assert "Rain in Oslo." in json.dumps(calls[1].body) and "Rain in Bergen." in json.dumps(calls[1].body)


@pytest.mark.parametrize("streamed", [False, True])
def test_signatures_and_thoughts_come_back_byte_for_byte(
    gemini: genai.Client, google: FakeGoogle, streamed: bool
) -> None:
    google.script(GoogleAnswer(thoughts="Hm.", tools=(("weather", {"city": "Oslo"}),), thought_tokens=5))
    thinking = genai.types.ThinkingConfig(include_thoughts=True, thinking_level="LOW")
    declared = genai.types.Tool(function_declarations=[genai.types.FunctionDeclaration(name="weather")])
    config = genai.types.GenerateContentConfig(tools=[declared], thinking_config=thinking)
    contents = [genai.types.Content(role="user", parts=[genai.types.Part(text="Hello")])]
    if streamed:
        chunks = list(gemini.models.generate_content_stream(model=GEMINI, contents=contents, config=config))
        turn = [chunk.candidates[0].content for chunk in chunks]
        usage = chunks[-1].usage_metadata
    else:
        answer = gemini.models.generate_content(model=GEMINI, contents=contents, config=config)
        turn = [answer.candidates[0].content]
        usage = answer.usage_metadata
    parts = [part for content in turn for part in content.parts]
    assert parts[0].thought and usage.thoughts_token_count == 5
    call = next(part for part in parts if part.function_call)
    result = genai.types.FunctionResponse(name="weather", id=call.function_call.id, response={"output": "Rain"})
    talk = [*contents, *turn, genai.types.Content(role="user", parts=[genai.types.Part(function_response=result)])]
    assert gemini.models.generate_content(model=GEMINI, contents=talk, config=config).text == "Hello."
    sent = json.dumps(google.calls[1].body)
    returned = base64.urlsafe_b64encode(call.thought_signature).decode()
    assert returned in sent and returned.translate(str.maketrans("-_", "+/")) in google.signatures


@pytest.mark.parametrize("streamed", [False, True])
def test_a_chat_client_that_keeps_only_the_calls_returns_their_signature(
    openai: OpenAI, google: FakeGoogle, streamed: bool
) -> None:
    google.script(GoogleAnswer(tools=(("weather", {"city": "Oslo"}),)))
    tool = {"type": "function", "function": {"name": "weather"}}
    hello = {"role": "user", "content": "Hello"}
    request = {"model": GEMINI, "tools": [tool], "messages": [hello]}
    if streamed:
        chunks = list(openai.chat.completions.create(stream=True, **request))
        calls = [call for chunk in chunks for one in chunk.choices for call in one.delta.tool_calls or ()]
        assert {call.index for call in calls} == {0}
        extra = next(call.extra_content for call in calls if getattr(call, "extra_content", None))
        arguments = "".join(call.function.arguments for call in calls)
        call = {"id": calls[0].id, "type": "function", "extra_content": extra}
        call["function"] = {"name": "weather", "arguments": arguments}
    else:
        call = openai.chat.completions.create(**request).choices[0].message.tool_calls[0].model_dump()
    talk = [hello, {"role": "assistant", "content": None, "tool_calls": [call]}]
    talk.append({"role": "tool", "tool_call_id": call["id"], "content": "Rain."})
    assert openai.chat.completions.create(**request | {"messages": talk}).choices[0].message.content == "Hello."
    returned = google.calls[1].body["contents"][1]["parts"][0]["thoughtSignature"]
    assert returned == call["extra_content"]["google"]["thought_signature"] and returned in google.signatures


@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_of_another_vendor_return_to_it(gemini: genai.Client, claude: FakeAnthropic, streamed: bool) -> None:
    claude.script(ClaudeAnswer("Well.", thinking="Hm, a question."))
    thinking = genai.types.ThinkingConfig(include_thoughts=True, thinking_level="LOW")
    config = genai.types.GenerateContentConfig(thinking_config=thinking, max_output_tokens=4000)
    chat = gemini.chats.create(model=CLAUDE, config=config)
    if streamed:
        text = "".join(chunk.text or "" for chunk in chat.send_message_stream("Hello"))
    else:
        text = chat.send_message("Hello").text
    assert text == "Well."
    assert chat.send_message("And?").text
    assert [call.status for call in claude.calls] == [200, 200]
    block = claude.calls[1].body["messages"][1]["content"][0]
    assert block["type"] == "thinking" and block["thinking"] == "Hm, a question." and block["signature"]


def test_structured_answers_and_media(gemini: genai.Client, upstream: FakeOpenAI, google: FakeGoogle) -> None:
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "nullable": True}}, "required": ["city"]}
    config = genai.types.GenerateContentConfig(response_mime_type="application/json", response_schema=schema)
    image = genai.types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
    for model, fake, answer in ((OPENAI, upstream, Answer), (GEMINI, google, GoogleAnswer)):
        fake.script(answer('{"city": "Oslo"}'))
        reply = gemini.models.generate_content(model=model, contents=["Which city?", image], config=config)
        assert reply.parsed == {"city": "Oslo"} or json.loads(reply.text) == {"city": "Oslo"}
    sent = upstream.calls[0].body
    assert sent["response_format"]["json_schema"]["schema"]["properties"]["city"]["type"] == ["string", "null"]
    assert sent["messages"][0]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize("model", [OPENAI, GEMINI, CLAUDE])
def test_whole_and_streamed_answers_cost_the_same(
    gateway: LocalGateway, upstream: FakeOpenAI, google: FakeGoogle, claude: FakeAnthropic, model: str
) -> None:
    upstream.script(*[Answer("Good day to you.", prompt=100, completion=20)] * 2)
    google.script(*[GoogleAnswer("Good day to you.", prompt=100, thought_tokens=7)] * 2)
    claude.script(*[ClaudeAnswer("Good day to you.")] * 2)
    address = f"{gateway.address}/v1beta/models/{model}"
    body = {"contents": [{"parts": [{"text": "Hello"}]}]}
    headers = {"x-goog-api-key": gateway.key}
    with httpx.Client(headers=headers, timeout=60) as http:
        whole = http.post(f"{address}:generateContent", json=body).json()
        streamed = http.post(f"{address}:streamGenerateContent", json=body)
        items = streamed.json()
    assert streamed.headers["content-type"] == "application/json"
    assert whole["usageMetadata"]["cost"] == items[-1]["usageMetadata"]["cost"] > 0
    text = "".join(part["text"] for item in items for part in item["candidates"][0]["content"]["parts"])
    assert text == "Good day to you."


METHODS = ("generateContent", "streamGenerateContent", "embedContent", "batchEmbedContents")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("folder", ["/v1beta/models", "/v1/models", "/v1beta/google"])
def test_a_line_break_in_a_model_is_an_unknown_model(gateway: LocalGateway, folder: str, method: str) -> None:
    address = f"{gateway.address}{folder}/no%0Asuch:{method}"
    bodies = {
        "embedContent": {"content": {"parts": [{"text": "Hello"}]}},
        "batchEmbedContents": {"requests": [{"content": {"parts": [{"text": "Hello"}]}}]},
    }
    body = bodies.get(method, {"contents": [{"parts": [{"text": "Hello"}]}]})
    with httpx.Client(headers={"x-goog-api-key": gateway.key}, timeout=60) as http:
        answer = http.post(address, json=body)
    told = answer.json()
    error = (told[0] if isinstance(told, list) else told)["error"]
    assert (answer.status_code, error["code"], error["status"]) == (404, 404, "NOT_FOUND")
    assert "such" in error["message"] and "There is nothing at" not in error["message"]


def test_errors_are_the_classes_of_the_sdk(gateway: LocalGateway, gemini: genai.Client, upstream: FakeOpenAI) -> None:
    with pytest.raises(genai.errors.ClientError) as unknown:
        gemini.models.generate_content(model="no-such-model", contents="Hello")
    assert (unknown.value.code, unknown.value.status) == (404, "NOT_FOUND")
    with client_of(gateway, "llmgtwy_nobody") as stranger, pytest.raises(genai.errors.ClientError) as denied:
        stranger.models.generate_content(model=OPENAI, contents="Hello")
    assert (denied.value.code, denied.value.status) == (401, "UNAUTHENTICATED")
    upstream.script(Answer(status=500), Answer(status=500), Answer(status=500))
    with pytest.raises(genai.errors.ServerError) as failed:
        gemini.models.generate_content(model=OPENAI, contents="Hello")
    assert failed.value.status == "UNAVAILABLE"
    upstream.script(*[Answer("A long enough answer to be cut.", cut=900)] * 3)
    with pytest.raises(genai.errors.APIError):
        list(gemini.models.generate_content_stream(model=OPENAI, contents="Hello"))


def test_tokens_are_counted_without_an_upstream(gemini: genai.Client, upstream: FakeOpenAI) -> None:
    assert 1 <= gemini.models.count_tokens(model=OPENAI, contents="Hello").total_tokens < 20
    assert upstream.calls == []


def test_texts_are_embedded_by_any_vendor(share: Share) -> None:
    services = share.fake(FakeEmbeddingServices)
    environment = {"LLM_OPENAI_API_KEY": "sk-x", "LLM_OPENAI_BASE_URL": f"{services.address}/v1"}
    environment |= {
        "LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-x",
        "LLM_GOOGLE_AI_STUDIO_BASE_URL": f"{services.address}/v1beta",
    }
    environment |= {"LLM_VOYAGE_API_KEY": "pa-x", "LLM_VOYAGE_BASE_URL": f"{services.address}/voyage/v1"}
    gateway = share.gateway(environment)
    config = genai.types.EmbedContentConfig(output_dimensionality=3, task_type="RETRIEVAL_QUERY")
    with client_of(gateway) as gemini:
        # For its newest models the SDK makes one content of all texts.
        models = {"openai/text-embedding-3-small": 2, "google-ai-studio/gemini-embedding-2": 1, "voyage/voyage-4": 2}
        for model, count in models.items():
            result = gemini.models.embed_content(model=model, contents=["One", "Three"], config=config)
            assert [len(embedding.values) for embedding in result.embeddings] == [3] * count
    assert services.calls[1].body["requests"][0]["taskType"] == "RETRIEVAL_QUERY"
    assert services.calls[2].body["input_type"] == "query"
    with httpx.Client(headers={"x-goog-api-key": gateway.key}, timeout=60) as http:
        body = {"content": {"parts": [{"text": "One"}]}, "taskType": "RETRIEVAL_QUERY"}
        path = f"{gateway.address}/v1beta/models/openai/text-embedding-3-small:embedContent"
        warned = http.post(path, json=body).json()["metadata"]["warnings"]
    assert warned == ["taskType was left out: openai/text-embedding-3-small does not distinguish query."]


def test_models_that_the_key_can_call_are_listed_first(gateway: LocalGateway, gemini: genai.Client) -> None:
    names = [model.name for model in gemini.models.list(config={"page_size": 1000})]
    with httpx.Client(headers={"x-goog-api-key": gateway.key}, timeout=60) as http:
        entries = http.get(f"{gateway.address}/v1beta/models", params={"available": "true"}).json()["models"]
    usable = [entry["name"] for entry in entries]
    assert 0 < len(usable) < len(names) and names[: len(usable)] == usable


def test_models_are_listed_in_the_form_of_the_caller(gateway: LocalGateway, gemini: genai.Client) -> None:
    names = [model.name for model in gemini.models.list(config={"page_size": 50})]
    assert "models/gpt-4o-mini" in names and len(names) == len(set(names)) > 50
    model = gemini.models.get(model="gpt-4o-mini")
    assert "generateContent" in model.supported_actions and model.input_token_limit > 1000
    with httpx.Client(timeout=60) as http:
        assert "data" in http.get(f"{gateway.url}/models").json()
        assert "models" in http.get(f"{gateway.url}/models", params={"key": gateway.key}).json()
        assert http.get(f"{gateway.address}/v1beta/models").json()["error"]["status"] == "UNAUTHENTICATED"
        bearer = {"authorization": f"Bearer {gateway.key}"}
        assert "models" in http.get(f"{gateway.address}/v1beta/models", headers=bearer).json()
        assert "data" in http.get(f"{gateway.url}/models", headers=bearer).json()


def test_preferences_that_a_model_lacks_are_dropped(gemini: genai.Client, upstream: FakeOpenAI) -> None:
    thinking = genai.types.ThinkingConfig(include_thoughts=True, thinking_budget=-1)
    search = genai.types.Tool(google_search=genai.types.GoogleSearch())
    config = genai.types.GenerateContentConfig(
        temperature=1, top_p=0.95, top_k=64, seed=3, thinking_config=thinking, tools=[search]
    )
    for model in (OPENAI, "openai/gpt-5.4", CLAUDE):
        assert gemini.models.generate_content(model=model, contents="Hello", config=config).text


@pytest.mark.parametrize("prefix", ["/v1beta", "/v1"])
def test_a_key_in_the_address_works_and_is_in_no_log(process: Callable[..., GatewayProcess], prefix: str) -> None:
    gateway = process(GATEWAY_LOG_REQUESTS="text", GATEWAY_LOG_LEVEL="debug")
    key = gateway.key
    body = {"contents": [{"parts": [{"text": "Hello " * 20_000}]}]}  # authenticated before its body is read
    address = f"{gateway.address}{prefix}/models/sandbox-echo"
    with httpx.Client(timeout=60) as http:
        answers = [
            http.post(f"{address}:generateContent", params={"key": key}, json=body),
            http.post(f"{address}:streamGenerateContent?alt=sse&key={key}", json=body),
            http.post(f"{address}:nothing?key={key}", json=body),
            http.get(f"{gateway.address}{prefix}/models", params={"key": key}),
            http.post(f"{address}:generateContent", params={"key": f"{key}x"}, json=body),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 200, 401]
    assert all(key not in answer.text + str(answer.headers) for answer in answers)
    gateway.stop()
    assert key not in gateway.log()


ODD = (
    b"",
    b"[]",
    b"{",
    b'{"contents": []}',
    b'{"contents": [null]}',
    b'{"contents": [{"parts": null}]}',
    b'{"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}',
    b'{"contents": [{"parts": [{"text": 1}]}]}',
    b'{"contents": [{"parts": [{"inlineData": {"mimeType": "text/plain", "data": "!!"}}]}]}',
    b'{"contents": [{"parts": [{"functionCall": {"name": ""}}]}]}',
    b'{"contents": [{"parts": [{"text": "x"}]}], "tools": [1]}',
    b'{"contents": [{"parts": [{"text": "x"}]}], "tools": [{"functionDeclarations": [1]}]}',
    b'{"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"temperature": 9}}',
    b'{"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}',
)


TRANSLATED = (
    b'{"contents": [{"parts": [{}]}]}',
    b'{"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "!!"}}]}]}',
)  # which a relayed request leaves to the provider


@pytest.mark.parametrize("model", [OPENAI, GEMINI, CLAUDE])
def test_an_odd_body_is_the_callers_fault(
    gateway: LocalGateway, upstream: FakeOpenAI, google: FakeGoogle, claude: FakeAnthropic, model: str
) -> None:
    address = f"{gateway.address}/v1beta/models/{model}:generateContent"
    headers = {"x-goog-api-key": gateway.key, "content-type": "application/json"}
    with httpx.Client(headers=headers, timeout=60) as http:
        for body in ODD if model == GEMINI else (*ODD, *TRANSLATED):
            answer = http.post(address, content=body)
            assert answer.status_code == 400, (body, answer.text)
            assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


FOREIGN = base64.b64encode(b'llmgw1["anthropic","sig","","",false]').decode()
CUT = {
    "fileData": {"fileUri": "https://youtu.be/dQw4w9WgXcQ", "mimeType": "video/mp4"},
    "videoMetadata": {"startOffset": "10s", "endOffset": "20s"},
    "partMetadata": {"unknown_here": 1},
}
ASKED = {"role": "user", "parts": [CUT, {"text": "What is shown?"}]}
CALLED = {"functionCall": {"name": "look", "args": {}}}
LOOK = {"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object", "properties": {}}}]}
ANSWERED = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "A cat."}}}]}
OLDER = "google-ai-studio/gemini-2.5-flash"
MENDED = {
    "a call without a signature": (GEMINI, {"contents": [{"role": "model", "parts": [CALLED]}, ANSWERED]}),
    "a signature of another vendor": (
        GEMINI,
        {"contents": [{"role": "model", "parts": [CALLED | {"thoughtSignature": FOREIGN}]}, ANSWERED]},
    ),
    "a thought of another vendor": (
        GEMINI,
        {
            "contents": [
                {"role": "model", "parts": [{"text": "Hm.", "thought": True, "thoughtSignature": FOREIGN}]},
                {"role": "model", "parts": [{"text": "A cat."}]},
                {"role": "user", "parts": [{"text": "Sure?"}]},
            ]
        },
    ),
    "a content without parts": (GEMINI, {"contents": [{"role": "model", "parts": []}]}),
    "the role of results": (
        GEMINI,
        {"contents": [{"role": "model", "parts": [CALLED]}, ANSWERED | {"role": "function"}]},
    ),
    "a late instruction": (GEMINI, {"contents": [{"role": "system", "parts": [{"text": "Be brief."}]}]}),
    "a level for an older model": (OLDER, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}),
    "a search beside functions": (OLDER, {"tools": [LOOK, {"googleSearch": {}}]}),
    "a search beside JSON": (
        OLDER,
        {"tools": [{"googleSearch": {}}], "generationConfig": {"responseMimeType": "application/json"}},
    ),
    "a parameter that the model lacks": (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 99999}}}),
}


@pytest.mark.parametrize("cause", MENDED)
def test_a_body_that_is_changed_in_part_keeps_what_the_gateway_does_not_know(
    gateway: LocalGateway, google: FakeGoogle, cause: str
) -> None:
    model, change = MENDED[cause]
    body = {"tools": [LOOK]} | change | {"contents": [ASKED, *change.get("contents", ())]}
    body["generationConfig"] = {"mediaResolution": "MEDIA_RESOLUTION_LOW", **body.get("generationConfig", {})}
    answer = httpx.post(
        f"{gateway.address}/v1beta/models/{model}:generateContent",
        json=body,
        headers={"x-goog-api-key": gateway.key},
    )
    assert answer.status_code == 200, answer.text
    sent = google.calls[0].body
    assert sent["contents"][0] == ASKED and sent["generationConfig"]["mediaResolution"] == "MEDIA_RESOLUTION_LOW"
    assert FOREIGN not in json.dumps(sent) and '"system"' not in json.dumps(sent)


def test_a_setting_that_the_format_lacks_is_left_out_with_a_warning(gateway: LocalGateway, google: FakeGoogle) -> None:
    config = {"temperature": 0.5, "max_tokens_of_thought": 5, "madeUp": {"a": 1}}
    answer = httpx.post(
        f"{gateway.address}/v1beta/models/{GEMINI}:generateContent",
        json={"contents": [{"parts": [{"text": "Hello"}]}], "generationConfig": config},
        headers={"x-goog-api-key": gateway.key},
    )
    assert answer.status_code == 200, answer.text
    assert google.calls[0].body["generationConfig"] == {"temperature": 0.5}
    warning = answer.headers["x-llmgateway-warnings"]
    assert "generationConfig: maxTokensOfThought, madeUp was left out" in warning


@pytest.mark.parametrize("path", ["/v1beta/models/gemini-2.5-flash:unknownMethod", "/v1beta/models/a/b:unknownMethod"])
def test_an_unknown_method_does_not_exist(gateway: LocalGateway, path: str) -> None:
    answer = httpx.post(f"{gateway.address}{path}", json={}, headers={"x-goog-api-key": gateway.key})
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_is_too_long_for_a_model_goes_to_the_next_one(
    openai: OpenAI, upstream: FakeOpenAI, google: FakeGoogle, streamed: bool
) -> None:
    error = {"message": "This model's maximum context length is 128000 tokens.", "code": "context_length_exceeded"}
    upstream.script(
        Answer(status=400, error={"error": {"type": "invalid_request_error", "param": "messages", **error}})
    )
    request = {"model": OPENAI, "messages": [{"role": "user", "content": "Hello"}], "extra_body": {"models": [GEMINI]}}
    if streamed:
        chunks = list(openai.chat.completions.create(stream=True, **request))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    else:
        text = openai.chat.completions.create(**request).choices[0].message.content
    assert text == "Hello." and [call.status for call in (*upstream.calls, *google.calls)] == [400, 200]


@pytest.mark.parametrize("model", [OPENAI, CLAUDE])
def test_words_that_are_newer_than_the_gateway_have_no_effect_at_other_vendors(
    gateway: LocalGateway, upstream: FakeOpenAI, claude: FakeAnthropic, model: str
) -> None:
    body = {
        "contents": [{"parts": [{"text": "Hello"}]}],
        "tools": [LOOK],
        "toolConfig": {"functionCallingConfig": {"mode": "SOMETIMES"}},
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "DEEPEST"}},
    }
    address = f"{gateway.address}/v1beta/models/{model}:generateContent"
    answer = httpx.post(address, json=body, headers={"x-goog-api-key": gateway.key})
    assert answer.status_code == 200, answer.text
    warnings = answer.headers["x-llmgateway-warnings"]
    assert "SOMETIMES" in warnings and "thinkingLevel" in warnings
    assert [call.status for call in (*upstream.calls, *claude.calls)] == [200]
