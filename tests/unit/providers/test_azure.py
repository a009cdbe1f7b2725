from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fakes.azure import DATED, KEY, Answer, FakeAzure

from gateway.catalogue import loader
from gateway.catalogue.base_urls import address_of, join_base
from gateway.catalogue.entries import Mapping
from gateway.catalogue.environment_credentials import settings_for
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import ContentRefused, UpstreamRefused
from gateway.neutral.chat import ChatRequest, Conversation, ReasoningOptions, Requirements, Sampling
from gateway.neutral.events import Finished, collect
from gateway.neutral.parts import Message, Text
from gateway.providers.openai.address import address_of as locate
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Network
from gateway.transport import Transport

CATALOGUE = loader.load()
TALK = Conversation((Message("user", (Text("hi"),)),), reasoning=ReasoningOptions(effort="low"), sampling=Sampling(9))


def target(provider_id: str, base_url: str = "", secret: str = KEY, **environment: str) -> Target:
    """A target as the operator's environment makes it."""
    provider = CATALOGUE.provider(provider_id)
    settings = settings_for(provider, environment)
    address = address_of(provider, join_base(provider, base_url) if base_url else "", settings)
    return Target(
        provider, Mapping(provider_id, "m", "gpt-5", reasoning=True), Credential(secret), address, settings, True
    )


def url(where: Target, path: str = "/chat/completions") -> str:
    return locate(where, path)[0]


@pytest.fixture
def upstream() -> Iterator[FakeAzure]:
    with FakeAzure("gpt-5") as server:
        yield server


@pytest.fixture
def generate() -> Iterator[Callable]:
    transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(True, (), ()))
    upstreams = Upstreams({"openai": chat_wire("openai", OpenAIChat())}, Network(transport), {}, 1)

    def send(where: Target, stream=False):
        request = ChatRequest("m", Requirements(stream=stream), lambda: TALK)
        deadline = Clock().monotonic() + 60
        if not stream:
            return upstreams.send(request, where, deadline)
        return [event for batch in upstreams.stream(request, where, deadline).batches for event in batch]

    yield send
    transport.close()


def test_resource_or_base_url_leads_to_the_undated_api():
    expected = "https://mine.openai.azure.com/openai/v1/chat/completions"
    assert url(target("azure", LLM_AZURE_RESOURCE="mine")) == expected
    assert url(target("azure", "https://mine.openai.azure.com/")) == expected
    assert url(target("azure", "https://mine.openai.azure.com/openai/v1")) == expected


def test_dated_version_puts_the_deployment_into_the_path():
    where = target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_API_VERSION=DATED)
    base = "https://mine.openai.azure.com/openai"
    assert url(where) == f"{base}/deployments/gpt-5/chat/completions?api-version={DATED}"
    assert url(where, "/responses") == f"{base}/responses?api-version={DATED}"


def test_named_version_stays_at_the_undated_api():
    where = target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_API_VERSION="preview")
    assert url(where) == "https://mine.openai.azure.com/openai/v1/chat/completions?api-version=preview"


def test_deployment_of_a_foundry_is_at_its_own_host():
    where = target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_DEPLOYMENT_TYPE="ai-foundry")
    assert url(where) == "https://mine.services.ai.azure.com/openai/v1/chat/completions"
    dated = target(
        "azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_DEPLOYMENT_TYPE="AI-Foundry", LLM_AZURE_API_VERSION=DATED
    )
    assert url(dated).startswith("https://mine.services.ai.azure.com/openai/deployments/gpt-5/")


def test_unknown_type_of_deployment_gives_no_address_to_guess():
    assert target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_DEPLOYMENT_TYPE="classic").address == ""


@pytest.mark.parametrize(
    ("wish", "own", "expected"),
    [
        ("", "", "openai"),
        ("", "openai-responses", "openai-responses"),
        ("true", "", "openai-responses"),
        ("1", "openai-responses", "openai-responses"),
        ("false", "openai-responses", "openai"),
    ],
)
def test_operator_chooses_between_the_two_formats(wish, own, expected):
    where = target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_USE_RESPONSES_API=wish)
    assert replace(where, mapping=replace(where.mapping, protocol=own)).protocol == expected


