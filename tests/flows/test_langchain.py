"""LangChain's client for OpenAI through the whole gateway: before the strict fake, and before the sandbox."""

from __future__ import annotations

from typing import Any

import langchain_openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import APIError
from pydantic import BaseModel
from support.gateways import LocalGateway
from support.shared import Share

MODEL = "openai/gpt-4o-mini"


class City(BaseModel):
    """A city."""

    name: str
    people: int


@pytest.fixture(scope="module")
def weather() -> Any:
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    return weather


def chain(gateway: LocalGateway, model: str = MODEL, **more) -> langchain_openai.ChatOpenAI:
    return langchain_openai.ChatOpenAI(model=model, base_url=gateway.url, api_key=gateway.key, max_retries=0, **more)


@pytest.fixture
def bare(share: Share) -> LocalGateway:
    """A gateway without any provider's key: only the sandbox answers."""
    return share.gateway({}, name="bare")


def test_an_answer_has_its_text_and_usage(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=10, completion=5))
    answer = chain(gateway).invoke([("system", "Be brief."), ("human", "Hello")])
    assert answer.content == "Good day."
    assert answer.usage_metadata["total_tokens"] == 15
    assert upstream.calls[0].body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_stream_adds_up_with_its_usage_counted_once(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day to you.", prompt=10, completion=5, piece=3))
    chunks = list(chain(gateway, stream_usage=True).stream("Hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == "Good day to you."
    assert whole.usage_metadata["total_tokens"] == 15


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop_goes_round(gateway: LocalGateway, upstream: FakeOpenAI, weather: Any, streamed: bool) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}')), piece=1))
    upstream.script(Answer("It rains."))
    bound = chain(gateway, streaming=streamed).bind_tools([weather])
    said = bound.invoke("Weather?")
    assert [call["args"] for call in said.tool_calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in said.tool_calls]
    assert bound.invoke([HumanMessage("Weather?"), said, *results]).content == "It rains."
    assert [message["content"] for message in upstream.calls[1].body["messages"][2:]] == [
        "Rain in Oslo.",
        "Rain in Rome.",
    ]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_has_the_requested_class(gateway: LocalGateway, upstream: FakeOpenAI, method: str) -> None:
    text = '{"name": "Oslo", "people": 700000}'
    upstream.script(Answer(text) if method == "json_schema" else Answer(tools=(("City", text),)))
    assert chain(gateway).with_structured_output(City, method=method).invoke("Oslo?") == City(
        name="Oslo", people=700000
    )


def test_a_cut_stream_raises(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer that is cut.", piece=2, cut=900))
    with pytest.raises(APIError):
        list(chain(gateway).stream("Hello"))


def test_the_sandbox_answers_whole_and_streamed(bare: LocalGateway) -> None:
    client = chain(bare, "auto")
    assert client.invoke("Hello!").content == "Hello!"
    assert "".join(str(chunk.content) for chunk in client.stream("Hello!")) == "Hello!"


def test_the_sandbox_calls_a_tool(bare: LocalGateway, weather: Any) -> None:
    from langchain_core.messages import AIMessage

    said = chain(bare, "auto").bind_tools([weather], tool_choice="weather").invoke("Weather?")
    assert isinstance(said, AIMessage)
    assert [call["name"] for call in said.tool_calls] == ["weather"]


def test_the_sandbox_gives_structured_output(bare: LocalGateway) -> None:
    assert isinstance(chain(bare, "auto").with_structured_output(City).invoke("Oslo?"), City)
