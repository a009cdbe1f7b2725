import dataclasses
import gc
import secrets
from collections.abc import Callable, Iterator

import gevent
import gevent.event
import pytest
from support.billing import BillingIdentity, attempt_at, target

from gateway.callers.access import Level
from gateway.callers.authentication import Caller
from gateway.callers.compliance import CompliancePolicy
from gateway.callers.vault import Vault
from gateway.engine import idempotency
from gateway.engine.idempotency import Idempotency, KeyedRequest, StoredReply
from gateway.errors import (
    IdempotencyInFlight,
    IdempotencyKeyReused,
    Interrupted,
    InvalidRequest,
    Unavailable,
    UpstreamRateLimited,
)
from gateway.limits.cost_bound import CostBound
from gateway.neutral.usage import Usage
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.disconnects import dismiss
from gateway.store.documents import Documents

GOOD = StoredReply(200, [("Content-Type", "application/json")], b'{"a": 1}')


class Shop:
    """One worker's idempotency, with a caller who has a key."""

    def __init__(self, start_billing, caller: Caller, **more: object) -> None:
        self.start_billing, self.caller = start_billing, caller
        self.documents = Documents(start_billing.database)
        self.once = Idempotency(
            *(
                self.documents,
                start_billing.database,
                start_billing.journal,
                start_billing.settlements,
                start_billing.control,
                start_billing.clock,
            ),
            **{"secret": b"secret", "vault": Vault(["a key of the tests"]), "threads": start_billing.threads, **more},
        )

    def send(
        self, make: Callable[[], StoredReply], key: str = "k", body: bytes = b"{}", request: str = "ab" * 16
    ) -> StoredReply:
        return self.once.answer(KeyedRequest(self.caller, key, "POST /v1/x", (body,), request), make)


@pytest.fixture
def caller() -> Caller:
    return BillingIdentity().context().caller


@pytest.fixture
def shop(start_billing, caller) -> Shop:
    return Shop(start_billing(), caller)


@pytest.fixture
def other_shop(start_billing, shop, caller) -> Shop:
    """Another worker on the same store."""
    return Shop(start_billing(), caller)


def never() -> StoredReply:
    raise AssertionError("it is done a second time")


def ask_until_answered(shop: Shop) -> StoredReply:
    """Ask again for the answer of a request that still runs until it is stored."""
    for _ in range(6_000):
        try:
            return shop.send(never)
        except IdempotencyInFlight:
            gevent.sleep(0.01)
    raise AssertionError("the first request did not end")


def test_every_worker_gives_the_first_answer_again(shop: Shop, other_shop: Shop) -> None:
    first = shop.send(lambda: GOOD)
    again = other_shop.send(never)
    assert not first.replayed and again.replayed
    assert again[:3] == first[:3]


def test_a_stream_is_passed_on_as_it_comes_and_kept_whole(shop: Shop, other_shop: Shop) -> None:
    pieces_read = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"one ", b"two ", b"three"):
            yield piece
            gevent.sleep(0.02)
            pieces_read.append(piece)

    body = shop.send(lambda: StoredReply(200, [], pieces())).body
    assert next(body) == b"one " and pieces_read == []
    assert b"".join(body) == b"two three"
    assert other_shop.send(never).body == b"one two three"


def test_a_stream_goes_on_when_its_reader_leaves(shop: Shop, other_shop: Shop) -> None:
    more = gevent.event.Event()

    def pieces() -> Iterator[bytes]:
        yield b"a"
        more.wait()
        yield b"a"

    body = shop.send(lambda: StoredReply(200, [], pieces())).body
    next(body)
    leaving = gevent.spawn(body.close)
    gevent.idle()
    with pytest.raises(IdempotencyInFlight):
        other_shop.send(never)
    assert not leaving.dead  # the limits on connections count its caller until the end
    more.set()
    leaving.get(timeout=60)
    assert ask_until_answered(other_shop).body == b"aa"


def test_a_stream_that_fails_inside_is_reported_and_never_done_again(shop: Shop, other_shop: Shop) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ValueError("a mistake of ours")

    body = shop.send(lambda: StoredReply(200, [], broken())).body
    with pytest.raises(ValueError):
        list(body)
    with pytest.raises(Interrupted):
        other_shop.send(never)


def test_another_request_under_the_key_is_refused(shop: Shop) -> None:
    shop.send(lambda: GOOD)
    with pytest.raises(IdempotencyKeyReused):
        shop.send(never, body=b'{"b": 2}')
    assert not shop.send(lambda: GOOD, key="k2", body=b'{"b": 2}').replayed


