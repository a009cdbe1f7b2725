"""A provider that hangs while another one serves: how long its callers wait."""

import time

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import local_gateway
from support.two_providers import write_twins

HELLO = [{"role": "user", "content": "Hello"}]
HANG = Answer("Too late.", silence_s=40)


@pytest.fixture
def south():
    with FakeOpenAI() as fake:
        yield fake


def took_s(gateway, body: dict) -> float:
    began = time.monotonic()
    url = f"{gateway.url}/chat/completions"
    with httpx.Client(timeout=60) as http:
        answer = http.post(url, json=body, headers={"Authorization": f"Bearer {gateway.key}"})
    assert answer.status_code == 200 and "Hello." in answer.text, answer.text
    return time.monotonic() - began


@pytest.mark.slow
def test_no_stream_waits_for_fifteen_seconds(settings, tmp_path, upstream, south):
    """With the settings as delivered, of calls that begin together and of later ones."""
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, **environment) as gateway:
        upstream.script(*[HANG] * 60)
        (alone,) = gevent.joinall([gevent.spawn(took_s, gateway, body)])
        assert 10 < alone.get() < 15
        together = [gevent.spawn(took_s, gateway, body) for _ in range(12)]
        assert max(one.get(timeout=60) for one in together) < 9  # they are silent together, which counts for all
        later = [gevent.spawn(took_s, gateway, body) for _ in range(12)]
        assert max(one.get(timeout=60) for one in later) < 4  # the provider is resting: they do not wait for it


@pytest.mark.slow
def test_a_measured_model_is_left_sooner(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, **environment) as gateway:
        for _ in range(40):
            took_s(gateway, body)
        assert len(upstream.calls) == 40
        upstream.script(HANG)
        assert 4 < took_s(gateway, body) < 8
