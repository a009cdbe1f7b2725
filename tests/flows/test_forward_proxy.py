"""A gateway with a forward proxy as its only way out: providers, traces, and the errors when it fails."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from fakes.forward_proxy import FakeForwardProxy
from fakes.openai import FakeOpenAI
from fakes.otlp import FakeCollector
from openai import APIStatusError, OpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.configuration.settings import Settings, SettingsError
from gateway.worker import accepted_configuration

ASK = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
PROVIDER, COLLECTOR = "api.provider.test", "collector.test"


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    with FakeCollector() as fake:
        yield fake


@pytest.fixture
def proxy(upstream: FakeOpenAI, collector: FakeCollector) -> Iterator[FakeForwardProxy]:
    """A proxy that alone knows the names of the provider and of the collector."""
    ports = {PROVIDER: urlsplit(upstream.url).port or 0, COLLECTOR: urlsplit(collector.address).port or 0}
    with FakeForwardProxy(ports, "gateway:secret") as fake:
        yield fake


def environment_of(proxy: str) -> dict[str, str]:
    return {
        "HTTP_PROXY": proxy,
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": f"http://{PROVIDER}/v1",
        "LLM_OPENAI_USE_RESPONSES_API": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{COLLECTOR}",
    }


@pytest.fixture
def gateway(settings: Callable[..., Settings], proxy: FakeForwardProxy) -> Iterator[LocalGateway]:
    with local_gateway(settings, **environment_of(proxy.url)) as running:
        yield running


def test_providers_and_traces_are_reached_through_the_proxy(
    gateway: LocalGateway, client: OpenAI, proxy: FakeForwardProxy, upstream: FakeOpenAI, collector: FakeCollector
) -> None:
    assert client.chat.completions.create(**ASK).choices[0].message.content
    list(client.chat.completions.create(**ASK, stream=True))
    tracing = gateway.services.telemetry.tracing
    assert tracing is not None
    tracing._processor.force_flush(5_000)
    assert len(upstream.calls) == 2 and collector.spans and proxy.refused == []
    assert "proxy-authorization" not in upstream.calls[0].headers
    assert {urlsplit(line.split(" ")[1]).hostname for line in proxy.asked} == {PROVIDER, COLLECTOR}


def test_a_refusal_of_the_proxy_names_it_and_no_password(
    settings: Callable[..., Settings], proxy: FakeForwardProxy
) -> None:
    tunnel = {**environment_of(""), "HTTPS_PROXY": f"http://gateway:wrong@{proxy.name}"}
    with local_gateway(settings, **tunnel | {"LLM_OPENAI_BASE_URL": f"https://{PROVIDER}/v1"}) as running:
        client = OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
        with pytest.raises(APIStatusError) as raised:
            client.chat.completions.create(**ASK)
    assert f"The proxy {proxy.name} refused the user and password (407)" in raised.value.response.text
    assert "wrong" not in raised.value.response.text


def test_a_provider_may_have_a_proxy_of_its_own_or_none(
    settings: Callable[..., Settings], proxy: FakeForwardProxy
) -> None:
    nowhere = {**environment_of("http://127.0.0.1:9"), "LLM_OPENAI_PROXY": proxy.url}
    with local_gateway(settings, **nowhere) as running:
        client = OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
        assert client.chat.completions.create(**ASK).choices[0].message.content
    assert [line for line in proxy.asked if PROVIDER in line]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"HTTPS_PROXY": "socks5://user:secret@proxy.test"}, "[outgoing] https_proxy: only proxies with an http://"),
        ({"LLM_OPENAI_PROXY": "ftp://user:secret@proxy.test"}, "LLM_OPENAI_PROXY: only proxies with an http://"),
        ({"GATEWAY_OUTGOING_CA_FILE": "/nowhere.pem"}, "[outgoing] ca_file: cannot read a file: No such file"),
        ({"LLM_OPENAI_CA_FILE": "/nowhere.pem"}, "LLM_OPENAI_CA_FILE: cannot read a file: No such file"),
        ({"LLM_OPENAI_CLIENT_KEY_FILE": "/key.pem"}, "LLM_OPENAI_CLIENT_KEY_FILE: it needs CLIENT_CERTIFICATE_FILE"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_before_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path, variables: dict[str, str], problem: str
) -> None:
    for name, value in {"GATEWAY_DATA_DIR": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        accepted_configuration.check()
    assert problem in str(raised.value) and "secret" not in str(raised.value)
