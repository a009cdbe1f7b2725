import re
import threading
from types import SimpleNamespace

import gevent
import peewee
import pytest

from gateway import ids
from gateway.errors import Internal, InvalidRequest
from gateway.limits.ledger import LedgerBook
from gateway.money import MAX_AMOUNT_NUSD

DOLLAR = 10**9


@pytest.fixture
def organization():
    return ids.new("org")


def test_a_grant_counts_once_for_each_reference(books, organization):
    for _ in range(3):
        books.ledger.grant(organization, DOLLAR, f"first:{organization}")
    books.ledger.grant(organization, DOLLAR, f"second:{organization}")
    assert books.ledger.balance(organization).balance_nusd == 2 * DOLLAR


def test_credits_can_be_removed(books, organization):
    books.ledger.grant(organization, DOLLAR, f"a:{organization}")
    assert books.ledger.post(organization, "adjustment", -DOLLAR // 2, f"b:{organization}", "chargeback")
    assert books.ledger.balance(organization).funded_nusd == DOLLAR // 2


@pytest.mark.parametrize("kind", ["usage", "storage"])
def test_spending_cannot_be_posted_manually(books, organization, kind):
    with pytest.raises(Internal):
        books.ledger.post(organization, kind, 1, "x")


def test_a_closed_hour_is_booked_once_and_late_usage_as_an_adjustment(books, organization):
    assert books.ledger.close_hour(organization, "2026-01-31T14", 500) == 500
    assert books.ledger.close_hour(organization, "2026-01-31T14", 500) == 0
    assert books.ledger.close_hour(organization, "2026-01-31T14", 520) == 20
    assert books.ledger.close_hour(organization, "2026-01-31T14", 520) == 0
    kinds = [(entry.kind, entry.amount_nusd) for entry in books.ledger.entries(organization)]
    assert sorted(kinds) == [("adjustment", -20), ("usage", -500)]


def test_storage_of_a_closed_hour_is_a_separate_entry(books, organization):
    assert books.ledger.close_hour(organization, "2026-01-31T14", 500, 30) == 530
    assert books.ledger.close_hour(organization, "2026-01-31T14", 500, 30) == 0
    assert books.ledger.close_hour(organization, "2026-01-31T14", 500, 35) == 5
    kinds = [(entry.kind, entry.amount_nusd) for entry in books.ledger.entries(organization)]
    assert sorted(kinds) == [("adjustment", -5), ("storage", -30), ("usage", -500)]


def test_closing_an_hour_reads_no_entries_from_before_it(books, organization, monkeypatch):
    database, statements = books.worker.database, []
    execute = database.execute
    monkeypatch.setattr(database, "execute", lambda *given: (statements.append(given), execute(*given))[1])
    books.ledger.close_hour(organization, "2026-01-31T14", 500)
    monkeypatch.undo()
    [(sql, params)] = [parameters for parameters in statements if "SUM(amount_nusd)" in parameters[0]]

    def explain():
        if database.kind == "sqlite":
            return database.fetch(f"EXPLAIN QUERY PLAN {sql}", params)
        database.execute("SET LOCAL enable_seqscan = off")
        return database.fetch(f"EXPLAIN {sql}", params)

    plan = str(database.write(explain))
    assert "ledger_organization_at" in plan and re.search(r"\bat ?>", plan), plan


def test_closing_hours_leaves_the_balance(books, organization):
    books.ledger.grant(organization, DOLLAR, f"a:{organization}")
    books.ledger.close_hour(organization, "2026-01-31T14", 500)
    assert books.ledger.balance(organization).balance_nusd == DOLLAR


@pytest.mark.parametrize("sql", ["UPDATE ledger SET amount_nusd = 0", "DELETE FROM ledger"])
def test_ledger_entries_cannot_be_changed(books, organization, sql):
    books.ledger.grant(organization, DOLLAR, f"a:{organization}")
    database = books.worker.database
    with pytest.raises(peewee.PeeweeException, match="append-only"):
        database.write(lambda: database.execute(sql))


def test_a_grant_joins_the_transaction_in_hand(books, organization):
    database = books.worker.database

    def fail():
        books.ledger.grant(organization, DOLLAR, f"a:{organization}")
        raise ValueError

    with pytest.raises(ValueError):
        database.write(fail)
    assert books.ledger.balance(organization).funded_nusd == 0


def test_an_unlimited_organization_keeps_its_ledger_and_goes_back_to_it(books, organization):
    books.ledger.grant(organization, DOLLAR, f"a:{organization}")
    books.ledger.set_unlimited(organization, True)
    books.ledger.grant(organization, DOLLAR, f"b:{organization}")
    state = books.ledger.balance(organization)
    assert state.unlimited and state.funded_nusd == 2 * DOLLAR and state.balance_nusd > 900_000_000 * DOLLAR
    books.ledger.set_unlimited(organization, False)
    state = books.ledger.balance(organization)
    assert not state.unlimited and state.balance_nusd == 2 * DOLLAR


def test_spending_of_an_unlimited_organization_counts_when_it_is_limited_again(books, organization):
    books.ledger.begin(organization, None, f"first:{organization}")
    assert books.ledger.balance(organization).unlimited
    books.ledger.set_unlimited(organization, False)
    assert books.ledger.balance(organization).balance_nusd == 0


def test_credits_that_come_while_an_organization_gets_its_limit_back_are_not_lost(make_worker, books, organization):
    """A posting in an open transaction: its entry is not visible yet, but the balance must include it."""
    books.ledger.grant(organization, DOLLAR, f"a:{organization}")
    books.ledger.set_unlimited(organization, True)
    other_worker = make_worker()
    posting = LedgerBook(other_worker.database, other_worker.control)
    started, ended = threading.Event(), threading.Event()

    def post():
        posting._post(organization, "grant", DOLLAR, f"b:{organization}", "")
        started.set()
        if other_worker.database.kind == "postgresql":
            ended.wait(0.1)

    running = gevent.spawn(other_worker.database.write, post)
    started.wait(60)
    books.ledger.set_unlimited(organization, False)
    ended.set()
    running.get(timeout=60)
    assert books.ledger.balance(organization).funded_nusd == 2 * DOLLAR


def test_more_credits_than_can_be_counted_are_refused_and_leave_the_balance_whole(books, organization):
    for number in range(12):
        try:
            books.ledger.grant(organization, MAX_AMOUNT_NUSD, f"{number}:{organization}")
        except InvalidRequest:
            break
    else:
        pytest.fail("twelve billion dollars were granted")
    balance = books.ledger.balance(organization)
    assert balance.funded_nusd == number * MAX_AMOUNT_NUSD and type(balance.funded_nusd) is int
    assert sum(entry.amount_nusd for entry in books.ledger.entries(organization)) == balance.funded_nusd


def test_references_with_the_same_prefix_are_never_confused(books, organization):
    books.ledger.grant(organization, DOLLAR, f"{organization}:{'x' * 200}1")
    books.ledger.grant(organization, DOLLAR, f"{organization}:{'x' * 200}2")
    with pytest.raises(InvalidRequest, match="too long"):
        books.ledger.grant(organization, DOLLAR, "x" * 256)
    assert books.ledger.balance(organization).funded_nusd == 2 * DOLLAR


def test_pages_of_entries_miss_none_that_were_made_in_one_millisecond(books, organization):
    database = books.worker.database
    ledger = LedgerBook(database, books.worker.control)
    moments = iter([10_001_100, 10_001_900, 10_002_100])
    ledger._database = SimpleNamespace(**{name: getattr(database, name) for name in ("write", "execute")})
    ledger._database.now_us = lambda: next(moments)
    database.write(lambda: [ledger._insert(organization, "grant", 1, f"{n}:{organization}", "") for n in range(3)])
    first = books.ledger.entries(organization, 2)
    # Pages like a client that sees times in milliseconds.
    rest = books.ledger.entries(organization, 2, first[-1].at // 1000 * 1000)
    assert sorted(entry.at for entry in [*first, *rest]) == [10_001_100, 10_001_900, 10_002_100]
