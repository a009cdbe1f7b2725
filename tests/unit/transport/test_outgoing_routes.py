"""The way to each destination: proxies, exceptions from them, authorities and client certificates."""

import re
import time

import pytest
from fakes.forward_proxy import FakeForwardProxy
from gevent.ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext, create_default_context
from support.certificates import write_certificate

from gateway.configuration.outgoing_settings import Outgoing, proxy_problem
from gateway.errors import ConnectFailed, UpstreamUnreachable
from gateway.transport.outgoing_routes import DirectDestinations, OutgoingRoutes, ProviderRoute, read_proxy
from gateway.transport.request_bytes import Origin, read_url

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOST = "api.provider.test"


def through(proxy: str, **more) -> Outgoing:
    return Outgoing(
        **{"https_proxy": proxy, "http_proxy": proxy, "no_proxy": (), "check_names": True, "ca_file": ""} | more
    )


def call(transport, url: str, trusted: bool = True) -> bytes:
    return transport.open(
        "POST", url, {"authorization": "Bearer key"}, b"{}", deadline=time.monotonic() + 30, trusted=trusted
    ).read_all()


@pytest.fixture
def certificate(tmp_path):
    return write_certificate(tmp_path / "api.pem", HOST)


@pytest.fixture
def secure(start_upstream, certificate):
    return start_upstream(certfile=certificate, keyfile=certificate)


@pytest.mark.parametrize("credentials", ["", "user:pass%word"])
def test_https_goes_through_a_tunnel_with_an_authority_beside_the_systems(
    secure, make_transport, certificate, credentials
) -> None:
    with FakeForwardProxy({HOST: secure.port}, credentials) as proxy:
        address = proxy.url.replace("pass%word", "pass%25word")
        transport = make_transport(options={"routes": OutgoingRoutes(through(address, ca_file=certificate))})
        for _ in range(3):
            secure.answer(OK)
            assert call(transport, f"https://{HOST}/v1") == b"ok"
        assert proxy.asked == [f"CONNECT {HOST}:443 HTTP/1.1"]  # one tunnel, kept
    assert not any(b"proxy-authorization" in request for request in secure.requests)


@pytest.mark.parametrize("credentials", ["", "user:secret"])
def test_http_is_forwarded_in_absolute_form(upstream, make_transport, credentials) -> None:
    with FakeForwardProxy({HOST: upstream.port}, credentials) as proxy:
        transport = make_transport(options={"routes": OutgoingRoutes(through(proxy.url))})
        upstream.answer(OK)
        assert call(transport, f"http://{HOST}/v1/chat?a=b") == b"ok"
        assert proxy.asked == [f"POST http://{HOST}/v1/chat?a=b HTTP/1.1"]
    assert upstream.requests[0].startswith(b"POST /v1/chat?a=b HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [("", "requires a user and password"), ("user:wrong@", "refused the user and password")],
)
def test_an_error_names_the_proxy_and_no_password(make_transport, given: str, message: str) -> None:
    with FakeForwardProxy({}, "user:right") as proxy:
        transport = make_transport(options={"routes": OutgoingRoutes(through(f"http://{given}{proxy.name}"))})
        with pytest.raises(ConnectFailed) as raised:
            call(transport, f"https://{HOST}/")
    assert raised.value.message == f"The proxy {proxy.name} {message} (407)."


def test_a_proxy_that_does_not_reach_the_destination_is_named(make_transport) -> None:
    with FakeForwardProxy({}) as proxy:
        transport = make_transport(options={"routes": OutgoingRoutes(through(proxy.url))})
        with pytest.raises(ConnectFailed, match=f"The proxy {proxy.name} refused a connection to {HOST} \\(502\\)"):
            call(transport, f"https://{HOST}/")


def test_a_proxy_that_is_away_is_named(make_transport) -> None:
    with FakeForwardProxy({}) as proxy:
        url, name = proxy.url, proxy.name
    transport = make_transport(options={"routes": OutgoingRoutes(through(url))})
    with pytest.raises(ConnectFailed, match=f"No connection to the proxy {name} could be made"):
        call(transport, f"https://{HOST}/")


def test_the_certificate_of_the_destination_is_checked_behind_a_proxy(secure, make_transport) -> None:
    with FakeForwardProxy({HOST: secure.port}) as proxy:
        transport = make_transport(options={"routes": OutgoingRoutes(through(proxy.url))})
        with pytest.raises(UpstreamUnreachable, match=f"The TLS certificate of {HOST} is not valid"):
            call(transport, f"https://{HOST}/")


def test_local_addresses_are_reached_without_the_proxy(upstream, make_transport) -> None:
    with FakeForwardProxy({}) as proxy:
        transport = make_transport(options={"routes": OutgoingRoutes(through(proxy.url))})
        upstream.answer(OK)
        assert call(transport, upstream.url) == b"ok" and proxy.asked == []


REFUSED = [
    "127.0.0.2",
    "localhost",
    "x.localhost",
    "10.0.0.1",
    "2130706433",
    "0x7f.1",
    "[::1]",
    "[fd00::1]",
    "169.254.1.1",
]


@pytest.mark.parametrize("host", REFUSED)
def test_a_private_address_in_numbers_is_refused_behind_a_proxy(make_transport, host: str) -> None:
    with FakeForwardProxy({}) as proxy:
        transport = make_transport(private=False, options={"routes": OutgoingRoutes(through(proxy.url))})
        with pytest.raises(UpstreamUnreachable) as raised:
            call(transport, f"https://{host}/", trusted=False)
        assert raised.value.code == "address_not_allowed" and proxy.asked == []


