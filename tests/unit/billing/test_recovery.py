import dataclasses
import os
import threading

import gevent
import orjson
import pytest
from support.billing import DOLLAR, WRITES, attempt_at, target

from gateway import ids
from gateway.billing import recovery, usage_rows
from gateway.billing.output_reservation import MAX_UNRECORDED_BYTES
from gateway.billing.reconciliation import doctor
from gateway.catalogue.entries import Prices, TokenRates
from gateway.errors import Unavailable
from gateway.limits import leases
from gateway.limits.cost_bound import CostBound
from gateway.limits.lease_folding import charge, fold, return_leases
from gateway.metering.route_usage import sum_savings
from gateway.metering.usage_table import find
from gateway.money import MILLION
from gateway.neutral.usage import Units, Usage
from gateway.routes.choices import RouteChoice
from gateway.store.outage_journal import OutageJournal


def query(one, sql, *params):
    return one.database.read(lambda: one.database.execute(sql, params).fetchone())


@pytest.fixture
def dead(start_billing, account):
    """A process that was killed with one call open and one settled, both of a member of a team with limits; `request`
    is the open one."""
    process = start_billing()
    account.teams = ((ids.new("team"), "Research"),)
    process.ledger.grant(account.organization, DOLLAR, "start")
    done = process.admit(account)
    done.begin(0, target())
    done.settle(attempt_at(target(), finish="stop", output_length=4))
    done.close()
    process.admit(account).begin(0, target())
    process.request = process.context.request_id
    process.die()
    return process


def test_a_killed_worker_loses_no_usage_and_strands_no_budget(dead, start_billing):
    heir = start_billing()
    assert heir.recovery.run() == 1
    (row,) = find(heir.database, dead.request)
    assert (row.finish, row.usage_basis, row.cost_nusd) == ("interrupted", "estimated", 100_000)
    assert query(heir, "SELECT count(*) FROM lease") == (0,)
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget") == (0,)
    assert query(heir, "SELECT COUNT(*) FROM team_usage") == (2,)
    assert doctor(heir.database) == []


def test_a_killed_call_is_counted_in_the_units_of_its_operation(start_billing, account):
    prices = (Prices(TokenRates(per_image={"low/1x1": 10**7 * MILLION})),)
    where = target()
    where = dataclasses.replace(where, mapping=dataclasses.replace(where.mapping, prices=prices))
    usage = Usage(images=3, price_key="low/1x1")
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    process.admit(account, CostBound(30_000_016, 0, 0, True), units=Units(usage, usage)).begin(0, where)
    request = process.context.request_id
    process.die()
    heir = start_billing()
    heir.recovery.run()
    (row,) = find(heir.database, request)
    assert (row.finish, row.cost_nusd, row.input_nusd, row.input) == ("interrupted", 30_000_000, 0, 0)
    assert row.details == {"units": {"images": 3}, "nusd": {"images": 30_000_000}, "price_key": "low/1x1"}
    assert doctor(heir.database) == []


def test_a_killed_call_keeps_its_session_and_metadata(start_billing, account):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    settlement = process.admit(account)
    process.context.session, process.context.metadata = "s-1", {"team": "search"}
    process.context.attribute()
    settlement.begin(0, target())
    request = process.context.request_id
    process.die()
    heir = start_billing()
    heir.recovery.run()
    (row,) = find(heir.database, request)
    assert (row.session, row.tags) == ("s-1", '{"team":"search"}')
    assert (row.cost_nusd, row.input_nusd, row.output, row.details) == (100_000, 100_000, 0, {})


@pytest.mark.parametrize("units", [None, Units(Usage(input=1_000), Usage(input=1_000))], ids=["text", "counted"])
def test_a_killed_call_keeps_the_choice_of_its_route(start_billing, account, units):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    settlement = process.admit(account, **({} if units is None else {"units": units}))
    process.context.route = RouteChoice(
        "house", 3, "hard turns", ("gpt-4o",), turn="work", agent="sub", difficulty="large", reference="gpt-4o"
    )
    process.context.attribute()
    settlement.begin(0, target())
    request = process.context.request_id
    process.die()
    heir = start_billing()
    heir.recovery.run()
    (row,) = find(heir.database, request)
    named = [row.details[name] for name in ("route", "route_version", "route_rule", "reference", "route_seen")]
    assert named == ["house", 3, "hard turns", "gpt-4o", ["work", "sub", "large"]]
    (saved,) = sum_savings(heir.database, account.organization, 0)
    assert (saved.route, saved.version, saved.rule, saved.requests, saved.failed) == ("house", 3, "hard turns", 1, 1)
    assert saved.cost_nusd == saved.reference_nusd == row.cost_nusd > 0
    assert doctor(heir.database) == []


