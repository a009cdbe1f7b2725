"""Files, uploads, batches, message batches and background responses with the official clients of Node (`openai`,
`@anthropic-ai/sdk`) over the sandbox: run by `make media` alone."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.cohere import KEY as COHERE_KEY
from fakes.cohere import FakeCohere
from fakes.message_batches import FakeAnthropicBatches
from fakes.mistral import KEY as MISTRAL_KEY
from fakes.openai_batches import FakeMistralBatches, FakeOpenAIBatches
from support import npm
from support.gateways import GatewayProcess

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "media-clients"
PACKAGES = {"openai": "7.57.0", "@anthropic-ai/sdk": "1.14.0"}
RUN_S = 300
NOTE, TEXT = "The kettle is in the kitchen.", "One two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of each call."""
    folder = CACHE / "jobs"
    npm.install(folder, PACKAGES)
    node = npm.node(CACHE)
    gateway = GatewayProcess(tmp_path_factory.mktemp("jobs") / "data", GATEWAY_BOOTSTRAP_CREDITS_USD="100")
    try:
        gateway.start()
        command = [node, HERE / "drive_jobs.mjs", folder, gateway.address, gateway.key]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_S)
    finally:
        gateway.stop()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    refused = {name for name, value in found.items() if isinstance(value, dict) and "refusal" in value}
    expected = ("afterwards", "unknown", "gone", "early")
    assert {name: found[name] for name in refused if not name.endswith(expected)} == {}
    return found


def test_every_method_of_files_batches_and_responses_is_called(results: dict[str, Any]) -> None:
    assert results["missed"] == {}


def test_files_are_stored_from_every_source_and_read(results: dict[str, Any]) -> None:
    stored, note, named = (results[name] for name in ("file", "file_of_bytes", "file_of_a_blob"))
    assert (stored["filename"], stored["bytes"]) == ("lines.jsonl", len(results["file_content"].encode()))
    assert results["file_shown"] == results["file_processed"] == stored
    assert (named["filename"], named["bytes"]) == ("tëa ☕.txt", 4)
    assert note["expires_at"] - note["created_at"] == 3600
    assert results["file_of_an_answer"]["bytes"] == note["bytes"] == len(NOTE)
    assert results["files"] == [stored["id"], note["id"], named["id"], results["file_of_an_answer"]["id"]]
    assert results["files_of_batches"] == [stored["id"]] and results["file_part"] == NOTE[4:10]
    assert "note.txt" in results["file_asked"]
    assert results["file_deleted"] == {"id": named["id"], "object": "file", "deleted": True}
    assert_refused(results["file_afterwards"], "NotFoundError", 404)


def test_a_file_is_joined_from_its_parts(results: dict[str, Any]) -> None:
    done = results["upload_completed"]
    assert (done["status"], done["file"]["bytes"], results["upload_content"]) == ("completed", 11, "tea, kettle")
    assert results["upload_cancelled"]["status"] == "cancelled"
    assert_refused(results["upload_afterwards"], "ConflictError", 409)