def test_a_second_request_in_flight_is_refused_by_every_worker(shop: Shop, other_shop: Shop) -> None:
    started = gevent.event.Event()
    release = gevent.event.Event()

    def make() -> StoredReply:
        started.set()
        release.wait()
        return GOOD

    first = gevent.spawn(shop.send, make)
    started.wait()
    for worker in (shop, other_shop):
        with pytest.raises(IdempotencyInFlight) as raised:
            worker.send(never)
        assert raised.value.retry_after == 1.0
    release.set()
    assert not first.get().replayed


def begin_request(shop: Shop) -> tuple[gevent.Greenlet, gevent.event.Event]:
    """Return the greenlet of a request in progress, and the event that lets it end."""
    started = gevent.event.Event()
    release = gevent.event.Event()

    def make() -> StoredReply:
        started.set()
        release.wait()
        return GOOD

    first = gevent.spawn(shop.send, make)
    started.wait()
    return first, release


def test_a_caller_that_is_killed_does_not_stop_the_work(shop: Shop) -> None:
    first, release = begin_request(shop)
    first.kill()
    release.set()
    assert ask_until_answered(shop).replayed


def test_the_connection_of_a_caller_that_disconnects_waits_for_the_end_of_its_request(shop: Shop) -> None:
    first, release = begin_request(shop)
    assert dismiss(first)
    gevent.idle()
    assert not first.dead
    release.set()
    assert first.get(timeout=60) == GOOD


def test_a_caller_that_is_killed_while_its_key_is_claimed_gets_the_answer_when_it_asks_again(shop: Shop) -> None:
    claim, committed = shop.documents.put_if_absent, gevent.event.Event()

    def put_if_absent(*document) -> bool:
        stored = claim(*document)
        committed.set()
        gevent.sleep(0.01)  # the store's word is on its way
        return stored

    shop.documents.put_if_absent = put_if_absent
    first = gevent.spawn(shop.send, lambda: GOOD)
    committed.wait()
    first.kill()
    assert ask_until_answered(shop)[:3] == GOOD[:3]


def test_an_owner_that_died_leaves_an_error_and_no_second_call(shop: Shop, other_shop: Shop) -> None:
    started = gevent.event.Event()

    def make() -> StoredReply:
        started.set()
        gevent.sleep(60)
        return GOOD

    gevent.spawn(shop.send, make)
    started.wait()
    shop.start_billing.stop()
    for _ in range(2):
        with pytest.raises(Interrupted) as raised:
            other_shop.send(never)
    assert raised.value.code == "interrupted" and ("x-should-retry", "false") in raised.value.headers


@pytest.mark.parametrize("status", [400, 402, 429, 503])
def test_a_refusal_without_an_upstream_call_is_not_kept(shop: Shop, status: int) -> None:
    assert shop.send(lambda: StoredReply(status, [], b"no")).status == status
    assert not shop.send(lambda: GOOD).replayed


@pytest.mark.parametrize("sent", [True, False])
def test_an_error_is_kept_when_something_was_sent_upstream(shop: Shop, account: BillingIdentity, sent: bool) -> None:
    def fail() -> StoredReply:
        settlement = shop.start_billing.admit(account, CostBound(0, 0, 0, True), credits=False)
        settlement.begin(0, target())
        if not sent:
            settlement.unused(attempt_at(target()))
        settlement.close()
        return StoredReply(502, [], b"all failed")

    context = account.context()
    account.context = lambda: context
    first = shop.send(fail, request=context.request_id)
    again = shop.send(lambda: GOOD, request=context.request_id)
    assert first.body == b"all failed" and again.replayed is sent
    assert again.status == (502 if sent else 200)


def test_a_call_that_was_paid_is_not_done_again_although_a_limit_ended_it(
    shop: Shop, account: BillingIdentity, used: Usage
) -> None:
    """As when the first of several pieces was answered and a later one met the provider's limit."""

    def fail() -> StoredReply:
        settlement = shop.start_billing.admit(account, credits=False)
        settlement.begin(0, target("byok"))
        error = UpstreamRateLimited("later")
        settlement.failed(attempt_at(target("byok"), usage=used, error=error, finish="error"))
        settlement.close()
        return StoredReply(429, [], b"limited")

    context = account.context()
    account.context = lambda: context
    first = shop.send(fail, request=context.request_id)
    again = shop.send(never, request=context.request_id)
    assert (again.status, again.body, again.replayed) == (429, first.body, True)


def test_an_answer_lives_a_day(shop: Shop, clock) -> None:
    shop.send(lambda: GOOD)
    sql = "SELECT expires_at FROM document WHERE kind = 'idempotency'"
    ends = shop.start_billing.database.read(lambda: shop.start_billing.database.execute(sql).fetchone()[0])
    assert abs(ends - shop.start_billing.database.now_us() - 24 * 3600 * 10**6) < 60 * 10**6


def test_a_store_that_is_away_refuses_before_anything_is_done(shop: Shop) -> None:
    shop.documents._database = Away()
    with pytest.raises(Unavailable):
        shop.send(never)
    assert shop.once._running == set()