def test_a_killed_worker_bills_the_text_that_was_delivered(start_billing, account):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    settlement = process.admit(account, CostBound(100_000, 2000 * MILLION, 100_000, True))
    settlement.begin(0, target())
    attempt = attempt_at(target())
    recorded = 0
    while attempt.output_length < 100_000:
        attempt.output_length += 40
        if attempt.output_length > settlement.checked_length:
            settlement.grow(attempt)
            recorded = attempt.output_length
    request = process.context.request_id
    process.die()
    heir = start_billing()
    heir.recovery.run()
    (row,) = find(heir.database, request)
    assert row.output == recorded // 4 and row.cost_nusd == 100_000 + row.output * 2000
    assert attempt.output_length - recorded <= MAX_UNRECORDED_BYTES
    assert doctor(heir.database) == []


def test_a_killed_worker_of_a_later_release_loses_no_usage(start_billing, account, monkeypatch):
    def intent_of(*given):
        fields = usage_rows.read_intent(usage_rows.intent_of(*given))
        return orjson.dumps([*fields, {"of": "a later release"}, 7])

    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    with monkeypatch.context() as later:
        later.setattr("gateway.billing.settlement.intent_of", intent_of)
        process.admit(account).begin(0, target())
    request = process.context.request_id
    process.die()
    heir = start_billing()  # after a rollback
    assert heir.recovery.run() == 1
    (row,) = find(heir.database, request)
    assert (row.finish, row.cost_nusd) == ("interrupted", 100_000)
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget") == (0,)
    assert doctor(heir.database) == []


OTHER_FORMS = {
    "units": [["images", 1]],
    "parts": {"image": {"nusd": 5}},
    "price_key": {"route": {"name": "house"}},
    "output": None,
    "output_nusd": "0",
    "session": ["s"],
    "tags": {"team": "x"},
    "discount_ppm": {},
}


@pytest.mark.parametrize("changes", [{name: value} for name, value in OTHER_FORMS.items()] + [OTHER_FORMS])
def test_an_intent_in_which_a_later_release_writes_members_otherwise_is_billed(
    start_billing, account, monkeypatch, changes
):
    def intent_of(*given):
        return orjson.dumps(list(usage_rows.read_intent(usage_rows.intent_of(*given))._replace(**changes)))

    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    with monkeypatch.context() as later:
        later.setattr("gateway.billing.settlement.intent_of", intent_of)
        process.admit(account).begin(0, target())
    request = process.context.request_id
    process.die()
    heir = start_billing()
    assert heir.recovery.run() == 1
    (row,) = find(heir.database, request)
    assert (row.finish, row.cost_nusd, row.input_nusd) == ("interrupted", 100_000, 100_000)
    assert doctor(heir.database) == []


@pytest.mark.parametrize(
    "changes", [{"at": "now"}, {"leases": [["x"]]}, {"organization": "org_not-hex"}, {"key": None}]
)
def test_an_intent_that_cannot_be_read_does_not_keep_others_from_recovery(start_billing, account, monkeypatch, changes):
    def intent_of(*given):
        return orjson.dumps(list(usage_rows.read_intent(usage_rows.intent_of(*given))._replace(**changes)))

    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    with monkeypatch.context() as later:
        later.setattr("gateway.billing.settlement.intent_of", intent_of)
        process.admit(account).begin(0, target())
    process.admit(account).begin(0, target())
    process.die()
    heir = start_billing()
    assert heir.recovery.run() == 1
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget") == (0,)


def test_recovering_again_changes_nothing(dead, start_billing, tmp_path):
    files = {path: path.read_bytes() for path in (tmp_path / "journal").glob("*.log")}
    heir = start_billing()
    heir.recovery.run()
    for path, data in files.items():
        path.write_bytes(data)
    assert heir.recovery.run() == 0
    assert doctor(heir.database) == []