def test_batches_are_sent_listed_and_cancelled(results: dict[str, Any]) -> None:
    ended = results["batch_ended"]
    assert ended["status"] == "completed" and ended["metadata"] == {"team": "tea"}
    assert ended["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    lines = [json.loads(line) for line in results["batch_output"].splitlines()]
    answers = [line["response"]["body"]["choices"][0]["message"]["content"] for line in lines]
    assert answers == [line["custom_id"] for line in lines] == ["Tea", "Milk"]
    (error,) = map(json.loads, results["batch_errors"].splitlines())
    assert error["response"]["status_code"] == 400
    assert results["batch_cancelled"]["status"] == "cancelling"
    assert results["batch_cancelled_at_last"]["status"] == "cancelled"
    assert results["batches"] == [results["batch_to_cancel"]["id"], ended["id"]]
    assert_refused(results["batch_unknown"], "NotFoundError", 404)


def test_background_responses_are_streamed_again_from_any_event(results: dict[str, Any]) -> None:
    for name in ("response_streamed", "response_left"):
        events = results[name]
        assert events["numbers"] == list(range(len(events["numbers"]))), events
        assert (events["text"], events["last"]) == (TEXT, "response.completed")
    numbers = results["response_streamed"]["numbers"]
    assert results["response_from_four"] == numbers[5:] and results["response_followed"] == TEXT
    assert results["response_shown"]["output"][0]["content"][0]["text"] == TEXT
    assert [item["role"] for item in results["response_items"]] == ["user"]
    assert results["response_streamed_at_once"][-1] == "response.completed"


def test_background_responses_are_cancelled_and_deleted(results: dict[str, Any]) -> None:
    assert results["response"]["status"] == "queued" and results["response"]["background"] is True
    assert results["response_cancelled"]["status"] == results["response_afterwards"]["status"] == "cancelled"
    assert_refused(results["response_gone"], "NotFoundError", 404)


def test_the_client_of_anthropic_stores_and_names_files(results: dict[str, Any]) -> None:
    file, second = results["a_file"], results["a_file_of_disk"]
    assert (file["filename"], file["mime_type"], results["a_file_content"]) == ("two.txt", "text/plain", "The kettle.")
    assert results["a_file_shown"] == file
    assert results["a_files"][:2] == [second["id"], file["id"]] and results["file"]["id"] in results["a_files"]
    assert len(set(results["a_files"])) == len(results["a_files"])
    assert results["a_file_asked"]["content"][0]["text"].startswith("The kettle.")
    assert results["a_file_deleted"] == {"id": file["id"], "type": "file_deleted"}
    assert_refused(results["a_file_afterwards"], "NotFoundError", 404)


@pytest.mark.parametrize("place", ["stable", "beta"])
def test_messages_are_sent_in_batches(results: dict[str, Any], place: str) -> None:
    ended, cancelled = results[f"{place}_ended"], results[f"{place}_cancelled_at_last"]
    counts = {"processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0}
    assert ended["request_counts"] == counts
    first, second, third = results[f"{place}_results"]
    assert [one["result"]["message"]["content"][0]["text"] for one in (first, second)] == ["Tea", "Milk"]
    assert (third["custom_id"], third["result"]["type"]) == ("m2", "errored")
    assert third["result"]["error"]["error"]["type"] == "invalid_request_error"
    assert results[f"{place}_early"]["refusal"]["name"] == "AnthropicError"
    assert results[f"{place}_cancelled"]["processing_status"] == "canceling"
    assert cancelled["request_counts"]["canceled"] + cancelled["request_counts"]["succeeded"] == 3
    kinds = [one["result"]["type"] for one in results[f"{place}_cancelled_results"]]
    assert kinds.count("canceled") == cancelled["request_counts"]["canceled"] and len(kinds) == 3
    assert results[f"{place}_listed"][:2] == [cancelled["id"], ended["id"]]
    assert results[f"{place}_deleted"] == {"id": ended["id"], "type": "message_batch_deleted"}
    assert_refused(results[f"{place}_afterwards"], "NotFoundError", 404)


# Providers with a batch API of their own, and one without: a model of each.
MODELS = {
    "openai": "openai/gpt-4o-mini",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "mistral": "mistral/mistral-small-latest",
    "cohere": "cohere/command-a-03-2025",
}


@pytest.fixture(scope="module")
def at_providers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return what the clients get for models of four strict fakes, and the batches that each fake saw."""
    folder = CACHE / "jobs"
    npm.install(folder, PACKAGES)
    node = npm.node(CACHE)
    with (
        FakeOpenAIBatches() as first,
        FakeAnthropicBatches() as second,
        FakeMistralBatches() as third,
        FakeCohere() as last,
    ):
        fakes = dict(zip(MODELS, (first, second, third, last), strict=True))
        environment = {
            **{f"LLM_{name.upper()}_BASE_URL": fake.url for name, fake in fakes.items()},
            "LLM_OPENAI_API_KEY": "sk-upstream",
            "LLM_ANTHROPIC_API_KEY": "sk-ant-upstream",
            "LLM_MISTRAL_API_KEY": MISTRAL_KEY,
            "LLM_COHERE_API_KEY": COHERE_KEY,
            "GATEWAY_BOOTSTRAP_CREDITS_USD": "100",
        }
        gateway = GatewayProcess(tmp_path_factory.mktemp("providers") / "data", **environment)
        try:
            gateway.start()
            models = json.dumps(list(MODELS.values()))
            command = [node, HERE / "drive_provider_jobs.mjs", folder, gateway.address, gateway.key, models]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_S)
        finally:
            gateway.stop()
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


@pytest.mark.parametrize("client", ["chat", "messages"])
def test_a_batch_of_models_of_four_providers_is_split_among_their_batch_apis(
    at_providers: dict[str, Any], client: str
) -> None:
    found = at_providers[client]
    assert found["answered"] == list(MODELS.values()), found
    assert sorted(found["providers"]) == ["anthropic", "mistral", "openai"]


def test_background_responses_of_every_provider_are_read_again_and_deleted(at_providers: dict[str, Any]) -> None:
    for model in MODELS.values():
        found = at_providers["responses"][model]
        assert found["text"] and found["again"] == found["numbers"][3:] and found["gone"] == 404, (model, found)


def assert_refused(result: dict[str, Any], name: str, status: int) -> None:
    assert (result["refusal"]["name"], result["refusal"]["status"]) == (name, status), result
