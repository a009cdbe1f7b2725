"""Provider keys in files (NAME_FILE) that are replaced while the gateway serves, as secrets of Kubernetes are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import APIStatusError, OpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.configuration.settings import Settings
from gateway.errors import Unavailable
from gateway.worker.recurring_jobs import JOB_TABLE

ASK = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
REFRESH = next(job for job in JOB_TABLE if job.name == "provider_keys")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("sk-first\n")
    return path


@pytest.fixture
def gateway(settings: Callable[..., Settings], upstream: FakeOpenAI, key_file: Path) -> Iterator[LocalGateway]:
    environment = {"LLM_OPENAI_API_KEY_FILE": str(key_file), "LLM_OPENAI_BASE_URL": upstream.url}
    with local_gateway(settings, LLM_OPENAI_USE_RESPONSES_API="false", **environment) as running:
        yield running


def sent_keys(upstream: FakeOpenAI) -> list[str]:
    return [call.headers["authorization"].removeprefix("Bearer ") for call in upstream.calls]


def refresh(gateway: LocalGateway) -> None:
    REFRESH.function(gateway.services, lambda: True)


def test_a_replaced_key_is_used_without_a_restart(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI, key_file: Path
) -> None:
    client.chat.completions.create(**ASK)
    (key_file.parent / "new").write_text("sk-second")
    (key_file.parent / "new").rename(key_file)
    refresh(gateway)
    client.chat.completions.create(**ASK)
    assert sent_keys(upstream) == ["sk-first", "sk-second"]


def test_the_request_after_a_refused_key_uses_the_new_one(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI, key_file: Path
) -> None:
    client.chat.completions.create(**ASK)
    key_file.write_text("sk-second")
    upstream.script(Answer(status=401))
    with pytest.raises(APIStatusError):
        client.chat.completions.create(**ASK)
    client.chat.completions.create(**ASK)
    assert sent_keys(upstream)[-1] == "sk-second" and len(sent_keys(upstream)) == 3


def test_a_key_stays_in_use_while_its_file_cannot_be_read(
    gateway: LocalGateway, client: OpenAI, upstream: FakeOpenAI, key_file: Path
) -> None:
    client.chat.completions.create(**ASK)
    key_file.unlink()
    with pytest.raises(Unavailable, match="LLM_OPENAI_API_KEY_FILE: cannot read"):
        refresh(gateway)
    client.chat.completions.create(**ASK)
    key_file.write_text("sk-second")
    refresh(gateway)
    client.chat.completions.create(**ASK)
    assert sent_keys(upstream) == ["sk-first", "sk-first", "sk-second"]
