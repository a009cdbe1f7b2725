"""Rows and intents are tuples, because named objects cost a tenth of a request: each value stands at its name."""

import dataclasses
from typing import Any

import orjson
import pytest
from support.billing import DOLLAR, BillingIdentity, attempt_at, request_of, target

from gateway import ids
from gateway.billing.context import Terms, terms_of
from gateway.billing.settlement_services import BilledCall
from gateway.billing.usage_rows import IntentDetails, intent_of, interrupted, read_intent, record_of, row_of
from gateway.catalogue.prices import Charge
from gateway.errors import UpstreamFailed
from gateway.limits.spending import CostBound
from gateway.metering.models import CREDITS, OVERRUN, RETRIED
from gateway.metering.usage_table import INSERT_PLAIN, RECORD, UsageRecord, raw_id
from gateway.neutral.usage import Usage
from gateway.routes.choices import RouteChoice

# As the release before the member `units` wrote them, and with all members.
SHORT: list[Any] = [1, "org_00", "proj_01", "key_02", "member_03", "chat", "openai", "asked", "served", "app", "v1"]
SHORT += ["label", 0, 3, 40, 500, [[7, "key_02:total"]]]
WHOLE = [*SHORT, 100_000, 6, "pk_1", {"searches": 2}, {"searches": 9}, "low", 50, 11, "session-1", '{"a":"b"}']


def terms_with(**facts: Any) -> Terms:
    context = BillingIdentity().context()
    context.operation, context.source, context.label, context.decision = "chat", "app", "mine", b"d" * 16
    for name, value in facts.items():
        setattr(context, name, value)
    context.attribute()
    return terms_of(context, request_of(streamed=True))


def test_each_column_of_a_row_has_the_value_of_its_name() -> None:
    terms = terms_with(session="session-1", metadata={"team": "search"})
    where = target()
    where = dataclasses.replace(where, mapping=dataclasses.replace(where.mapping, model="served"))
    usage = Usage(input=1, cache_read=2, cache_write=3, output=5, reasoning=4, cache_write_1h=6)
    charge = Charge(input=10, cached_input=20, cache_write=30, cache_write_1h=40, output=50, reasoning=60)
    charge.discount_ppm, charge.saved = 250_000, 70
    error = UpstreamFailed("broken", code="broken")
    attempt = attempt_at(where, 2, usage=usage, charge=charge, error=error, finish="error", status=500, overrun=True)
    attempt.first_at = 0.25
    statement, values = row_of(terms, attempt, CREDITS, 99, b"t" * 16)
    assert statement is RECORD and values[-1] == b"t" * 16
    row = record_of(terms, attempt, CREDITS, 99)
    assert row == UsageRecord(*values[:-1])
    caller = terms.context.caller
    expected = {
        **{"at": attempt.at_us, "posted_at": 99, "duration_ms": 500, "ttft_ms": 250, "attempt": 2, "kind": 0},
        **{"input": 1, "cache_read": 2, "cache_write": 9, "output": 5, "reasoning": 4, "status": 500, "mode": CREDITS},
        **{"cost_nusd": charge.total, "input_nusd": 10, "output_nusd": 110, "cached_nusd": 20, "cache_write_nusd": 70},
        **{"flags": 1 | RETRIED | OVERRUN, "request": terms.request, "organization": raw_id(caller.organization_id)},
        **{"project": raw_id(caller.project_id), "api_key": raw_id(caller.key_id), "member": raw_id(caller.member_id)},
        **{"operation": "chat", "provider": "mock", "asked": terms.requested_model, "served": "served"},
        **{"source": "app", "finish": "error", "price_version": "p1", "decision": b"d" * 16, "error": "broken"},
        **{"label": "mine", "discount_ppm": 250_000, "discount_nusd": 70, "storage_nusd": None},
        **{"session": "session-1", "tags": '{"team":"search"}', "basis": 0},
    }
    assert row._asdict() | expected == row._asdict() and set(expected) == set(UsageRecord._fields) - {"extra"}


def test_a_usual_row_has_the_columns_up_to_the_decision() -> None:
    terms = terms_with()
    terms.context.attribution = None
    attempt = attempt_at(target(), usage=Usage(input=1, output=2), finish="stop", status=200)
    statement, values = row_of(terms, attempt, CREDITS, 99)
    assert statement is INSERT_PLAIN and values[-1] == b"d" * 16
    assert row_of(terms, attempt, CREDITS, 99, b"t" * 16)[1][: len(values)] == values


