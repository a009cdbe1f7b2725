import pytest

from gateway import ids
from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.configuration import settings
from gateway.engine.routing_decisions import REFUSED, SHARED_S, Decisions
from gateway.errors import NotFound
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.neutral.chat import Options, Requirements
from gateway.providers.protocol import Credential
from gateway.routing.plan import PREFERRED, Router
from gateway.routing.provider_health import Health
from gateway.routing.sticky import Sticky
from gateway.store.journal import Journal

PROJECT = ids.new("proj")
MAPPING = Mapping("p", "m", "m", prices=(Prices(TokenRates(prompt=10**9)),))
CATALOGUE = Catalogue((Model("m", mappings=(MAPPING,)),), (Provider("p", "P", "openai"),), {}, "1")


def record(request, **more):
    """The usage row of a request."""
    values = dict.fromkeys(UsageRecord._fields[:20], 0)
    values |= dict.fromkeys(("organization", "project", "api_key", "member"), bytes(16))
    values |= dict.fromkeys(("operation", "provider", "asked", "served", "source", "finish", "price_version"), "")
    return UsageRecord(**values | more, request=request)


@pytest.fixture
def journal(database, clock):
    database.bind()
    found = Journal(database, clock)
    yield found
    found.close(2)


@pytest.fixture
def make_plan(clock):
    routing = settings.RoutingSettings(3, 0.0, 3600, 90.0, 7)
    router = Router(lambda: CATALOGUE, Health(clock), Sticky(clock, 60), routing, (), lambda: 0.9, clock)

    def make():
        return router.plan("m", Requirements(), Options(), None, lambda mapping: (Credential("secret"),))

    return make


@pytest.fixture
def keep(database, journal, clock, make_plan):
    """keep(days) gives decisions and a function that keeps the decision of a request id, by default with a new plan."""

    def make(days=7):
        book = Decisions(database, journal, clock, days)

        def note(request_id=None, project=PROJECT, plan=None):
            caller = Caller("key", "user", "", "org", project, "user", "member", "owner", "credits")
            context = RequestContext(request_id or ids.new_hex(), caller, 0, 0.0, 100.0)
            request = bytes.fromhex(context.request_id)
            decision = book.keep(request, raw_id(project), plan or make_plan())
            journal.append(write_row(record(request, decision=decision)))
            journal.flush(60)
            return context.request_id

        return book, note

    return make


def test_a_kept_decision_is_found_by_its_project_only(keep):
    book, note = keep()
    request_id = note()
    found = book.find(PROJECT, request_id)
    assert found["order"] == ["p/m"] and len(found["attempts"]) == 1
    with pytest.raises(NotFound):
        book.find(ids.new("proj"), request_id)


def stored(database):
    return database.query_row("SELECT COUNT(*) FROM decision")[0]


def test_requests_with_one_plan_share_its_decision(keep, make_plan, database):
    book, note = keep()
    plan = make_plan()
    first, second = note(plan=plan), note(plan=plan)
    assert stored(database) == 1
    found = book.find(PROJECT, second)
    assert found == {**book.find(PROJECT, first), "attempts": found["attempts"]} and found["attempts"]


def test_requests_of_a_minute_share_a_decision_that_differs_in_measured_figures_alone(keep, make_plan, database, clock):
    book, note = keep()
    plan = make_plan()
    entry = plan.ranked[0].entry._replace(latency_ms=123.0, throughput=4.0, uptime=99.0)
    slower = plan.ranked[0]._replace(score=7.0, entry=entry)
    requests = [note(plan=plan), note(plan=plan._replace(ranked=[slower], order=(slower,)))]
    assert stored(database) == 1
    assert {tuple(book.find(PROJECT, request)["order"]) for request in requests} == {("p/m",)}
    clock.advance(SHARED_S)
    last = note(plan=plan._replace(ranked=[slower], order=(slower,)))
    assert stored(database) == 2
    assert book.find(PROJECT, last)["providerScores"][0]["latency"] == 123.0


def test_what_a_request_was_decided_by_is_always_its_own(keep, make_plan, database):
    """Another price, reason, order or project is another decision."""
    book, note = keep()
    plan = make_plan()
    (scored,) = plan.ranked
    dearer = scored._replace(entry=scored.entry._replace(price=scored.entry.price * 2))
    other = ids.new("proj")
    note(plan=plan)
    price = note(plan=plan._replace(ranked=[dearer], order=(dearer,)))
    reason = note(plan=plan._replace(reason=PREFERRED))
    waived = note(plan=plan._replace(waived=("region",)))
    foreign = note(project=other, plan=plan._replace(waived=()))
    assert stored(database) == 5
    assert book.find(PROJECT, price)["providerScores"][0]["price"] == 2 * scored.entry.price / 10**9
    assert book.find(PROJECT, reason)["selectionReason"] == PREFERRED
    assert book.find(PROJECT, waived)["waived"] == ["region"]
    assert book.find(other, foreign)


def test_with_no_days_nothing_is_kept(keep):
    book, note = keep(0)
    with pytest.raises(NotFound):
        book.find(PROJECT, note())


def test_decisions_beyond_their_retention_are_deleted(keep, clock):
    book, note = keep(7)
    old = (clock.now_us() // 1000 - 8 * 86_400_000).to_bytes(6, "big").hex() + "7" * 20
    note(old)
    clock.advance(SHARED_S)
    young = note()
    assert book.purge() == 1
    assert book.find(PROJECT, young)
    with pytest.raises(NotFound):
        book.find(PROJECT, old)


def test_after_retention_is_switched_off_kept_payloads_are_removed(keep, clock):
    _, note = keep(7)
    kept = note((clock.now_us() // 1000 - 60_000).to_bytes(6, "big").hex() + "7" * 20)
    book, _ = keep(0)
    assert book.purge() == 1
    with pytest.raises(NotFound):
        book.find(PROJECT, kept)


def test_decisions_of_refused_requests_are_few(database, journal, clock, make_plan) -> None:
    decisions = Decisions(database, journal, clock, 7)
    for _ in range(100):
        decisions.keep_refused(bytes.fromhex(ids.new_hex()), raw_id(PROJECT), make_plan())
    journal.flush(5)
    count = database.read(lambda: database.execute("SELECT COUNT(*) FROM decision").fetchone()[0])
    assert count == REFUSED[0]