class Away:
    def change_rows(self, sql: str, params: object) -> None:
        raise Unavailable

    def moment_sql(self) -> str:
        return "0"


@pytest.mark.parametrize("kept", ["nothing", "too large"])
def test_an_answer_that_may_not_be_kept_is_not_given_again_nor_made_again(start_billing, caller, kept) -> None:
    if kept == "nothing":
        caller = dataclasses.replace(
            caller, rules=(Level("organization", "org_1", policy=CompliancePolicy(zero_data_retention=True)),)
        )
    shop = Shop(start_billing(), caller, max_bytes=1000 if kept == "nothing" else 4)
    assert shop.send(lambda: GOOD).body == GOOD.body
    with pytest.raises(Interrupted) as raised:
        shop.send(never)
    assert ("keeps no answers" if kept == "nothing" else "too large") in raised.value.message
    sql = "SELECT value FROM document WHERE kind = 'idempotency'"
    value = shop.start_billing.database.read(lambda: bytes(shop.start_billing.database.execute(sql).fetchone()[0]))
    assert value.endswith(b"}\n")


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\nb"])
def test_an_improper_key_is_refused(shop: Shop, key: str) -> None:
    with pytest.raises(InvalidRequest):
        shop.send(never, key=key)


class Endless:
    """A stream that never ends; knows how much of it was read and whether it was closed."""

    def __init__(self) -> None:
        self.made, self.closed = 0, False

    def __iter__(self) -> "Endless":
        return self

    def __next__(self) -> bytes:
        gevent.sleep(0)
        self.made += 1
        return b"x" * 10_000

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("read", [0, 1])
def test_an_endless_stream_ends_with_its_caller_once_it_is_too_large_to_be_kept(
    start_billing, caller, read: int
) -> None:
    shop, endless = Shop(start_billing(), caller, max_bytes=1_000_000), Endless()
    body = shop.send(lambda: StoredReply(200, [], endless)).body
    for _ in range(read):
        next(body)
    body.close()
    for _ in range(6_000):
        gevent.sleep(0.01)
        if endless.closed:
            break
    assert endless.closed and endless.made <= 102
    with pytest.raises(Interrupted, match="too large"):
        shop.send(never)


def test_a_slow_caller_of_a_large_stream_is_waited_for(start_billing, caller) -> None:
    shop, endless = Shop(start_billing(), caller, max_bytes=1_000_000), Endless()
    body = shop.send(lambda: StoredReply(200, [], endless)).body
    gevent.sleep(0.2)
    ahead = endless.made
    assert ahead * 10_000 <= 1_000_000 + idempotency.MAX_BYTES_AHEAD + 20_000
    for _ in range(500):
        next(body)
    assert endless.made >= 500
    body.close()


def test_a_stream_without_room_in_memory_is_passed_on_and_not_kept(start_billing, caller) -> None:
    budget = ByteBudget(1_000, 1_000)
    shop = Shop(start_billing(), caller, budget=budget)
    pieces = [b"x" * 400] * 4
    body = shop.send(lambda: StoredReply(200, [], iter(pieces))).body
    assert b"".join(body) == b"".join(pieces) and budget.held <= 1_000
    with pytest.raises(Interrupted, match="no room"):
        shop.send(never)
    del body
    gc.collect()
    assert budget.held == 0


def test_answers_beyond_the_room_of_the_installation_are_not_kept_and_never_made_again(start_billing, caller) -> None:
    shop = Shop(start_billing(), caller, total_bytes=20_000)
    for number in range(40):
        body = b"x" * 50 + b"%d" % number
        shop.send(lambda body=body: StoredReply(200, [], body), key=f"k{number}")
    with pytest.raises(Interrupted, match="no room"):
        shop.send(never, key="k39")
    assert shop.send(never, key="k0").replayed
    shop.once.trim()
    shop.send(lambda: GOOD, key="later")
    assert shop.send(never, key="later").replayed


def fill(shop: Shop, size: int = 200) -> int:
    """Send requests, measuring after each, until no answer is kept any more; return how many were kept."""
    for number in range(1_000):
        shop.send(lambda: StoredReply(200, [], secrets.token_bytes(size)), key=f"fill{number}")
        try:
            shop.send(never, key=f"fill{number}")
        except Interrupted:
            return number
        shop.once.trim()
    raise AssertionError("all answers are kept")


def test_an_organization_leaves_others_as_much_room_as_it_takes(start_billing, caller) -> None:
    shop = Shop(start_billing(), caller, total_bytes=50_000)
    own = fill(shop)
    assert own > 20
    shop.caller = dataclasses.replace(caller, organization_id="org_of_others", key_id="key_of_others")
    for number in range(own // 2):
        shop.once.trim()
        shop.send(lambda: GOOD, key=f"other{number}")
        assert shop.send(never, key=f"other{number}").replayed