def test_a_row_that_the_store_was_still_committing_is_not_charged_again(dead, start_billing, monkeypatch):
    """A server ends the commit of a client that was killed: the look for rows came before it, the writing after it."""
    heir = start_billing()
    monkeypatch.setattr(recovery, "known", lambda database, keys: set())
    assert heir.recovery.run() == 1
    assert query(heir, "SELECT SUM(settled_nusd) FROM budget WHERE kind = 'credits'") == (202_000,)
    assert query(heir, "SELECT COUNT(*) FROM team_usage") == (2,)
    assert doctor(heir.database) == []


def test_a_crash_between_rows_and_leases_is_finished_by_the_next(dead, start_billing, tmp_path):
    heir = start_billing()
    heir.database.write(lambda: heir.database.execute("UPDATE lease SET spent_nusd = spent_nusd"))
    (path,) = (tmp_path / "journal").glob(f"{dead.intents.owner}*")
    data = path.read_bytes()
    heir.recovery.run()
    path.write_bytes(data)
    other_process = start_billing()
    assert other_process.recovery.run() == 0 and not path.exists()
    assert doctor(other_process.database) == []


def test_the_files_of_a_living_worker_are_left_alone(start_billing, account):
    living, other_process = start_billing(), start_billing()
    living.ledger.grant(account.organization, DOLLAR, "start")
    living.admit(account).begin(0, target())
    assert other_process.recovery.run() == 0
    assert query(other_process, "SELECT count(*) FROM lease")[0] == 3


def test_leases_of_a_lost_node_go_back_after_the_longest_request(start_billing, account, tmp_path):
    lost = start_billing()
    lost.ledger.grant(account.organization, DOLLAR, "start")
    lost.admit(account).begin(0, target())
    lost.control.stop()
    heir = start_billing()
    heir.database.write(lambda: heir.database.execute("UPDATE lease SET taken_at = taken_at - 59000000"))
    heir.recovery.sweep_lost()
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget")[0] > 0
    heir.database.write(lambda: heir.database.execute("UPDATE lease SET taken_at = taken_at - 2000000"))
    heir.recovery.sweep_lost()
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget") == (0,)


def test_a_settlement_from_a_lost_owner_counts_against_the_budget(start_billing, account, used):
    late, heir = start_billing(), start_billing()
    late.ledger.grant(account.organization, DOLLAR, "start")
    settlement = late.admit(account)
    settlement.begin(0, target())
    epoch = late.control.epoch
    return_leases(heir.database, epoch, keep_rows=True)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    assert heir.ledger.balance(account.organization).spent_nusd == 20_000
    return_leases(heir.database, epoch, keep_rows=True)
    assert query(heir, "SELECT settled_nusd, leased_nusd FROM budget WHERE kind = 'credits'") == (20_000, 0)
    assert doctor(heir.database) == []


def test_an_owner_that_was_given_up_goes_on_under_another_epoch(start_billing, account, used):
    asleep, heir = start_billing(), start_billing()
    asleep.ledger.grant(account.organization, DOLLAR, "start")
    first = asleep.admit(account)
    before = asleep.control.epoch
    return_leases(heir.database, before, keep_rows=True)
    asleep.control._beat()
    assert asleep.control.epoch != before
    settlement = asleep.admit(account)
    settlement.begin(0, target())
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    first.close()
    asleep.rest()
    assert doctor(heir.database) == []


def test_a_worker_swept_during_a_take_keeps_none_of_its_leases(start_billing, account, monkeypatch):
    """The one who gives it up waits for the other's transaction, and finds its lease."""
    taking, heir = start_billing(), start_billing()
    if heir.database.kind != "postgresql":
        pytest.skip("SQLite has one writer")
    taking.ledger.grant(account.organization, DOLLAR, "start")
    load, started = leases.load, threading.Event()

    def slowly(*arguments):
        started.set()
        gevent.sleep(0.1)
        return load(*arguments)

    monkeypatch.setattr(leases, "load", slowly)
    admitted = gevent.spawn(taking.admit, account)
    started.wait(60)
    return_leases(heir.database, taking.control.epoch, keep_rows=True)
    admitted.join(60)
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget") == (0,)


