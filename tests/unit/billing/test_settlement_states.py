"""Every move of a settlement, and every refusal."""

from itertools import product

import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway.billing.settlement import (
    ABANDONED,
    ADMITTED,
    AWAITING_PAYLOAD,
    CLOSED,
    READ_ON,
    READING_ON,
    SETTLED,
    TRANSITIONS,
)
from gateway.errors import Internal, UpstreamFailed

STATES = (ADMITTED, READING_ON, READ_ON, SETTLED, AWAITING_PAYLOAD, ABANDONED, CLOSED)
ACTIONS = ("begin", "unused", "failed", "settle", "hold", "abandon", "keep", "close")
# By state, the states that actions lead to, in the order of ACTIONS; "" is a refusal.
EXPECTED = {
    ADMITTED: (ADMITTED, ADMITTED, ADMITTED, SETTLED, AWAITING_PAYLOAD, ABANDONED, READING_ON, CLOSED),
    READING_ON: ("", "", "", "", AWAITING_PAYLOAD, ABANDONED, "", READ_ON),
    READ_ON: ("", "", "", "", AWAITING_PAYLOAD, ABANDONED, "", CLOSED),
    SETTLED: ("", "", "", "", "", "", SETTLED, CLOSED),
    AWAITING_PAYLOAD: ("", "", "", "", "", "", AWAITING_PAYLOAD, CLOSED),
    ABANDONED: ("", "", "", "", "", "", ABANDONED, CLOSED),
    CLOSED: ("", "", "", "", "", "", "", CLOSED),
}


@pytest.mark.parametrize(("state", "action"), list(product(STATES, ACTIONS)))
def test_every_move_and_every_refusal(state, action):
    expected = EXPECTED[state][ACTIONS.index(action)]
    if expected:
        assert TRANSITIONS[state, action] == expected
    else:
        with pytest.raises(Internal, match=f"in the state {state} does not support {action}"):
            TRANSITIONS[state, action]


def test_the_table_has_no_other_states_or_actions():
    assert set(TRANSITIONS) <= set(product(STATES, ACTIONS)) and set(TRANSITIONS.values()) <= set(STATES)


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def begin(process, account):
    settlement = process.admit(account)
    settlement.begin(0, target())
    return settlement


def do(settlement, action, used):
    match action:
        case "begin":
            settlement.begin(1, target())
        case "failed":
            settlement.failed(attempt_at(target(), error=UpstreamFailed("no"), finish="error", status=500))
        case "settle" | "abandon" | "unused":
            getattr(settlement, action)(attempt_at(target(), usage=used, finish="stop"))
        case "keep":
            settlement.keep(attempt_at(target(), usage=used))
        case _:
            getattr(settlement, action)()


@pytest.mark.parametrize(
    ("actions", "state"),
    [
        (("unused", "close"), CLOSED),
        (("failed", "begin"), ADMITTED),
        (("settle",), SETTLED),
        (("settle", "close"), CLOSED),
        (("abandon",), ABANDONED),
        (("keep", "close"), READ_ON),
        (("keep", "abandon", "close"), CLOSED),
        (("keep", "close", "abandon", "close", "close"), CLOSED),
        (("keep", "close", "close"), CLOSED),
    ],
)
def test_a_settlement_goes_by_the_table_and_holds_nothing_once_closed(process, account, used, actions, state):
    settlement = begin(process, account)
    for action in actions:
        do(settlement, action, used)
    assert settlement.state == state
    if state == CLOSED:
        assert process.spending.reserved_nusd() == 0


@pytest.mark.parametrize("action", ["settle", "abandon", "keep", "close"])
def test_no_call_begins_after_the_answer_or_after_the_caller_left(process, account, used, action):
    settlement = begin(process, account)
    do(settlement, action, used)
    with pytest.raises(Internal, match="does not support begin"):
        settlement.begin(1, target())
    settlement.close()
    settlement.close()
    assert process.spending.reserved_nusd() == 0


def test_pricing_fills_charge_and_usage_and_records_nothing(process, account):
    settlement = begin(process, account)
    attempt = attempt_at(target(), finish="stop", output_length=41)
    call = settlement.price(attempt)
    assert call is not None and attempt.charge.total > 0 and attempt.usage.basis == "estimated"
    assert settlement.state == ADMITTED and process.rows() == []
    settlement.settle(attempt)
    assert settlement.price(attempt) is None and len(process.rows()) == 1
    settlement.close()