@pytest.mark.parametrize(("checks", "asked"), [(True, 0), (False, 1)])
def test_a_name_with_a_private_address_is_refused_where_it_can_be_looked_up(make_transport, checks, asked) -> None:
    with FakeForwardProxy({}) as proxy:
        options = {
            "routes": OutgoingRoutes(through(proxy.url, check_names=checks)),
            "resolver": lambda host, port: ["10.0.0.1"] if host == "private.example" else [host],
        }
        with pytest.raises(UpstreamUnreachable):
            call(make_transport(private=False, options=options), "https://private.example/", trusted=False)
        assert len(proxy.asked) == asked


def test_a_name_that_only_the_proxy_knows_passes(secure, make_transport, certificate) -> None:
    def resolver(host: str, port: int) -> list[str]:
        if host == HOST:
            raise ConnectFailed("unknown")
        return [host]

    with FakeForwardProxy({HOST: secure.port}) as proxy:
        routes = OutgoingRoutes(through(proxy.url, ca_file=certificate))
        transport = make_transport(private=False, options={"routes": routes, "resolver": resolver})
        secure.answer(OK)
        assert call(transport, f"https://{HOST}/", trusted=False) == b"ok"


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ("example.com", ["example.com", "EXAMPLE.com", "a.example.com", "example.com."], ["notexample.com", "com"]),
        (".example.com", ["a.example.com", "a.b.example.com"], ["example.com", "aexample.com"]),
        ("*.example.com", ["a.example.com"], ["example.com"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.1.2.3", "10.example.com"]),
        ("192.0.2.7", ["192.0.2.7"], ["192.0.2.8"]),
        ("2001:db8::/32", ["2001:db8::1"], ["2001:db9::1"]),
        ("*", ["example.com", "192.0.2.7"], []),
        ("", [], ["example.com"]),
    ],
)
def test_exceptions_are_names_suffixes_addresses_and_networks(entry, inside, outside) -> None:
    direct = DirectDestinations([entry])
    assert [host for host in inside + outside if direct.covers(host, 443)] == inside


def test_an_exception_may_name_a_port() -> None:
    direct = DirectDestinations(["example.com:8443", "192.0.2.0/24:80", "[2001:db8::1]:443"])
    assert direct.covers("example.com", 8443) and not direct.covers("example.com", 443)
    assert direct.covers("192.0.2.9", 80) and not direct.covers("192.0.2.9", 443)
    assert direct.covers("2001:db8::1", 443) and not direct.covers("2001:db8::1", 80)


def test_a_provider_has_its_own_way(tmp_path) -> None:
    routes = OutgoingRoutes(through("http://all.example:1"))
    routes.use(
        [
            ProviderRoute(re.compile(r"api\.one\.example"), "direct"),
            ProviderRoute(re.compile(r".*\.two\.example"), "http://two.example:2"),
        ]
    )
    chosen = {
        host: routes.find(read_url(f"https://{host}/", True).origin).proxy
        for host in ("api.one.example", "x.two.example", "three.example")
    }
    assert {host: proxy and proxy.name for host, proxy in chosen.items()} == {
        "api.one.example": None, "x.two.example": "two.example:2", "three.example": "all.example:1",
    }  # fmt: skip


@pytest.mark.parametrize("trusted", [True, False])
def test_a_client_certificate_is_sent_with_the_platforms_credentials_alone(
    start_upstream, make_transport, certificate, tmp_path, trusted: bool
) -> None:
    client = write_certificate(tmp_path / "client.pem", "the gateway")
    server_side = SSLContext(PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    server_side.load_verify_locations(client)
    server_side.verify_mode = CERT_REQUIRED
    upstream = start_upstream(ssl_context=server_side)
    routes = OutgoingRoutes(through(""))
    routes.use([ProviderRoute(re.compile(re.escape(HOST)), ca_file=certificate, certificate_file=client)])
    transport = make_transport(options={"routes": routes, "resolver": lambda host, port: ["127.0.0.1"]})
    upstream.answer(OK)
    url = f"https://{HOST}:{upstream.port}/"
    if trusted:
        assert call(transport, url) == b"ok"
    else:
        with pytest.raises(UpstreamUnreachable):
            call(transport, url, trusted=False)


def test_a_file_of_authorities_adds_to_the_systems(certificate) -> None:
    system = {entry["serialNumber"] for entry in create_default_context().get_ca_certs()}
    routes = OutgoingRoutes(through("", ca_file=certificate))
    context = routes.find(Origin("https", HOST, 443, True)).tls()
    found = {entry["serialNumber"] for entry in context.get_ca_certs()}
    assert found >= system and len(context.get_ca_certs()) >= 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("http://proxy.example:3128", ""), ("proxy.example:3128", ""), ("http://user:p%40ss@proxy.example", ""),
        ("http://proxy.example/", ""), ("socks5://user:secret@proxy.example", "only proxies with an http:// address"),
        ("https://proxy.example", "only proxies with an http:// address"), ("user:secret@proxy.example", "write http://"),
        ("http://proxy.example/path", "has no path"), ("http://proxy.example:x", "cannot be one"),
        ("http://", "names no host"),
    ],
)  # fmt: skip
def test_the_address_of_a_proxy_is_checked_without_quoting_it(value: str, problem: str) -> None:
    found = proxy_problem(value)
    assert problem in found and bool(found) == bool(problem) and "secret" not in found


def test_the_usual_port_of_a_proxy_is_that_of_squid() -> None:
    assert read_proxy("http://proxy.example").port == 3128
