import time
from dataclasses import replace

import pytest

from gateway import ids
from gateway.callers.vault import Vault
from gateway.errors import Unavailable
from gateway.metering import payload_table
from gateway.metering.payload_table import PURGE_ROWS, STORE, PayloadRow, write_row
from gateway.metering.usage_table import raw_id

VAULT = Vault(["an-encryption-key-of-tests"])
PROJECT = ids.new("proj")


def row(at: int = 1, expires_at: int = 2**60, packed: bytes = b"packed", **more) -> PayloadRow:
    own = {name: raw_id(ids.new("x")) for name in ("organization", "api_key", "member")}
    values = {"request": bytes.fromhex(ids.new_hex()), "project": raw_id(PROJECT), "at": at, "expires_at": expires_at}
    values |= {"operation": "chat", "path": "/v1/x", "asked": "m", "served": "p/m", "status": 200, "flags": 0}
    values |= {"sent_bytes": 1, "answer_bytes": 1, "sent": packed, "answer": packed, "raw": None}
    return PayloadRow(**(own | values | more))


def fill(database, rows: list[PayloadRow]) -> None:
    database.write(lambda: database.execute_many(STORE.sql, [write_row(row)[1] for row in rows]))


def count(database) -> int:
    return database.read(lambda: database.execute("SELECT count(*) FROM request_log").fetchone()[0])


@pytest.mark.parametrize("data", [b"", b'{"a": "\xc3\xa4"}' * 1000, bytes(range(256))])
def test_packed_data_is_unpacked_unchanged(data: bytes) -> None:
    packed = payload_table.pack(VAULT, data)
    assert payload_table.unpack(VAULT, packed) == data and (not data or data[:16] not in packed)


def test_a_payload_is_smaller_packed_than_sent() -> None:
    data = b'{"role": "user", "content": "Hello, how are you today?"}' * 100
    assert len(payload_table.pack(VAULT, data)) < len(data) / 10


def test_with_another_key_a_payload_stays_closed() -> None:
    packed = payload_table.pack(VAULT, b"secret")
    assert payload_table.unpack(Vault(["the-newest-encryption-key", "an-encryption-key-of-tests"]), packed) == b"secret"
    with pytest.raises(Unavailable):
        payload_table.unpack(Vault(["the-newest-encryption-key"]), packed)


def test_many_expired_payloads_go_in_small_transactions_and_the_others_stay(database, monkeypatch) -> None:
    fill(database, [row(expires_at=number) for number in range(3 * PURGE_ROWS + 7)])
    fill(database, [row() for _ in range(5)])
    sizes, write = [], database.write

    def watched(work, patient=False):
        sizes.append(write(work, patient))
        return sizes[-1]

    monkeypatch.setattr(database, "write", watched)
    assert payload_table.purge(database) == 3 * PURGE_ROWS + 7
    assert sizes == [PURGE_ROWS] * 3 + [7] and count(database) == 5 and payload_table.purge(database) == 0


def test_a_purge_of_large_payloads_reads_none_of_them(database) -> None:
    fill(database, [row(expires_at=1, packed=b"x" * 200_000) for _ in range(100)])
    start = time.monotonic()
    assert payload_table.purge(database) == 100
    assert time.monotonic() - start < 5 and count(database) == 0


def test_the_second_payload_of_a_request_changes_nothing(database) -> None:
    first = row()
    fill(database, [first])
    fill(database, [replace(first, status=500)])
    assert payload_table.find_log(database, first.request.hex()).status == 200


def test_an_expired_or_malformed_log_is_not_found(database) -> None:
    gone = row(expires_at=1)
    fill(database, [gone])
    assert payload_table.find_log(database, gone.request.hex()) is None is payload_table.find_log(database, "none")
    assert database.read(lambda: payload_table.payloads_of(database, [gone.request])) == {}
