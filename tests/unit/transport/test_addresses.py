import gevent
import pytest
from gevent.monkey import get_original

from gateway.errors import InvalidRequest, UpstreamUnreachable
from gateway.runtime.threads import report_uncaught, work_for
from gateway.transport import addresses
from gateway.transport.addresses import (
    CallerNameLookups,
    check_public,
    check_spelling,
    is_public,
    network_of,
    resolve,
    zone_of,
)

PRIVATE = (
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200",
    "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.0.192", "192.0.2.1", "198.18.0.1",
    "192.88.99.1", "2001:20::1",
    "168.63.129.16", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "2002:7f00:1::", "2002:808:808::", "2001::1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::808:808", "3fff::1", "fe80::1%lo", "not an address",
)  # fmt: skip


@pytest.mark.parametrize("text", PRIVATE)
def test_address_that_is_not_public_is_reported(text):
    assert not is_public(text)


@pytest.mark.parametrize("text", ["8.8.8.8", "104.18.7.192", "2606:4700::6810:7c0", "64:ff9b::808:808"])
def test_public_address_is_let_through(text):
    assert is_public(text)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "134744072", "8.8.8", "010.8.8.8"])
def test_host_that_spells_an_address_oddly_is_refused_even_if_public(host):
    with pytest.raises(UpstreamUnreachable) as refusal:
        check_public(host, ["8.8.8.8"])
    assert refusal.value.code == "address_not_allowed"


@pytest.mark.parametrize("host", ["api.example.com", "8.8.8.8", "v1.2beta", "3.example", "2606:4700::1"])
def test_usual_host_with_a_public_address_passes(host):
    check_public(host, ["8.8.8.8"])


def test_one_private_address_among_public_ones_refuses_the_host():
    with pytest.raises(UpstreamUnreachable, match="public") as refusal:
        check_public("api.example.com", ["8.8.8.8", "10.0.0.1"])
    assert "10.0.0.1" not in refusal.value.message


def test_host_without_addresses_is_refused():
    with pytest.raises(UpstreamUnreachable):
        check_public("api.example.com", [])


def test_unknown_name_is_an_unreachable_upstream():
    with pytest.raises(UpstreamUnreachable, match="resolved"):
        resolve("no-such-host.invalid", 443)


def test_label_that_no_name_may_have_is_an_unreachable_upstream():
    with pytest.raises(UpstreamUnreachable, match="resolved"):
        resolve("a" * 70 + ".example", 443)


def test_literal_addresses_need_no_name_service():
    assert (resolve("127.0.0.1", 80), resolve("::1", 80)) == (["127.0.0.1"], ["::1"])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[fd00::1]",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
    ],
)
def test_an_address_to_be_kept_is_refused_at_once_where_it_spells_a_private_one(host):
    with pytest.raises(InvalidRequest) as caught:
        check_spelling(f"https://{host}:8443/hook", "url")
    assert (caught.value.code, caught.value.param) == ("address_not_allowed", "url")


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "[2606:4700::6810:7c0]", "hooks.example", "localhost.example", "x1.example"]
)
def test_an_address_to_be_kept_may_be_public_or_a_name(host):
    check_spelling(f"https://{host}/hook", "url")


@pytest.mark.parametrize("host", [f"{'a' * 64}.com", "a..b"])
def test_name_of_a_caller_that_is_not_found_is_no_failure_of_the_gateway(host, monkeypatch):
    reported = []
    monkeypatch.setattr(gevent.get_hub(), "print_exception", gevent.get_hub().print_exception)  # put back at the end
    report_uncaught(lambda where, info: reported.append(info[0]))
    with pytest.raises(UpstreamUnreachable) as refusal:
        CallerNameLookups().resolve(host, 443)
    assert "cannot be resolved" in str(refusal.value) and reported == []


def test_a_name_service_that_never_answers_delays_only_the_names_of_its_zone(monkeypatch):
    lock = get_original("_thread", "allocate_lock")()
    lock.acquire()

    def look_up(host, *more):
        if host.endswith(".silent.example"):
            with lock:
                return ()
        return [(0, 0, 0, "", ("8.8.8.8", 443))]

    monkeypatch.setattr(addresses, "system_look_up", look_up)
    names = CallerNameLookups()
    waiting = [gevent.spawn(names.resolve, f"n{number}.silent.example", 443) for number in range(100)]
    gevent.sleep(0)
    try:
        with gevent.Timeout(20):
            assert names.resolve("api.busy.example", 443) == ["8.8.8.8"]
        # Callers that gave up leave the places of their lookups taken, not more threads.
        gevent.killall(waiting[:50])
        with gevent.Timeout(20):
            assert names.resolve("api.busy.example", 443) == ["8.8.8.8"]
    finally:
        lock.release()
    gevent.joinall(waiting)


def test_many_name_services_of_one_organization_leave_threads_to_others(monkeypatch):
    lock = get_original("_thread", "allocate_lock")()
    lock.acquire()

    def look_up(host, *more):
        if host.startswith("silent"):
            with lock:
                return ()
        return [(0, 0, 0, "", ("8.8.8.8", 443))]

    def resolve_silent(number):
        work_for("org_of_silent_names")
        names.resolve(f"silent{number}.example", 443)

    monkeypatch.setattr(addresses, "system_look_up", look_up)
    names = CallerNameLookups()
    waiting = [gevent.spawn(resolve_silent, number) for number in range(100)]
    gevent.sleep(0)
    try:
        with gevent.Timeout(20):
            assert names.resolve("api.busy.example", 443) == ["8.8.8.8"]
    finally:
        lock.release()
    gevent.joinall(waiting)


def test_calls_for_one_name_share_its_lookup(monkeypatch):
    lock = get_original("_thread", "allocate_lock")()
    lock.acquire()
    looked_up = []

    def look_up(host, *more):
        looked_up.append(host)
        with lock:
            return [(0, 0, 0, "", ("8.8.8.8", 443))]

    monkeypatch.setattr(addresses, "system_look_up", look_up)
    names = CallerNameLookups()
    waiting = [gevent.spawn(names.resolve, "api.busy.example", 443) for _ in range(50)]
    gevent.sleep(0)
    lock.release()
    gevent.joinall(waiting)
    assert [one.value for one in waiting] == [["8.8.8.8"]] * 50 and len(looked_up) == 1


@pytest.mark.parametrize(
    ("host", "zone"),
    [
        ("a.b.example.com", "example.com"),
        ("api.Example.com.", "example.com"),
        ("shop.example.co.uk", "example.co.uk"),
        ("api.example.io", "example.io"),
        ("localhost", "localhost"),
    ],
)
def test_the_zone_of_a_name_is_what_one_owner_registers(host, zone):
    assert zone_of(host) == zone


def test_callers_of_one_network_are_counted_together():
    assert network_of("2001:db8::1") == network_of("2001:db8::2:1%eth0") != network_of("2001:db8:0:1::1")
    assert [network_of(one) for one in ("9.9.9.9", "::ffff:9.9.9.9", "", "x")] == ["9.9.9.9", "9.9.9.9", "", "x"]
