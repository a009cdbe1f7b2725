"""Streamed answers of the inference API, read by the client's HTTP client."""

from pathlib import Path

import pytest
from harness.fake_service import CUT, Answer, FakeService

from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.http_client import ApiClient, read_events
from llmgateway_cli.output import Output
from llmgateway_cli.settings import Settings

STREAM = {"Content-Type": "text/event-stream"}
FAILED = [
    (Answer(200, 'data: {"a": 1}\n\n', STREAM), "ended before it was complete"),
    (Answer(200, 'data: {"error": {"message": "Out of credits.", "code": "x"}}\n\n', STREAM), "Out of credits."),
    (Answer(200, "data: nonsense\n\n", STREAM), "cannot be understood"),
    (Answer(200, {"a": 1}), "cannot be understood"),
    (Answer(200, "<html>", {"Content-Type": "text/html"}), "A web page"),
    (Answer(402, {"error": {"message": "No credits.", "code": "insufficient_credits"}}), "No credits."),
    (CUT, "was lost"),
]


@pytest.fixture
def api(service: FakeService, tmp_path: Path) -> ApiClient:
    environment = {
        "LLMGATEWAY_CONFIG_DIR": str(tmp_path),
        "LLMGATEWAY_GATEWAY_URL": service.url,
        "LLMGATEWAY_API_KEY": "llmgtwy_key",
        "LLMGATEWAY_TIMEOUT": "10",
    }
    settings = Settings(environment)
    return ApiClient(settings, Output(environment, settings))


def read(api: ApiClient) -> list[object]:
    return list(api.gateway_stream("/v1/chat/completions", {"model": "auto"}))


def test_events_are_decoded_until_the_end(service: FakeService, api: ApiClient) -> None:
    service.script(Answer(200, ': ping\n\ndata: {"a":\ndata: 1}\n\ndata: {"b": "é"}\r\n\r\ndata: [DONE]\n\n', STREAM))
    assert read(api) == [{"a": 1}, {"b": "é"}]
    (call,) = service.calls
    assert (call.headers["authorization"], call.headers["x-source"]) == ("Bearer llmgtwy_key", "llmgateway-cli")


@pytest.mark.parametrize(("answer", "part"), FAILED)
def test_a_failed_stream_has_a_message(answer: Answer | str, part: str, service: FakeService, api: ApiClient) -> None:
    service.script(answer)
    with pytest.raises(CliError, match=part):
        read(api)
    assert len(service.calls) == 1


def test_the_code_and_the_remedy_of_a_refusal_are_kept(service: FakeService, api: ApiClient) -> None:
    service.script(Answer(401, {"error": {"message": "Bad key.", "code": "invalid_api_key"}}))
    with pytest.raises(HttpError) as raised:
        read(api)
    assert (raised.value.status, raised.value.code, raised.value.request_id) == (401, "invalid_api_key", "req_fake")
    assert "auth login --key" in raised.value.remedy


def test_a_key_that_was_copied_badly_is_not_sent(service: FakeService, api: ApiClient) -> None:
    with pytest.raises(CliError, match="no key has"):
        api.gateway("GET", "/v1/key", key="llmgtwy_1\nHost: evil")
    assert service.calls == []


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_may_be_cut_anywhere(size: int) -> None:
    text = "event: x\ndata: é\n\r\ndata: b\r\n\r\n".encode()
    chunks = (text[start : start + size] for start in range(0, len(text), size))
    assert list(read_events(chunks)) == ["é", "b"]
