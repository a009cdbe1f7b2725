"""Contents in an object store: signed, in pieces and parts, through failures; those of others are never deleted."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.fernet import Fernet
from fakes.object_store import KEY, REGION, FakeObjectStore

from gateway.callers.vault import Vault
from gateway.clock import HOUR_US, Clock
from gateway.configuration.settings import Settings
from gateway.errors import Unavailable
from gateway.files import object_store
from gateway.files.content_folder import ContentFolder
from gateway.files.content_store import PIECE_BYTES, ContentLost
from gateway.files.file_contents import FileContents
from gateway.files.opened_contents import open_contents
from gateway.providers.identities.upstream_identity import UpstreamIdentities
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.transport import Transport

OLD = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def store() -> Iterator[FakeObjectStore]:
    with FakeObjectStore() as fake:
        yield fake


@pytest.fixture
def states() -> StateLog:
    return StateLog()


@pytest.fixture
def contents(store: FakeObjectStore, settings: Callable[..., Settings], states: StateLog) -> FileContents:
    return open_at(store, settings, states)


def open_at(store: FakeObjectStore, settings: Callable[..., Settings], states: StateLog, **more: str) -> FileContents:
    chosen = settings(
        **{
            "GATEWAY_FILES_S3_BUCKET_URL": store.url,
            "GATEWAY_FILES_S3_REGION": REGION,
            "GATEWAY_FILES_S3_PREFIX": "ours/a b+c",
            "GATEWAY_FILES_S3_KEY": ":".join(KEY),
            **more,
        }
    )
    clock = Clock()
    transport = Transport(chosen.timeouts, chosen.security, clock=clock)
    vault = Vault([Fernet.generate_key().decode()])
    return open_contents(chosen, vault, transport, clock, states, UpstreamIdentities({}, clock, states))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "FIRST_WAIT_S", 0.01)


def read(contents: FileContents, ident: str, start: int, end: int) -> bytes:
    return b"".join(contents.read(ident, start, end))


def test_a_content_is_one_encrypted_object_of_which_any_range_is_read(store: FakeObjectStore, contents: FileContents):
    data = bytes(range(256)) * 12_000  # of 3 MB: several pieces, and more than one read
    ident, size = contents.write([data[:100_000], data[100_000:]])
    assert size == len(data)
    name = f"ours/a b+c/{ident[-2:]}/{ident}"
    assert list(store.objects) == [name] and data[:64] not in store.objects[name]
    assert read(contents, ident, 0, size) == data
    for start, end in ((0, 1), (PIECE_BYTES - 1, PIECE_BYTES + 1), (size - 5, size), (700_000, 2_700_000), (5, 5)):
        assert read(contents, ident, start, end) == data[start:end]
    contents.delete([ident])
    assert not store.objects
    assert all(KEY[1] not in str(call) for call in store.calls)


def test_an_empty_content_is_an_object(store: FakeObjectStore, contents: FileContents):
    ident, size = contents.write([])
    assert size == 0 and list(store.objects.values()) == [b""] and read(contents, ident, 0, 0) == b""


def test_a_long_content_is_sent_in_parts(store: FakeObjectStore, contents: FileContents):
    block = bytes(range(256)) * 1024
    ident, size = contents.write(block for _ in range(70))  # two parts of 8 MB, and a rest
    assert size == 70 * len(block) and not store.uploads
    assert [call.path.partition(" ")[0] for call in store.calls] == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert read(contents, ident, 33 * len(block), 34 * len(block)) == block
    assert sum(len(piece) for piece in contents.read(ident, 0, size)) == size


@pytest.mark.parametrize("failing", ["part", "completion"])
def test_parts_of_a_failed_upload_are_deleted(store: FakeObjectStore, contents: FileContents, failing: str):
    def blocks() -> Iterator[bytes]:
        for number in range(70):
            if number == 69:
                store.failures += [400] if failing == "part" else []
                store.fails_at_completion = failing == "completion"
            yield b"a" * PIECE_BYTES

    with pytest.raises(Unavailable, match="object store does not answer"):
        contents.write(blocks())
    assert not store.uploads and not store.objects


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failure_that_passes_is_not_noticed(store: FakeObjectStore, contents: FileContents, status: int):
    store.failures += [status, status]
    ident, _ = contents.write([b"kettle"])
    store.failures += [status, status]
    assert read(contents, ident, 0, 6) == b"kettle"


def test_an_outage_is_reported_once_and_its_end_too(store: FakeObjectStore, contents: FileContents, states: StateLog):
    changes: list[StateChange] = []
    states.subscribe(changes.append)
    ident, _ = contents.write([b"kettle"])
    with store.away():
        for _ in range(2):
            with pytest.raises(Unavailable, match="try again later"):
                contents.write([b"tea"])
        with pytest.raises(Unavailable):
            contents.read(ident, 0, 6)
        contents.delete([ident])  # a later sweep does it
    assert read(contents, ident, 0, 6) == b"kettle"
    assert [change.event for change in changes] == ["object_store.away", "object_store.back"]
    assert not any(part in f"{change}" for change in changes for part in (*KEY, "of the+secret"))


def test_a_store_that_refuses_the_key_is_not_asked_again(
    store: FakeObjectStore, settings: Callable[..., Settings], states: StateLog
):
    changes: list[StateChange] = []
    states.subscribe(changes.append)
    contents = open_at(store, settings, states, GATEWAY_FILES_S3_KEY=f"{KEY[0]}:another")
    with pytest.raises(Unavailable):
        contents.write([b"tea"])
    assert len(store.calls) == 1 and "403 SignatureDoesNotMatch" in changes[0].message
    assert "another" not in changes[0].message


def test_a_slow_store_ends_with_an_error(
    store: FakeObjectStore, contents: FileContents, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(object_store, "CALL_S", 0.05)
    store.slow_s = 0.3
    with pytest.raises(Unavailable):
        contents.write([b"tea"])


def test_a_missing_object_is_a_lost_content(store: FakeObjectStore, contents: FileContents):
    ident, size = contents.write([b"a" * (3 * PIECE_BYTES)])
    name = next(iter(store.objects))
    store.objects[name] = store.objects[name][: PIECE_BYTES // 2]
    with pytest.raises(Unavailable, match="cannot be read with the configured"):
        read(contents, ident, 0, size)
    with pytest.raises(ContentLost):
        contents.read(ident, size - 1, size)
    store.objects.clear()
    with pytest.raises(ContentLost, match="not in the gateway's object store"):
        contents.read(ident, 0, size)


def test_what_was_stored_in_the_folder_before_is_read_and_deleted_there(store: FakeObjectStore, contents: FileContents):
    before = FileContents(ContentFolder(contents.folder.folder), None, contents._vault)
    ident, size = before.write([b"kettle"])
    assert read(contents, ident, 0, size) == b"kettle"
    contents.delete([ident])
    with pytest.raises(ContentLost):
        before.read(ident, 0, size)


def test_a_copy_of_the_folder_is_a_bucket(store: FakeObjectStore, contents: FileContents):
    """Tools may copy contents from one to the other."""
    before = FileContents(ContentFolder(contents.folder.folder), None, contents._vault)
    ident, size = before.write([b"kettle"])
    [path] = contents.folder.folder.glob("??/*")
    store.objects[f"ours/a b+c/{path.relative_to(contents.folder.folder)}"] = path.read_bytes()
    path.unlink()
    assert read(contents, ident, 0, size) == b"kettle"


def test_a_sweep_finds_old_objects_and_aborts_old_uploads(store: FakeObjectStore, contents: FileContents):
    assert contents.objects is not None
    idents = sorted(contents.write([b"tea"])[0] for _ in range(5))
    for name in list(store.objects)[:4]:
        store.written[name] = OLD
    store.objects["theirs/aa/" + "0" * 32] = store.objects["ours/a b+c/other"] = b""
    store.written |= {name: OLD for name in store.objects if name not in store.written}
    store.uploads["dead"] = "ours/a b+c/aa/bb", {}, OLD
    store.uploads["young"] = "ours/a b+c/aa/cc", {}, datetime.now(UTC)
    found = list(contents.objects.older_than(HOUR_US, Clock().now_us()))
    assert len(found) == 4 and set(found) < set(idents)
    assert list(store.uploads) == ["young"]


def test_a_prefix_belongs_to_the_first_installation(contents: FileContents):
    assert contents.objects is not None
    assert contents.objects.claim("first") and contents.objects.claim("first")
    assert not contents.objects.claim("second")


def test_a_bucket_may_be_in_the_name_of_the_host(settings: Callable[..., Settings], states: StateLog):
    """As in https://our-files.s3.amazonaws.com."""
    bucket = object_store.Bucket("https://our-files.example.com/", REGION, "")
    objects = object_store.ObjectStore(bucket, None, None, Clock(), states)  # type: ignore[arg-type]
    assert objects._url("aa/b", {}) == "https://our-files.example.com/aa/b"
    assert objects._url("", {"b": "x/ y", "a": ""}) == "https://our-files.example.com/?a=&b=x%2F%20y"
