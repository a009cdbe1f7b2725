"""Organizations above their quota lose the oldest payloads, in small steps; others lose none."""

import pytest

from gateway import ids
from gateway.metering.payload_table import QUOTA_STEP_ROWS, STORE, PayloadQuota, PayloadRow, write_row
from gateway.metering.usage_table import raw_id

LARGE, SMALL = raw_id(ids.new("org")), raw_id(ids.new("org"))
PROJECTS = {LARGE: [raw_id(ids.new("proj")), raw_id(ids.new("proj"))], SMALL: [raw_id(ids.new("proj"))]}


def row(organization: bytes, project: int, at: int, size: int) -> PayloadRow:
    own = {name: raw_id(ids.new("x")) for name in ("api_key", "member")}
    values = {"request": bytes.fromhex(ids.new_hex()), "project": PROJECTS[organization][project], "at": at}
    values |= {"organization": organization, "expires_at": 2**60, "operation": "chat", "path": "/v1/x", "asked": "m"}
    values |= {"served": "p/m", "status": 200, "flags": 0, "sent_bytes": 1, "answer_bytes": 1}
    third = size // 4
    return PayloadRow(**(own | values), sent=b"s" * third, answer=b"a" * third, raw=b"r" * (size - 2 * third))


@pytest.fixture
def kept(database):
    rows = [row(LARGE, n % 2, n, 1000) for n in range(3 * QUOTA_STEP_ROWS)] + [
        row(SMALL, 0, n, 1000) for n in range(50)
    ]
    database.write(lambda: database.execute_many(STORE.sql, [write_row(row)[1] for row in rows]))
    return database


def ages(database, organization: bytes) -> list[int]:
    sql = "SELECT at FROM request_log WHERE organization = ? ORDER BY at"
    return [at for (at,) in database.read(lambda: database.execute(sql, (organization,)).fetchall())]


def test_the_oldest_go_until_the_rest_fits_and_the_others_keep_theirs(kept, monkeypatch) -> None:
    steps, write = [], kept.write
    monkeypatch.setattr(kept, "write", lambda work, patient=False: steps.append(1) or write(work, patient))
    room = PayloadQuota(kept, 100 * 1000)
    assert room.keep() == 3 * QUOTA_STEP_ROWS - 100 and len(steps) == 3
    assert (
        ages(kept, LARGE) == list(range(3 * QUOTA_STEP_ROWS - 100, 3 * QUOTA_STEP_ROWS))
        and len(ages(kept, SMALL)) == 50
    )
    assert room.keep() == 0


def test_without_a_quota_or_when_interrupted_nothing_is_deleted(kept) -> None:
    assert PayloadQuota(kept, 0).keep() == PayloadQuota(kept, 1).keep(lambda: False) == 0
    assert len(ages(kept, LARGE)) == 3 * QUOTA_STEP_ROWS


def test_a_payload_larger_than_the_quota_is_deleted_too(database) -> None:
    database.write(lambda: database.execute_many(STORE.sql, [write_row(row(SMALL, 0, 1, 100_000))[1]]))
    assert PayloadQuota(database, 1000).keep() == 1 and ages(database, SMALL) == []
