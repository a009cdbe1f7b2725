"""Every method that the pinned official clients have for files, uploads, batches, message batches and background
responses is called: a method that a later version adds fails this test until it is called too."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from openai import OpenAI
from support.fleet import wait_until
from support.shared import Tenant

MODEL = "gpt-4o-mini"
LINE = {"custom_id": "1", "url": "/v1/embeddings", "body": {"model": "sandbox-embed", "input": "Tea"}}
REQUEST = {
    "custom_id": "1",
    "params": {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello!"}]},
}
# Methods of responses that no background response has: a prompt's compaction, and WebSockets.
NOT_IN_BACKGROUND = {"compact", "connect"}


class Recorded:
    """A resource of a client that notes the methods that are called."""

    def __init__(self, resource: Any) -> None:
        self._resource = resource
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._resource, name)

    @property
    def methods(self) -> set[str]:
        members = inspect.getmembers(type(self._resource), inspect.isfunction)
        return {name for name, _ in members if not name.startswith("_")}


@pytest.fixture
def messages(gateway: Tenant) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)


def run_until(gateway: Tenant, done: Callable[[], bool]) -> None:
    """Run batches until `done`."""

    def ran() -> bool:
        gateway.services.engine.batches.run()
        return done()

    wait_until(ran)


def test_every_method_of_files_and_uploads(client: OpenAI):
    files, uploads, parts = Recorded(client.files), Recorded(client.uploads), Recorded(client.uploads.parts)
    made = files.create(file=("a.txt", b"tea"), purpose="user_data")
    assert files.retrieve(made.id) == files.wait_for_processing(made.id) == made
    with warnings.catch_warnings(action="ignore"):
        assert files.content(made.id).read() == b"tea" and files.retrieve_content(made.id) == "tea"
    assert [one.id for one in files.list()] == [made.id] and files.delete(made.id).deleted
    begun = uploads.create(bytes=3, filename="a.txt", mime_type="text/plain", purpose="user_data")
    part = parts.create(begun.id, data=b"tea")
    assert uploads.complete(begun.id, part_ids=[part.id]).file is not None
    whole = uploads.upload_file_chunked(
        file=b"more tea", filename="b.txt", bytes=8, mime_type="text/plain", purpose="user_data", part_size=4
    )
    assert whole.status == "completed"
    other = uploads.create(bytes=3, filename="c.txt", mime_type="text/plain", purpose="user_data")
    assert uploads.cancel(other.id).status == "cancelled"
    assert [one.called for one in (files, uploads, parts)] == [one.methods for one in (files, uploads, parts)]


def test_every_method_of_batches(client: OpenAI, gateway: Tenant):
    batches = Recorded(client.batches)
    file = client.files.create(file=("l.jsonl", json.dumps(LINE).encode()), purpose="batch")
    wire: Any = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    done, ended = batches.create(**wire), batches.create(**wire)
    assert batches.cancel(ended.id).status == "cancelling"
    run_until(gateway, lambda: {batches.retrieve(one.id).status for one in (done, ended)} == {"completed", "cancelled"})
    assert [one.id for one in batches.list()] == [ended.id, done.id]
    assert batches.called == batches.methods


@pytest.mark.parametrize("beta", [False, True])
def test_every_method_of_message_batches(messages: anthropic.Anthropic, gateway: Tenant, beta: bool):
    batches = Recorded(messages.beta.messages.batches if beta else messages.messages.batches)
    done, ended = batches.create(requests=[REQUEST]), batches.create(requests=[REQUEST])
    assert batches.cancel(ended.id).processing_status in ("canceling", "ended")
    run_until(gateway, lambda: all(batches.retrieve(one.id).processing_status == "ended" for one in (done, ended)))
    assert [one.result.type for one in batches.results(done.id)] == ["succeeded"]
    assert [one.id for one in batches.list()] == [ended.id, done.id]
    assert batches.delete(done.id).type == "message_batch_deleted"
    assert batches.called == batches.methods


def test_every_method_of_files_of_anthropic(messages: anthropic.Anthropic):
    files = Recorded(messages.beta.files)
    made = files.upload(file=("a.txt", b"tea", "text/plain"))
    assert files.retrieve_metadata(made.id).filename == "a.txt" and files.download(made.id).read() == b"tea"
    assert [one.id for one in files.list()] == [made.id] and files.delete(made.id).id == made.id
    assert files.called == files.methods


def test_every_method_of_background_responses(client: OpenAI):
    responses, items = Recorded(client.responses), Recorded(client.responses.input_items)
    begun = responses.create(model=MODEL, input="Hello!", background=True)
    wait_until(lambda: responses.retrieve(begun.id).status == "completed")
    assert responses.cancel(begun.id).output_text == "Hello."
    assert [one.role for one in items.list(begun.id)] == ["user"]
    with responses.stream(response_id=begun.id, starting_after=1) as events:
        assert next(event.sequence_number for event in events) == 2
    parsed = responses.parse(model=MODEL, input="Hello!", background=True)
    wait_until(lambda: client.responses.retrieve(parsed.id).status == "completed")
    responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(begun.id)
    assert responses.called == responses.methods - NOT_IN_BACKGROUND
    assert items.called == items.methods
