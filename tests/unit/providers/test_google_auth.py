import json
from urllib.parse import parse_qs

import gevent
import pytest
from fakes.google import ACCESS_TOKEN, FakeGoogle
from joserfc import jwt
from joserfc.jwk import RSAKey

from gateway.errors import UpstreamFailed, UpstreamRefused, UpstreamUnreachable
from gateway.providers.identities.google_credentials import TOKEN_URL, AccessTokens, fetch_over
from gateway.transport import Transport

KEY = RSAKey.generate_key(2048)


def account(email="robot@acme.iam.gserviceaccount.com", **more) -> str:
    fields = {
        "type": "service_account",
        "client_email": email,
        "private_key": KEY.as_pem(private=True).decode(),
        "private_key_id": "k1",
        "token_uri": "http://169.254.169.254/steal",
    }
    return json.dumps(fields | more)


class Service:
    """A token service in memory: each answer a new token, or what is scripted."""

    def __init__(self, status=200, body=None, wait=0.0) -> None:
        self.asked: list[tuple[str, dict]] = []
        self.status, self.body, self.wait = status, body, wait

    def __call__(self, url, headers, body):
        self.asked.append((url, parse_qs(body.decode())))
        token = {"access_token": f"ya29.{len(self.asked)}", "expires_in": 3600}
        gevent.sleep(self.wait)
        return self.status, json.dumps(token).encode() if self.body is None else self.body


def test_assertion_is_signed_for_the_token_service_and_no_other_address(clock):
    service = Service()
    assert AccessTokens(service, clock).token(account()) == "ya29.1"
    url, form = service.asked[0]
    assert (url, form["grant_type"]) == (TOKEN_URL, ["urn:ietf:params:oauth:grant-type:jwt-bearer"])
    token = jwt.decode(form["assertion"][0], KEY)
    assert token.header == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    assert (token.claims["iss"], token.claims["aud"]) == ("robot@acme.iam.gserviceaccount.com", TOKEN_URL)
    assert token.claims["exp"] - token.claims["iat"] == 3600


def test_token_is_kept_until_a_minute_before_it_expires(clock):
    service = Service()
    tokens = AccessTokens(service, clock)
    assert [tokens.token(account()), tokens.token(account())] == ["ya29.1", "ya29.1"]
    clock.advance(3539)
    assert tokens.token(account()) == "ya29.1"
    clock.advance(2)
    assert tokens.token(account()) == "ya29.2"


def test_other_requests_go_on_while_the_key_of_a_service_account_is_read(clock):
    turns = []

    def others():
        while True:
            gevent.sleep(0)
            turns.append(1)

    service = Service()
    meanwhile = gevent.spawn(others)
    assert AccessTokens(service, clock).token(account()) == "ya29.1"
    meanwhile.kill()
    assert len(turns) > 1


def test_a_key_that_takes_seconds_to_check_is_refused_unread(clock, monkeypatch):
    monkeypatch.setattr(RSAKey, "import_key", lambda *given: pytest.fail("it is read"))
    with pytest.raises(UpstreamRefused, match="private key"):
        AccessTokens(Service(), clock).token(account(private_key="A" * 6_400))


def test_many_at_once_ask_once_for_each_account(clock):
    service = Service(wait=0.02)
    tokens = AccessTokens(service, clock)
    jobs = [gevent.spawn(tokens.token, account(f"robot{n % 2}@acme")) for n in range(20)]
    gevent.joinall(jobs, raise_error=True)
    assert len(service.asked) == 2 and len({job.value for job in jobs}) == 2


def test_failure_is_not_remembered(clock):
    service = Service(status=503)
    tokens = AccessTokens(service, clock)
    with pytest.raises(UpstreamFailed):
        tokens.token(account())
    service.status = 200
    assert tokens.token(account()) == "ya29.2"


def test_an_access_token_is_used_unchanged(clock):
    service = Service()
    assert AccessTokens(service, clock).token("ya29.mine") == "ya29.mine" and not service.asked


@pytest.mark.parametrize(
    "secret", ["{", "{}", '{"client_email": "a", "private_key": 7}', account(private_key="no key"), account(email="")]
)
def test_broken_account_is_refused_without_showing_it(clock, secret):
    service = Service()
    with pytest.raises(UpstreamRefused) as raised:
        AccessTokens(service, clock).token(secret)
    assert not service.asked and "no key" not in raised.value.message


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error":"invalid_grant"}', UpstreamRefused),
        (200, b"<html>", UpstreamFailed),
        (200, b"{}", UpstreamFailed),
    ],
)
def test_refusal_of_the_token_service_is_reported(clock, status, body, kind):
    with pytest.raises(kind) as raised:
        AccessTokens(Service(status, body), clock).token(account())
    assert raised.value.upstream_status == status


def test_token_comes_over_the_gateways_client(settings, clock):
    chosen = settings(GATEWAY_SECURITY_ALLOW_PRIVATE_UPSTREAMS="true")
    transport = Transport(chosen.timeouts, chosen.security, clock=clock)
    with FakeGoogle() as upstream:
        tokens = AccessTokens(fetch_over(transport), clock, upstream.token_url)
        assert tokens.token(account()) == ACCESS_TOKEN
        assert jwt.decode(upstream.assertions[0], KEY).claims["aud"] == upstream.token_url


def test_unreachable_token_service_is_the_providers_failure(settings, clock):
    chosen = settings(GATEWAY_SECURITY_ALLOW_PRIVATE_UPSTREAMS="true")
    transport = Transport(chosen.timeouts, chosen.security, clock=clock)
    with pytest.raises(UpstreamUnreachable):
        AccessTokens(fetch_over(transport), clock, "http://127.0.0.1:1/token").token(account())
