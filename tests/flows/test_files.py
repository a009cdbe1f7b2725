"""Files through the official clients: stored, listed, read, deleted, uploaded in parts, and named in requests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.shared import Share, Tenant

from gateway.accounts import keys
from gateway.accounts.members import add_member
from gateway.accounts.organizations import set_policy
from gateway.admin.erasure import erase_member
from gateway.files import file_rows
from gateway.files.project_files import FileOwner, NewFile
from gateway.runtime.threads import Job, pause

WAITING = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture
def messages(gateway: Tenant) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)


def test_the_official_client_stores_lists_reads_and_deletes_files(client: OpenAI):
    data = b'{"custom_id": "1"}\n' * 50_000  # several pieces
    made = client.files.create(file=("lines.jsonl", data), purpose="batch")
    assert (made.filename, made.bytes, made.purpose, made.object) == ("lines.jsonl", len(data), "batch", "file")
    assert made.expires_at is not None and made.expires_at - made.created_at == 30 * 86_400
    other = client.files.create(
        file=("note.txt", b"Tea."), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert [one.id for one in client.files.list()] == [other.id, made.id]
    assert [one.id for one in client.files.list(limit=1, order="asc")] == [made.id, other.id]
    assert [one.id for one in client.files.list(purpose="batch")] == [made.id]
    assert client.files.retrieve(other.id) == other
    assert client.files.content(made.id).read() == data
    assert client.files.wait_for_processing(other.id).status == "processed"
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(made.id)


def test_a_range_of_a_file_is_sent_alone(client: OpenAI, gateway: Tenant):
    data = bytes(range(256)) * 3000
    made = client.files.create(file=("data.bin", data), purpose="user_data")
    headers = {"Authorization": f"Bearer {gateway.key}"}
    url = f"{gateway.url}/files/{made.id}/content"
    for first, last in ((0, 0), (262_100, 262_200), (len(data) - 5, len(data) + 100)):
        answer = httpx.get(url, headers=headers | {"Range": f"bytes={first}-{last}"}, timeout=60)
        assert (answer.status_code, answer.content) == (206, data[first : last + 1])
    assert httpx.get(url, headers=headers | {"Range": f"bytes={len(data)}-"}, timeout=60).status_code == 416


def test_a_file_in_parts_is_joined_in_the_order_of_its_list(client: OpenAI, gateway: Tenant):
    data = hashlib.sha256(b"seed").digest() * 40_000
    done = client.uploads.upload_file_chunked(
        file=data,
        filename="big.bin",
        bytes=len(data),
        mime_type="application/x-big",
        purpose="user_data",
        part_size=300_000,
        md5=hashlib.md5(data).hexdigest(),
    )
    assert done.status == "completed" and done.file is not None
    assert client.files.content(done.file.id).read() == data
    with pytest.raises(openai.ConflictError):
        client.uploads.cancel(done.id)


def test_an_upload_with_wrong_parts_makes_no_file(client: OpenAI, gateway: Tenant):
    begun = client.uploads.create(bytes=10, filename="small.txt", mime_type="text/plain", purpose="user_data")
    part = client.uploads.parts.create(begun.id, data=b"0123456789")
    with pytest.raises(openai.BadRequestError, match="more than the 10 bytes"):
        client.uploads.parts.create(begun.id, data=b"x")
    with pytest.raises(openai.BadRequestError, match="MD5"):
        client.uploads.complete(begun.id, part_ids=[part.id], md5="0" * 32)
    with pytest.raises(openai.BadRequestError, match="parts of this upload"):
        client.uploads.complete(begun.id, part_ids=[part.id, part.id])
    assert client.uploads.cancel(begun.id).status == "cancelled"
    assert list(client.files.list()) == [] and contents_of(gateway) == []


def test_the_client_of_anthropic_sees_the_same_files_in_its_own_form(messages: anthropic.Anthropic, client: OpenAI):
    made = messages.beta.files.upload(file=("note.pdf", PDF, "application/pdf"))
    assert (made.filename, made.mime_type, made.size_bytes) == ("note.pdf", "application/pdf", len(PDF))
    second = messages.beta.files.upload(file=("two.txt", b"Two", "text/plain"))
    assert [one.id for one in messages.beta.files.list(limit=1)] == [second.id, made.id]
    assert messages.beta.files.retrieve_metadata(made.id).id == made.id
    assert messages.beta.files.download(made.id).read() == PDF
    assert {one.id for one in client.files.list()} == {made.id, second.id}
    assert messages.beta.files.delete(made.id).type == "file_deleted"
    with pytest.raises(anthropic.NotFoundError):
        messages.beta.files.retrieve_metadata(made.id)


def test_a_file_of_another_project_or_customer_key_is_unknown(client: OpenAI, gateway: Tenant):
    made = client.files.create(file=("note.txt", b"Tea."), purpose="user_data")
    other = OpenAI(base_url=gateway.url, api_key=customer_key(gateway), max_retries=0)
    own = other.files.create(file=("own.txt", b"Own."), purpose="user_data")
    assert [one.id for one in other.files.list()] == [own.id]
    for refused in (other.files.retrieve, other.files.content, other.files.delete):
        with pytest.raises(openai.NotFoundError):
            refused(made.id)
    with pytest.raises(openai.NotFoundError):
        other.chat.completions.create(model="gpt-4o", messages=chat_of(made.id))


def test_a_file_is_an_input_of_every_dialect(
    client: OpenAI, messages: anthropic.Anthropic, upstream: FakeOpenAI, gateway: Tenant
):
    pdf = client.files.create(file=("note.pdf", PDF), purpose="user_data").id
    png = client.files.create(file=("dot.png", PNG), purpose="vision").id
    client.chat.completions.create(model="gpt-4o", messages=chat_of(pdf))
    assert "data:application/pdf;base64,JVBERi0" in sent_to(upstream)
    client.chat.completions.create(model="gpt-4o", messages=chat_of(png))
    assert "data:image/png;base64,iVBORw0" in sent_to(upstream)
    client.responses.create(
        model="gpt-4o",
        input=[{"role": "user", "content": [{"type": "input_image", "file_id": png, "detail": "low"}]}],
        store=False,
    )
    assert "data:image/png;base64,iVBORw0" in sent_to(upstream)
    messages.messages.create(
        model="gpt-4o",
        max_tokens=50,
        messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": png}}]}],
    )
    assert "data:image/png;base64,iVBORw0" in sent_to(upstream)
    body = {"model": "sandbox-read", "document": {"type": "file", "file_id": png}}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    assert httpx.post(f"{gateway.url}/ocr", json=body, headers=headers, timeout=60).status_code == 200


def test_an_expired_file_is_deleted_with_its_content(client: OpenAI, gateway: Tenant):
    made = client.files.create(file=("note.txt", b"Secret tea."), purpose="user_data")
    assert b"Secret" not in b"".join(path.read_bytes() for path in contents_of(gateway))
    database = gateway.services.store.database
    database.write(lambda: database.execute("UPDATE stored_file SET expires_at = 1 WHERE id = ?", (made.id,)))
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    gateway.services.engine.files.purge()
    assert contents_of(gateway) == []


def test_parts_of_an_interrupted_upload_are_deleted(gateway: Tenant, client: OpenAI, monkeypatch: pytest.MonkeyPatch):
    kept = client.files.create(file=("note.txt", b"Tea."), purpose="user_data")
    files = gateway.services.engine.files
    files._contents.write([b"never inserted"])
    assert len(contents_of(gateway)) == 2
    files.sweep()
    assert len(contents_of(gateway)) == 2  # it may be an upload in progress
    monkeypatch.setattr("gateway.files.project_files.SWEEP_AGE_US", -1_000_000)
    files.sweep()
    assert len(contents_of(gateway)) == 1 and client.files.content(kept.id).read() == b"Tea."


def test_nothing_is_stored_under_zero_data_retention_and_what_was_stored_can_be_deleted(
    client: OpenAI, messages: anthropic.Anthropic, gateway: Tenant
):
    kept = client.files.create(file=("note.txt", b"Tea."), purpose="user_data")
    begun = client.uploads.create(bytes=8, filename="two.txt", mime_type="text/plain", purpose="user_data")
    part = client.uploads.parts.create(begun.id, data=b"Tea.")
    store = gateway.services.store
    set_policy(store.database, store.control, gateway.organization_id, {"zeroDataRetention": True}, actor="test")
    before = contents_of(gateway)
    for refused in (
        lambda: client.files.create(file=("note.txt", b"Tea."), purpose="user_data"),
        lambda: client.uploads.create(bytes=4, filename="a.txt", mime_type="text/plain", purpose="user_data"),
        lambda: client.uploads.parts.create(begun.id, data=b"Milk"),
        lambda: client.uploads.complete(begun.id, part_ids=[part.id]),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            refused()
        assert error.value.code == "zdr_storage_conflict"
    with pytest.raises(anthropic.BadRequestError, match="zdr_storage_conflict"):
        messages.beta.files.upload(file=("note.txt", b"Tea.", "text/plain"))
    assert contents_of(gateway) == before
    assert client.files.content(kept.id).read() == b"Tea."
    client.files.delete(kept.id)
    client.uploads.cancel(begun.id)
    assert contents_of(gateway) == []


def test_an_organization_stores_as_much_as_its_limit_and_each_content_counts_once(
    client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    files = gateway.services.engine.files
    monkeypatch.setattr(files, "_total_bytes", 1000)
    first = client.files.create(file=("first.txt", b"x" * 600), purpose="batch")
    with pytest.raises(openai.BadRequestError) as error:
        client.files.create(file=("second.txt", b"x" * 401), purpose="user_data")
    assert error.value.code == "file_storage_full" and len(contents_of(gateway)) == 1
    with pytest.raises(openai.BadRequestError, match=r"files\.organization_mb"):
        client.uploads.create(bytes=401, filename="a.txt", mime_type="text/plain", purpose="user_data")
    kept = files.keep(files._rows.find(first.id), 1 << 60)  # as a batch does with its input
    begun = client.uploads.create(bytes=400, filename="a.txt", mime_type="text/plain", purpose="user_data")
    part = client.uploads.parts.create(begun.id, data=b"x" * 300)
    with pytest.raises(openai.BadRequestError) as error:
        client.files.create(file=("second.txt", b"x" * 101), purpose="user_data")
    assert error.value.code == "file_storage_full"
    rest = client.uploads.parts.create(begun.id, data=b"x" * 100)
    assert client.uploads.complete(begun.id, part_ids=[part.id, rest.id]).status == "completed"
    client.files.delete(first.id)
    with pytest.raises(openai.BadRequestError):  # the batch still has the content
        client.files.create(file=("second.txt", b"x" * 600), purpose="user_data")
    files.release(kept.id)
    client.files.create(file=("second.txt", b"x" * 600), purpose="user_data")


def test_on_postgresql_two_files_that_are_stored_at_once_count_each_other(
    share: Share, upstream_environment: dict[str, str], shared_postgresql_url: str
):
    secrets = {"GATEWAY_API_KEY_HASH_SECRET": "h" * 32, "GATEWAY_ENCRYPTION_KEY": "e" * 32}
    gateway = share.gateway({**upstream_environment, **secrets, "DATABASE_URL": shared_postgresql_url})
    rows = gateway.services.engine.files._rows
    owner = FileOwner(gateway.organization_id, gateway.project_id, "key_none")
    found: list[int] = []

    def check(stored: int) -> None:
        found.append(stored)
        while len(found) == 1 and rows.database.execute(WAITING).fetchone()[0] == 0:
            pause(0.005)  # until the other one has counted too, or waits for this one

    new = NewFile("a.txt", "text/plain", "user_data")
    files = [gateway.services.engine.files._new_row(owner, new, 600, f"content-{number}") for number in range(2)]
    storing = [Job(rows.insert, file, check) for file in files]
    for one in storing:
        one.result(60)
    assert found == [0, 600]
    for file in files:
        rows.delete(file.id)


def test_uploads_with_many_parts_expire_a_few_at_a_time(client: OpenAI, gateway: Tenant, monkeypatch):
    monkeypatch.setattr(file_rows, "BATCH_SIZE", 3)
    rows = gateway.services.engine.files._rows
    for _ in range(3):
        begun = client.uploads.create(bytes=8, filename="a.txt", mime_type="text/plain", purpose="user_data")
        for data in (b"Tea.", b"Milk"):
            client.uploads.parts.create(begun.id, data=data)
    database = gateway.services.store.database
    expire = "UPDATE stored_file SET expires_at = 1 WHERE organization = ?"
    database.change_rows(expire, (gateway.organization_id,))
    count, contents = rows.purge(2)
    gateway.services.engine.files._contents.delete(contents)
    assert (count, len(contents)) == (2, 4) and len(contents_of(gateway)) == 2
    gateway.services.engine.files.purge()
    assert contents_of(gateway) == []


def test_a_part_that_arrives_after_the_end_of_its_upload_is_not_stored(
    client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    begun = client.uploads.create(bytes=8, filename="two.txt", mime_type="text/plain", purpose="user_data")
    contents = gateway.services.engine.files._contents
    write = contents.write

    def cancel_first(pieces):
        client.uploads.cancel(begun.id)
        return write(pieces)

    monkeypatch.setattr(contents, "write", cancel_first)
    with pytest.raises(openai.ConflictError, match="cancelled"):
        client.uploads.parts.create(begun.id, data=b"Tea.")
    assert contents_of(gateway) == []
    sql = "SELECT COUNT(*) FROM file_part WHERE organization = ?"
    assert gateway.services.store.database.query_row(sql, (gateway.organization_id,)) == (0,)


def test_the_erasure_of_a_person_deletes_the_files_and_uploads_of_the_persons_keys(client: OpenAI, gateway: Tenant):
    store = gateway.services.store
    stores = store.database, store.control
    person = add_member(*stores, gateway.organization_id, "nn@tea.example", "developer", actor="test")
    draft = keys.Draft(gateway.project_id, person.id, "laptop")
    token = keys.create(*stores, store.secrets.hash_keys, draft, actor="test").token
    theirs = OpenAI(base_url=gateway.url, api_key=token, max_retries=0)
    kept = client.files.create(file=("note.txt", b"Tea."), purpose="user_data")
    gone = theirs.files.create(file=("note.txt", b"Milk"), purpose="user_data")
    begun = theirs.uploads.create(bytes=8, filename="two.txt", mime_type="text/plain", purpose="user_data")
    theirs.uploads.parts.create(begun.id, data=b"Milk")
    assert len(contents_of(gateway)) == 3
    erase_member(*stores, person, actor="test")
    gateway.services.accounts.erasures.finish()
    gateway.services.engine.files.purge()
    assert [file.id for file in client.files.list()] == [kept.id] and len(contents_of(gateway)) == 1
    with pytest.raises(openai.NotFoundError):
        client.files.content(gone.id)
    assert client.files.content(kept.id).read() == b"Tea."


def chat_of(ident: str) -> list:
    part = {"type": "file", "file": {"file_id": ident}}
    return [{"role": "user", "content": [{"type": "text", "text": "Read this."}, part]}]


def sent_to(upstream: FakeOpenAI) -> str:
    return json.dumps(upstream.calls[-1].body)


def contents_of(gateway: Tenant) -> list[Path]:
    """Return the contents on the disk of this organization's files."""
    database = gateway.services.store.database
    others = {
        row[0]
        for table in ("stored_file", "file_part")
        for row in database.query_rows(f"SELECT content, organization FROM {table}", ())
        if row[1] != gateway.organization_id
    }
    files = gateway.services.settings.files_dir.rglob("*")
    return [path for path in files if path.is_file() and path.name not in others]


def customer_key(gateway: Tenant) -> str:
    """Return a new key for a customer of the gateway's project."""
    services = gateway.services
    owner = services.accounts.authentication.caller(gateway.key)
    draft = keys.Draft(owner.project_id, owner.member_id, "customer", "customer")
    stores = services.store
    return keys.create(stores.database, stores.control, stores.secrets.hash_keys, draft, actor="test").token
