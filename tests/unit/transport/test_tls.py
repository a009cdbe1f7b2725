import time

import gevent
import pytest
from gevent.server import StreamServer
from gevent.ssl import PROTOCOL_TLS_SERVER, SSLContext, TLSVersion, create_default_context
from support.certificates import write_certificate

from gateway.errors import UpstreamTimeout, UpstreamUnreachable
from gateway.transport.connections import VERIFICATION_LIFETIME_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def certificate(tmp_path):
    """A certificate for api.test that signs itself, with its key in the same file."""
    return write_certificate(tmp_path / "api.pem", "api.test")


@pytest.fixture
def secure(start_upstream, certificate):
    return start_upstream(certfile=certificate, keyfile=certificate)


def options(certificate: str) -> dict:
    tls = create_default_context(cafile=certificate)
    return {"tls": tls, "resolver": lambda host, port: ["127.0.0.1"]}


def call(transport, upstream, host):
    url = f"https://{host}:{upstream.port}/"
    return transport.open("POST", url, {}, b"{}", deadline=time.monotonic() + 5).read_all()


def test_verified_name_is_served_over_one_kept_connection(secure, make_transport, certificate):
    transport = make_transport(options=options(certificate))
    for _ in range(3):
        secure.answer(OK)
        assert call(transport, secure, "api.test") == b"ok"
    assert secure.connections == 1


def test_certificate_of_another_name_is_refused(secure, make_transport, certificate):
    with pytest.raises(UpstreamUnreachable, match=r"certificate of other.test"):
        call(make_transport(options=options(certificate)), secure, "other.test")


def test_signer_unknown_to_the_system_is_refused(secure, make_transport):
    transport = make_transport(options={"resolver": lambda host, port: ["127.0.0.1"]})
    with pytest.raises(UpstreamUnreachable, match="certificate"):
        call(transport, secure, "api.test")


def test_server_without_tls_is_refused(make_transport, certificate):
    with StreamServer(("127.0.0.1", 0), lambda sock, _: sock.sendall(b"HTTP/1.1 400 X\r\n\r\n")) as server:
        server.start()
        server.port = server.server_port
        with pytest.raises(UpstreamUnreachable, match="TLS"):
            call(make_transport(options=options(certificate)), server, "api.test")


def test_kept_tls_connection_that_ended_is_replaced(secure, make_transport, certificate):
    transport = make_transport(options=options(certificate))
    for _ in range(2):
        secure.answer(OK, None)
        assert call(transport, secure, "api.test") == b"ok"
        time.sleep(0.02)
    assert secure.connections == 2


def test_answer_of_many_tls_records_comes_whole_however_slowly_it_is_read(secure, make_transport, certificate):
    transport = make_transport(options=options(certificate), silence_s=0.3)
    body = b"x" * 300_000
    for pause in (0.0, 0.02):
        secure.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + body)
        url = f"https://api.test:{secure.port}/"
        reply = transport.open("POST", url, {}, b"{}", stream=True, deadline=time.monotonic() + 5)
        size = 0
        for item in reply.chunks():
            size += len(item)
            gevent.sleep(pause)
        assert size == len(body)
    assert secure.connections == 1


def test_deadline_holds_over_tls(secure, make_transport, certificate):
    secure.answer(2.0, OK)
    url = f"https://api.test:{secure.port}/"
    with pytest.raises(UpstreamTimeout):
        make_transport(options=options(certificate)).open("POST", url, {}, b"{}", deadline=time.monotonic() + 0.2)


@pytest.fixture
def single(certificate):
    """A server that closes each connection after one response; `resumed` says of each whether it resumed a session."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    resumed = []

    def serve(sock, _):
        sock.recv(65536)
        resumed.append(sock.session_reused)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    with StreamServer(("127.0.0.1", 0), serve, ssl_context=context) as server:
        server.start()
        server.port = server.server_port
        server.resumed = resumed
        yield server


@pytest.mark.parametrize("version", [TLSVersion.TLSv1_2, TLSVersion.TLSv1_3])
def test_a_new_connection_resumes_the_tls_session_until_certificates_are_checked_again(
    single, make_transport, certificate, clock, version
):
    given = options(certificate)
    given["tls"].maximum_version = version
    transport = make_transport(options=given | {"clock": clock})

    def call_at(offset_s):
        clock.advance(offset_s)
        url = f"https://api.test:{single.port}/"
        return transport.open("POST", url, {}, b"{}", deadline=clock.monotonic() + 60).read_all()

    for offset_s in (0, 1, 1, VERIFICATION_LIFETIME_S, 1):
        assert call_at(offset_s) == b"ok"
    assert single.resumed == [False, True, True, False, True]


def test_a_session_is_resumed_with_its_own_host_only(single, make_transport, certificate):
    transport = make_transport(options=options(certificate))
    assert call(transport, single, "api.test") == b"ok"
    with pytest.raises(UpstreamUnreachable, match=r"certificate of other.test"):
        call(transport, single, "other.test")
    assert not any(single.resumed)
