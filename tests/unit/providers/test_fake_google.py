"""The strict upstream is held to the official client, and must refuse what the real service refuses."""

import json
import urllib.error
import urllib.request

import pytest
from fakes.google import Answer, FakeGoogle
from google import genai

SKY = {"functionCall": {"name": "look", "args": {}}}
SEEN = {"functionResponse": {"name": "look", "response": {"output": "blue"}}}
HELLO = {"role": "user", "parts": [{"text": "Hello?"}]}


@pytest.fixture
def upstream():
    with FakeGoogle() as fake:
        yield fake


def post(upstream: FakeGoogle, body: dict, model="gemini-3-flash", method="generateContent") -> tuple[int, dict]:
    request = urllib.request.Request(
        f"{upstream.url}/models/{model}:{method}",
        json.dumps(body).encode(),
        {"x-goog-api-key": "AIza-good", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_official_client_runs_a_streamed_tool_loop(upstream):
    client = genai.Client(api_key="AIza-good", http_options=genai.types.HttpOptions(base_url=upstream.address))
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    look = genai.types.FunctionDeclaration(name="look", parameters_json_schema=schema)
    config = genai.types.GenerateContentConfig(tools=[genai.types.Tool(function_declarations=[look])])
    upstream.script(Answer(tools=(("look", {"at": "sky"}),)), Answer("It is blue."))
    chat = client.chats.create(model="gemini-3-flash", config=config)
    calls = [part for chunk in chat.send_message_stream("Look!") for part in chunk.function_calls or ()]
    answer = genai.types.FunctionResponse(id=calls[0].id, name="look", response={"output": "blue"})
    text = "".join(chunk.text or "" for chunk in chat.send_message_stream(genai.types.Part(function_response=answer)))
    assert text == "It is blue." and [call.status for call in upstream.calls] == [200, 200]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"contents": []}, "contents is not specified"),
        ({"contents": [HELLO], "seed": 1}, 'Unknown name "seed"'),
        ({"contents": [HELLO], "generationConfig": {"maxTokens": 1}}, 'Unknown name "maxTokens"'),
        ({"contents": [HELLO], "generationConfig": {"temperature": 3}}, "temperature"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [HELLO, {"role": "user", "parts": [SEEN]}]}, "equal to the number of function call"),
        ({"contents": [HELLO, {"role": "model", "parts": [SKY]}, HELLO]}, "function response turn"),
        (
            {"contents": [HELLO, {"role": "model", "parts": [SKY]}, {"role": "user", "parts": [SEEN]}]},
            "thought_signature",
        ),
        ({"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "3d"}]}]}, "Invalid function name"),
    ],
)
def test_requests_that_the_service_refuses_are_refused(upstream, body, words):
    status, reply = post(upstream, body)
    assert (status, reply["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert words in reply["error"]["message"] and upstream.calls[0].usage is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "OBJECT", "properties": {"a": {"type": "STRING", "format": "uuid"}}},
        {"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}},
        {"type": "OBJECT", "properties": {}, "required": ["a"]},
        {"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": [""]}}},
        {"type": "OBJECT", "properties": {"a": {"type": "STRING", "oneOf": []}}},
    ],
)
def test_schema_outside_the_grammar_is_refused(upstream, schema):
    body = {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}
    assert post(upstream, body)[0] == 400


def test_unknown_model_and_key_are_refused(upstream):
    assert post(upstream, {"contents": [HELLO]}, model="gemini-none")[0] == 404
    assert post(upstream, {"contents": [HELLO]}, method="predict")[0] == 404
