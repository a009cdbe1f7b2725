"""Asks the strict fake of a provider's protocol whether the service takes a request, and has a short answer of each."""

import json
from typing import Any

from corpus.replay import Heard
from fakes import anthropic_checks, bedrock_checks, cohere, google_checks, mistral, openai_checks, responses_checks

from gateway.catalogue import loader

Json = dict[str, Any]
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
ANSWERS: dict[str, Json] = {
    "openai": {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi.", "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "google": {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    },
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hi."}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    },
    "cohere": {
        "id": "c",
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
        "usage": {"tokens": {"input_tokens": 1, "output_tokens": 1}},
    },
}
# Members that servers of OpenAI's format have and OpenAI has not.
COMPATIBLE = ("thinking", "enable_thinking", "chat_template_kwargs", "reasoning_split")


def check_accepted(provider: str, protocol: str, heard: Heard) -> None:
    """Raise the fake's Refused for a request that the service refuses. New kinds of items and blocks, which the
    published types lack, are not checked."""
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": heard.path, "CONTENT_TYPE": "application/json"}
    match protocol:
        case "anthropic":
            anthropic_checks.check_request({**environ, "PATH_INFO": "/v1/messages"}, heard.headers, heard.body)
        case "google":
            google_checks.check_request(
                {**environ, "PATH_INFO": f"/v1beta/models/{heard.path.rpartition('/')[2]}"},
                heard.headers,
                heard.body,
                {},
            )
        case "bedrock":
            bedrock_checks.check_body(heard.path, heard.body)
        case "cohere":
            cohere.check_body(_decoded(heard))
        case "openai-responses":
            responses_checks.check_request({**environ, "PATH_INFO": "/v1/responses"}, heard.headers, heard.body, set())
            if loader.load().providers[provider].responses_tools:
                responses_checks.check_common_items(json.loads(heard.body)["input"])
        case _ if provider == "mistral":
            mistral.check_body(heard.body)
            openai_checks.check_answers(_decoded(heard)["messages"])
        case _:
            _check_chat(provider, _decoded(heard))


def _decoded(heard: Heard) -> Json:
    return openai_checks.parse(
        {"REQUEST_METHOD": "POST", "PATH_INFO": openai_checks.PATH, "CONTENT_TYPE": "application/json"},
        {"authorization": "Bearer key"},
        heard.body,
    )


def _check_chat(provider: str, body: Json) -> None:
    if "reasoning_content_required" in loader.load().providers[provider].quirks:
        openai_checks.check_reasoned_calls(body)
    if "compatible" in loader.load().providers[provider].quirks:
        openai_checks.check_answers(body["messages"])
    if "alternating_roles" in loader.load().providers[provider].quirks:
        openai_checks.check_alternation(body["messages"])
    bare = {name: value for name, value in body.items() if name not in COMPATIBLE}
    bare["messages"] = [
        {name: value for name, value in message.items() if name != "reasoning_content"} for message in body["messages"]
    ]
    openai_checks.check_body({**bare, "model": "gpt-4"} if provider != "openai" else bare)
