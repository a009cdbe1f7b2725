import threading

import gevent
import pytest

from gateway.store.documents import Documents


@pytest.fixture
def documents(database):
    return Documents(database)


def test_a_document_comes_back_as_it_went_in(documents):
    documents.put("stored_response", "r", b"\x00one", 60)
    documents.put("stored_response", "r", b"two\xff", 60)
    assert documents.get("stored_response", "r") == b"two\xff"


def test_a_key_belongs_to_its_kind(documents):
    documents.put("idempotency", "k", b"1", 60)
    assert documents.get("response_cache", "k") is None


def test_only_one_of_many_claims_a_key(documents):
    claims = [gevent.spawn(documents.put_if_absent, "idempotency", "k", b"%d" % n, 60) for n in range(20)]
    gevent.joinall(claims, raise_error=True)
    assert [claim.value for claim in claims].count(True) == 1


def test_an_expired_document_is_absent_and_can_be_claimed_again(documents):
    documents.put("idempotency", "k", b"old", -1)
    assert documents.get("idempotency", "k") is None
    assert documents.put_if_absent("idempotency", "k", b"new", 60)
    assert not documents.put_if_absent("idempotency", "k", b"newer", 60)
    assert documents.get("idempotency", "k") == b"new"


def test_a_deleted_document_is_gone(documents):
    documents.put("idempotency", "k", b"1", 60)
    assert documents.delete("idempotency", "k")
    assert not documents.delete("idempotency", "k")
    assert documents.get("idempotency", "k") is None


def test_the_sweep_takes_the_expired_only(database, documents):
    _fill(database, 1200, "old", 1)
    documents.put("response_cache", "kept", b"1", 60)
    assert documents.sweep({}) == 1200
    assert documents.get("response_cache", "kept") == b"1"


def test_a_document_that_is_stored_again_during_a_sweep_stays(database, documents):
    documents.put("idempotency", "k", b"old", -1)
    stored = threading.Event()

    def claim():
        documents.put_if_absent("idempotency", "k", b"new", 60)
        stored.set()
        if database.kind == "postgresql":
            gevent.sleep(0.1)

    claiming = gevent.spawn(database.write, claim)
    stored.wait(60)
    documents.sweep({})
    claiming.get(timeout=60)
    assert documents.get("idempotency", "k") == b"new"


def test_the_sweep_keeps_a_kind_within_its_bound_dropping_the_oldest(documents):
    for n in range(6):
        documents.put("response_cache", str(n), b"x", 60 + n)
    documents.put("idempotency", "other", b"x", 1)
    assert documents.sweep({"response_cache": 2, "absent": 5}) == 4
    assert [documents.get("response_cache", str(n)) for n in (3, 4, 5)] == [None, b"x", b"x"]
    assert documents.get("idempotency", "other") == b"x"


def test_a_life_span_ends_on_the_stores_clock(sqlite_database, clock):
    documents = Documents(sqlite_database)
    documents.put("idempotency", "k", b"1", 60)
    clock.advance(59)
    assert documents.get("idempotency", "k") == b"1"
    clock.advance(2)
    assert documents.get("idempotency", "k") is None


def _fill(database, count, kind, expires_at):
    rows = [(kind, str(n), b"x", expires_at) for n in range(count)]
    sql = "INSERT INTO document (kind, key, value, expires_at) VALUES (?, ?, ?, ?)"
    database.write(lambda: database.execute_many(sql, rows))