@pytest.mark.parametrize("used", [None, Usage(input=3, output=4, searches=2)], ids=["before", "partly delivered"])
@pytest.mark.parametrize("named", [False, True], ids=["no session", "session"])
def test_an_intent_is_read_by_the_names_that_it_was_written_with(start_billing, account, used, named) -> None:
    process = start_billing()
    process.ledger.grant(account.organization, 10 * DOLLAR, "start")
    reservation = process.admit(account)._reservation
    terms = terms_with(**({"session": "session-1", "metadata": {"team": "search"}} if named else {}))
    if not named:
        terms.context.attribution = None
    call = BilledCall(target(), CREDITS, 0, CostBound(100_000, 0, 100, True), None)
    details = read_intent(intent_of(terms, 1, call, reservation, used))
    caller = terms.context.caller
    assert (details.organization, details.project) == (caller.organization_id, caller.project_id)
    assert (details.key, details.member, details.flags) == (caller.key_id, caller.member_id, 1 | RETRIED)
    assert (details.at, details.operation, details.provider) == (terms.context.at_us, "chat", "mock")
    assert (details.asked, details.served, details.source) == (terms.requested_model, "m-1", "app")
    assert (details.price_version, details.label, details.mode, details.provider_key) == ("p1", "mine", CREDITS, "")
    assert details.leases and details.discount_ppm == details.discount_nusd == 0 and details.cost_nusd > 0
    assert (details.session, details.tags) == (("session-1", '{"team":"search"}') if named else (None, None))
    assert (details.tokens, details.output) == ((3, 4) if used else (terms.prompt_tokens, 0))
    assert details.units == ({"searches": 2} if used else None)


@pytest.mark.parametrize(
    ("used", "route"),
    [(None, "house"), (Usage(input=3, output=4), "house"), (Usage(input=3, output=4, searches=2), None)],
    ids=["before", "partly delivered", "with units"],
)
def test_earlier_releases_read_the_intent_of_a_routed_request(start_billing, account, used, route) -> None:
    process = start_billing()
    process.ledger.grant(account.organization, 10 * DOLLAR, "start")
    reservation = process.admit(account)._reservation
    terms = terms_with(session="session-1", route=RouteChoice("house", 3, "hard turns", ("gpt-4o",)))
    call = BilledCall(target(), CREDITS, 0, CostBound(100_000, 0, 100, True), None)
    payload = intent_of(terms, 1, call, reservation, used)
    # They refuse an intent with more members, and read the one of the price key only beside units.
    assert len(orjson.loads(payload)) == len(WHOLE)
    details = read_intent(payload)
    assert bool(details.units) == isinstance(details.price_key, str)
    row = interrupted(details, terms.request, 1, 99)
    assert (row.session, row.details.get("route"), row.details.get("route_version")) == (
        "session-1",
        route,
        route and 3,
    )


def test_intents_of_earlier_releases_are_read() -> None:
    short, whole = read_intent(orjson.dumps(SHORT)), read_intent(orjson.dumps(WHOLE))
    assert (short.tokens, short.cost_nusd, short.leases) == (40, 500, [(7, "key_02:total")])
    assert (short.units, short.output, short.session, short.tags) == (None, 0, None, None)
    assert whole[: len(SHORT)] == (*SHORT[:-1], [(7, "key_02:total")]) and whole.provider_key == "pk_1"
    assert (whole.units, whole.price_key, whole.output, whole.output_nusd) == ({"searches": 2}, "low", 50, 11)
    row = interrupted(whole, bytes.fromhex(ids.new_hex()), 1, 99)
    assert (row.session, row.tags, row.output_nusd, row.input_nusd) == ("session-1", '{"a":"b"}', 11, 480)
    for wrong in (SHORT[:-1], {}, 7):
        with pytest.raises(ValueError, match="not an intent"):
            read_intent(orjson.dumps(wrong))
    assert len(IntentDetails._fields) == len(WHOLE)


def test_intents_of_later_releases_are_read_without_what_those_added() -> None:
    later = read_intent(orjson.dumps([*WHOLE, {"new": [1, 2]}, "more"]))
    assert later == read_intent(orjson.dumps(WHOLE))
    row = interrupted(later, bytes.fromhex(ids.new_hex()), 1, 99)
    assert (row.cost_nusd, row.session) == (later.cost_nusd, "session-1")
