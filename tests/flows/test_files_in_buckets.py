"""Files in an S3-compatible store, over HTTP: stored, read in ranges, used by a batch, lost, and during an outage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest
from fakes.object_store import KEY, REGION, FakeObjectStore
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway, local_gateway
from support.spending import until

from gateway.configuration.settings import Settings


@pytest.fixture
def store() -> Iterator[FakeObjectStore]:
    with FakeObjectStore() as fake:
        yield fake


@pytest.fixture
def gateway(
    settings: Callable[..., Settings],
    store: FakeObjectStore,
    upstream: FakeOpenAI,
    upstream_environment: dict[str, str],
) -> Iterator[LocalGateway]:
    environment = {
        "GATEWAY_FILES_S3_BUCKET_URL": store.url,
        "GATEWAY_FILES_S3_REGION": REGION,
        "GATEWAY_FILES_S3_KEY": ":".join(KEY),
        "GATEWAY_BATCHES_PARALLEL_LINES": "2",
    }
    with local_gateway(settings, **upstream_environment, **environment) as running:
        yield running


def test_files_are_stored_read_in_ranges_joined_and_deleted(
    client: OpenAI, gateway: LocalGateway, store: FakeObjectStore
):
    data = bytes(range(256)) * 3000
    made = client.files.create(file=("data.bin", data), purpose="user_data")
    assert client.files.content(made.id).read() == data
    headers = {"Authorization": f"Bearer {gateway.key}", "Range": "bytes=300000-300009"}
    part = httpx.get(f"{gateway.url}/files/{made.id}/content", headers=headers)
    assert (part.status_code, part.content) == (206, data[300_000:300_010])
    joined = client.uploads.upload_file_chunked(
        file=data, filename="j.bin", bytes=len(data), mime_type="text/plain", purpose="user_data", part_size=500_000
    )
    assert joined.file is not None and client.files.content(joined.file.id).read() == data
    assert len(store.objects) == 2 and not (gateway.services.settings.files_dir).exists()
    for ident in (made.id, joined.file.id):
        client.files.delete(ident)
    assert not store.objects


def test_a_batch_runs_from_the_store_and_waits_while_it_is_away(
    client: OpenAI, gateway: LocalGateway, store: FakeObjectStore
):
    body = {"model": "openai/gpt-4.1-mini", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
    lines = [json.dumps({"custom_id": f"{n}", "url": "/v1/chat/completions", "body": body}) for n in range(5)]
    file = client.files.create(file=("l.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    with store.away():
        gateway.services.engine.batches.run()
        assert client.batches.retrieve(batch.id).status == "validating"
    gateway.services.store.database.change_rows("UPDATE batch_job SET due_at = 1", ())

    def ended() -> bool:
        gateway.services.engine.batches.run()
        return client.batches.retrieve(batch.id).status == "completed"

    assert until(ended, 30)
    output = client.batches.retrieve(batch.id).output_file_id
    assert output and len(client.files.content(output).text.splitlines()) == 5


def test_while_the_store_is_away_the_caller_may_try_again(client: OpenAI, store: FakeObjectStore):
    made = client.files.create(file=("a.txt", b"tea"), purpose="user_data")
    with store.away():
        with pytest.raises(openai.InternalServerError) as refused:
            client.files.content(made.id)
        assert refused.value.status_code == 503 and "object store" in str(refused.value)
        with pytest.raises(openai.InternalServerError):
            client.files.create(file=("b.txt", b"tea"), purpose="user_data")
        assert client.files.delete(made.id).deleted
    assert [one.id for one in client.files.list()] == []


def test_what_could_not_be_deleted_is_swept_but_nothing_of_another_installation(
    client: OpenAI, gateway: LocalGateway, store: FakeObjectStore, caplog: pytest.LogCaptureFixture
):
    made, kept = (client.files.create(file=("a.txt", b"tea"), purpose="user_data") for _ in range(2))
    with store.away():
        client.files.delete(made.id)
    files = gateway.services.engine.files
    files.sweep_objects()
    assert len(store.objects) == 3  # two young contents, and the mark of the installation
    store.written = {name: store.written[name].replace(year=2020) for name in store.objects}
    mark = store.objects["installation"]
    store.objects["installation"] = b"another"
    files.sweep_objects()
    assert len(store.objects) == 3 and "Another installation" in caplog.text
    store.objects["installation"] = mark
    files.sweep_objects()
    assert len(store.objects) == 2 and client.files.content(kept.id).read() == b"tea"


def test_a_lost_object_is_answered_and_found_by_the_check(
    client: OpenAI, gateway: LocalGateway, store: FakeObjectStore
):
    made = client.files.create(file=("a.txt", b"tea"), purpose="user_data")
    files = gateway.services.engine.files
    assert files.check() == []
    store.objects.clear()
    with pytest.raises(openai.InternalServerError) as refused:
        client.files.content(made.id)
    assert refused.value.status_code == 503
    assert files.check() == [
        f"The content of {made.id} cannot be read: The content of this file is not in the gateway's object store."
    ]
    with store.away():
        assert [line.partition(":")[0] for line in files.check()] == ["The contents of files cannot be stored"]
