"""The resources that callers occupy in a worker are counted, released, and refused above its limits."""

import time

import gevent.event
import pytest
from support.small_server import Server

from gateway.errors import Overloaded, Unauthenticated
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import hold, spawn
from gateway.server.request_bodies import BodyReservation, ConnectionCounts
from gateway.surfaces.web.origins import Proxies

FREE = 10


def test_bodies_of_one_organization_leave_room_for_others():
    bodies = ByteBudget(100, 60)
    first = BodyReservation(bodies, lambda: "one", FREE)
    second = BodyReservation(bodies, lambda: "one", FREE)
    first.grow(60)
    with pytest.raises(Overloaded) as caught:
        second.grow(11)
    assert caught.value.status == 529 and caught.value.retry_after
    other = BodyReservation(bodies, lambda: "two", FREE)
    other.grow(24)
    with pytest.raises(Overloaded):
        BodyReservation(bodies, lambda: "three", FREE).grow(17)
    for held in (first, second, other):
        held.release()
    assert bodies.held == 0 and bodies._each == {}
    second.grow(60)


def test_large_bodies_are_authenticated_once_they_exceed_the_anonymous_limit():
    asked, bodies = [], ByteBudget(100, 100)
    held = BodyReservation(bodies, lambda: asked.append(1) or "one", FREE)
    for _ in range(FREE):
        held.grow(1)
    assert asked == []
    held.grow(1)
    held.grow(5)
    assert asked == [1] and bodies._each == {"one": 16}
    held.grow(-6)
    held.release()
    assert bodies.held == 0 and bodies._each == {}


def test_bytes_are_held_until_the_last_greenlet_that_works_with_them_ends():
    bodies = ByteBudget(100, 100)
    more = gevent.event.Event()
    held = BodyReservation(bodies, lambda: "one", FREE)
    held.grow(60)

    def outlive():
        spawn(more.wait)  # a greenlet of a greenlet of the request

    def serve():
        hold(held)
        spawn(outlive).join()
        hold(None)
        held.release()
        spawn(later.wait)  # it begins after the request has ended

    later = gevent.event.Event()
    gevent.spawn(serve).join()
    assert bodies.held == 60
    with pytest.raises(Overloaded):
        BodyReservation(bodies, lambda: "one", FREE).grow(50)
    more.set()
    gevent.idle()
    assert bodies.held == 0 and bodies._each == {}
    later.set()


def test_a_refused_owner_leaves_nothing_behind():
    def refuse():
        raise Unauthenticated("no key")

    bodies = ByteBudget(100, 100)
    held = BodyReservation(bodies, refuse, FREE)
    held.grow(5)
    with pytest.raises(Unauthenticated):
        held.grow(50)
    held.release()
    assert bodies.held == 0


def test_connections_of_one_address_are_capped_and_of_shared_ones_not():
    addresses = ConnectionCounts(2, Proxies(networks=["10.0.0.0/8"]).trusts)
    assert [addresses.enter("9.9.9.9") for _ in range(3)] == [True, True, False]
    assert addresses.enter("9.9.9.8") and all(addresses.enter("10.1.1.1") for _ in range(9))
    addresses.leave("9.9.9.9")
    assert addresses.enter("9.9.9.9") and not addresses.enter("::ffff:9.9.9.9")


def test_addresses_of_one_ipv6_network_are_one():
    addresses = ConnectionCounts(1, Proxies().trusts)
    assert (
        addresses.enter("2001:db8::1") and not addresses.enter("2001:db8::2:3") and addresses.enter("2001:db8:0:1::1")
    )


@pytest.mark.slow
def test_one_address_cannot_shut_the_others_out(tmp_path):
    other = "203.0.113.1"
    server = Server(
        tmp_path,
        GATEWAY_SERVER_ADDRESS_CONNECTIONS="3",
        GATEWAY_SERVER_SHARED_ADDRESSES=other,
        TRUSTED_PROXIES=other,
    )
    try:
        callers = [server.call() for _ in range(3)]
        assert all(caller.get("/ready").reply()[0] == 200 for caller in callers)
        status, headers, _ = server.call().reply()
        assert (status, headers["retry-after"], headers["connection"]) == (529, "1", "close")
        callers[0].close()
        time.sleep(0.3)
        assert server.call().get("/ready").reply()[0] == 200
    finally:
        server.stop()


def test_nothing_is_remembered_of_who_left():
    addresses = ConnectionCounts(2, Proxies().trusts)
    for number in range(300):
        addresses.enter(f"9.9.9.{number % 256}")
    for number in range(300):
        addresses.leave(f"9.9.9.{number % 256}")
    assert addresses._open == {}