def test_a_recently_seen_worker_is_not_swept_with_a_lost_node(start_billing, account):
    living, heir = start_billing(), start_billing()
    living.ledger.grant(account.organization, DOLLAR, "start")
    settlement = living.admit(account)
    assert return_leases(heir.database, living.control.epoch, keep_rows=True, after_us=60_000_000) == 0
    settlement.begin(0, target())
    assert query(heir, "SELECT SUM(leased_nusd) FROM budget")[0] > 0


def test_a_cost_without_its_lease_counts_in_the_budget(start_billing, account):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    budget = f"{account.organization}:credits"
    process.database.write(lambda: charge(process.database, [(7, budget, 30), (7, budget, 12)]))
    assert process.ledger.balance(account.organization).spent_nusd == 42


def test_folding_a_lease_that_is_gone_changes_nothing(start_billing, account):
    process = start_billing()
    fold(process.database, [])
    assert doctor(process.database) == []


def test_a_record_that_was_kept_while_the_database_was_away_comes_before_its_intent(
    start_billing, account, monkeypatch
):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    kept = OutageJournal(process.money, process.clock, process.intents.directory, process.intents.owner)
    process.journal.fall_back(kept)
    settlement = process.admit(account)
    settlement.begin(0, target())
    monkeypatch.setattr(
        process.intents, "end", lambda *given: None
    )  # killed between the record and the end of its intent
    for name in WRITES:
        monkeypatch.setattr(process.money, name, away)
    settlement.settle(attempt_at(target(), finish="stop", usage=Usage(input=10, output=5)))
    kept._closed = True
    os.close(kept._handle)
    kept._handle = -1
    process.intents.leave()
    process.control.stop()
    heir = start_billing()
    assert heir.recovery.run() == 0
    (row,) = find(heir.database, process.context.request_id)
    assert (row.finish, row.output) == ("stop", 5)
    assert query(heir, "SELECT count(*) FROM lease") == (0,)
    assert query(heir, "SELECT SUM(settled_nusd) FROM budget WHERE kind = 'credits'") == (row.cost_nusd,)
    assert doctor(heir.database) == []
    assert list(heir.intents.directory.glob("*.outage")) == []


def away(*arguments):
    raise Unavailable("injected")


@pytest.mark.parametrize("hours", [1, 8 * 24, 90 * 24])
def test_a_node_that_was_cut_off_settles_into_leases_that_were_given_back(start_billing, account, monkeypatch, hours):
    one, other_process = start_billing(), start_billing()
    one.ledger.grant(account.organization, DOLLAR, "start")
    one.journal.fall_back(OutageJournal(one.money, one.clock, one.intents.directory, one.intents.owner))
    open_ones = [one.admit(account) for _ in range(3)]
    for settlement in open_ones:
        settlement.begin(0, target())
    one.control._stopping.set()
    for task in one.control._tasks:
        task.join()
    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(one.money, name, away)
        for settlement in open_ones:
            settlement.settle(attempt_at(target(), finish="stop", usage=Usage(input=10, output=5)))
            settlement.close()
        epoch = one.control.epoch

        def pass_time():
            hour_us = hours * 3600 * 10**6
            other_process.database.execute(
                "UPDATE worker SET expires_at = expires_at - ? WHERE epoch = ?", (hour_us, epoch)
            )
            other_process.database.execute(
                "UPDATE lease SET taken_at = taken_at - ? WHERE worker = ?", (hour_us, epoch)
            )
            other_process.database.execute("UPDATE lease SET returned_at = returned_at - ?", (hour_us,))

        other_process.database.write(pass_time)
        other_process.recovery.sweep_lost()
        other_process.database.write(pass_time)
        other_process.recovery.sweep_lost()  # which forgets old leases
        assert query(other_process, "SELECT SUM(leased_nusd) FROM budget") == (0,)
        assert query(other_process, "SELECT COUNT(*) FROM usage") == (0,)
    one.journal.flush(60)
    cost = query(other_process, "SELECT SUM(cost_nusd) FROM usage")[0]
    assert cost == 3 * 20_000
    assert query(
        other_process, "SELECT SUM(spent_nusd) FROM lease WHERE budget = ?", f"{account.organization}:credits"
    ) == (cost,)
    assert doctor(other_process.database) == []
