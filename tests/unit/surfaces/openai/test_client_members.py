from typing import Any

import pytest

from gateway.surfaces.openai.chat import find_adapt, join_calls

DETAILS = {"total_cost": 0.5, "upstream_inference_cost": 0.4, "upstream_inference_prompt_cost": 0.3, "output_cost": 0.1}
METADATA = {"request_id": "r1", "requested_provider": None, "routing": []}
GROQ = (
    "Groq/Python 1.7.0",
    "AsyncGroq/Python 1.7.0",
    "Groq/JS 2.3.0",
    "ai-sdk/groq/3.0.71 ai-sdk/x/4",
    "ai-sdk-groq/4.0.84",
)
WHOLE = ("mistral-client-python/3.7.0", "mistral-client-typescript/2.7.0", "ai-sdk/xai/3.0.138", "ai-sdk-xai/4.0.84")
PERPLEXITY = (
    "Perplexity/Python 0.46.1",
    "AsyncPerplexity/Python 0.46.1",
    "Perplexity/JS 0.46.1",
    "ai-sdk/perplexity/4.0.49",
)
SERIALIZED = (
    {"user_agent": "pydantic-ai/2.3", "x_stainless_lang": "python"},
    {"x_stainless_lang": "python", "x_stainless_helper_method": "chat.completions.parse"},
    {"x_stainless_lang": "python", "x_stainless_raw_response": "true"},
)
OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"user_agent": "OpenAI/Python 3.57.0", "x_stainless_lang": "python"},
    {"user_agent": "OpenAI/JS 7.57.0", "x_stainless_lang": "js", "x_stainless_helper_method": "chat.completions.parse"},
    {"user_agent": "ai/7.0.173 ai-sdk/x/5"},
)


def tail() -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 3, "cost": 0.5, "cost_details": DETAILS}, "metadata": METADATA}


def adapted(body: dict[str, Any], **headers: str) -> dict[str, Any]:
    adapt = find_adapt({name.replace("_", "-"): value for name, value in headers.items()})
    if adapt is not None:
        adapt(body)
    return body


@pytest.mark.parametrize("agent", GROQ)
def test_clients_of_groq_find_the_usage_of_a_stream_in_a_member_of_its_own(agent: str) -> None:
    body = adapted(tail(), user_agent=agent, x_stainless_lang="python")
    assert body == tail() | {"x_groq": {"id": "r1", "usage": tail()["usage"]}}
    answer = tail() | {"object": "chat.completion"}
    assert adapted(answer.copy(), user_agent=agent) == answer


@pytest.mark.parametrize("agent", PERPLEXITY)
def test_clients_of_perplexity_find_the_parts_of_the_cost_in_one_object(agent: str) -> None:
    for body in (tail(), tail() | {"object": "chat.completion"}):
        cost = adapted(body, user_agent=agent)["usage"]["cost"]
        assert cost == {"input_tokens_cost": 0.3, "output_tokens_cost": 0.1, "request_cost": 0.1, "total_cost": 0.5}


@pytest.mark.parametrize("headers", SERIALIZED)
def test_clients_that_serialize_answers_find_only_texts_in_the_metadata(headers: dict[str, str]) -> None:
    body = adapted(tail() | {"object": "chat.completion"}, **headers)
    assert (body["metadata"], body["llmgateway"]) == ({"request_id": "r1"}, METADATA)
    assert adapted(tail(), **headers) == tail()


@pytest.mark.parametrize("headers", OTHERS)
def test_other_clients_get_the_answer_as_it_is(headers: dict[str, str]) -> None:
    assert find_adapt({name.replace("_", "-"): value for name, value in headers.items()}) is None


@pytest.mark.parametrize("agent", WHOLE)
def test_clients_that_read_whole_calls_are_known(agent: str) -> None:
    assert find_adapt({"user-agent": agent}) is join_calls
    assert adapted(tail(), user_agent=agent) == tail()