@pytest.mark.parametrize(("wish", "second"), [("", "openai-responses"), ("false", ""), ("true", "")])
def test_a_model_of_both_formats_has_a_second_one_unless_the_operator_chose(wish, second):
    where = target("azure", LLM_AZURE_RESOURCE="mine", LLM_AZURE_USE_RESPONSES_API=wish)
    assert replace(where, mapping=replace(where.mapping, responses_api=True)).second == second
    assert replace(where, mapping=replace(where.mapping, responses_api=False)).second == ""
    assert replace(where, mapping=replace(where.mapping, protocol="openai-responses")).second == ""
    assert url(where, "/responses") == "https://mine.openai.azure.com/openai/v1/responses"


def test_choice_of_format_leaves_other_formats_alone():
    where = target("azure-anthropic", LLM_AZURE_ANTHROPIC_RESOURCE="mine")
    assert replace(where, settings={**where.settings, "use_responses_api": "true"}).protocol == "anthropic"


def test_foundry_has_its_path_version_and_header():
    found, headers = locate(target("azure-ai-foundry", LLM_AZURE_AI_FOUNDRY_RESOURCE="mine"), "/chat/completions")
    assert found == "https://mine.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview"
    assert headers == {"extra-parameters": "pass-through", "api-key": KEY}


@pytest.mark.parametrize("settings", [{}, {"LLM_AZURE_API_VERSION": DATED}, {"LLM_AZURE_API_VERSION": "preview"}])
@pytest.mark.parametrize("stream", [True, False])
def test_every_form_is_accepted_and_read(generate, upstream, settings, stream):
    found = generate(target("azure", upstream.url, **settings), stream)
    result = collect([found]) if stream else found
    assert upstream.calls[0].problem == ""
    assert (result.choices[0].parts, result.choices[0].finish) == ((Text("Hello."),), "stop")
    assert (result.usage.input, result.usage.output) == (9, 3)


def test_foundry_takes_the_old_name_of_the_limit(generate, upstream):
    upstream_body = OpenAIChat().write(
        ChatRequest("m", Requirements(), lambda: TALK), target("azure-ai-foundry", upstream.url)
    )
    assert b'"max_tokens":9' in upstream_body.body and upstream_body.url.startswith(f"{upstream.url}/models/")


def test_filtered_prompt_is_a_refusal_of_content_and_no_fault(generate, upstream):
    upstream.script(Answer(filtered="prompt"))
    with pytest.raises(ContentRefused) as raised:
        generate(target("azure", upstream.url))
    assert raised.value.code == "content_filter" and raised.value.blame == "caller"


@pytest.mark.parametrize("stream", [True, False])
def test_filtered_answer_ends_as_one(generate, upstream, stream):
    upstream.script(Answer("Half", filtered="answer"))
    found = generate(target("azure", upstream.url), stream)
    assert (found[-1].reason if stream else found.choices[0].finish) == "content_filter"
    assert not stream or isinstance(found[-1], Finished)


def test_unknown_deployment_is_the_providers_fault():
    with FakeAzure("another") as server:
        transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(True, (), ()))
        upstreams = Upstreams({"openai": chat_wire("openai", OpenAIChat())}, Network(transport), {}, 1)
        request = ChatRequest("m", Requirements(), lambda: TALK)
        with pytest.raises(UpstreamRefused):
            upstreams.send(request, target("azure", server.url, LLM_AZURE_API_VERSION=DATED), Clock().monotonic() + 60)
        transport.close()


def test_wrong_key_is_refused_without_being_shown(generate, upstream):
    with pytest.raises(UpstreamRefused) as raised:
        generate(target("azure", upstream.url, secret="wrong-key-0123456789"))
    assert "wrong-key" not in f"{raised.value} {raised.value.details}"
