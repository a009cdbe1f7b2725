"""Keys of token issuers: discovery, caching, rotation, outages, and the algorithms that are accepted."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from gateway.callers import issuer_keys as issuer_keys_module
from gateway.callers.issuer_keys import InvalidKeys, InvalidToken, IssuerKeys, KeySource
from gateway.errors import Unavailable, UpstreamUnreachable

ISSUER = "https://issuer.example"
DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"
KEYS = f"{ISSUER}/keys"
SOURCE = KeySource(ISSUER)


class Web:
    """The documents of all hosts, with a count of the requests."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.requests: list[str] = []

    def publish(self, *keys: Any, issuer: str = ISSUER) -> None:
        self.documents[f"{issuer}/.well-known/openid-configuration"] = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        self.documents[f"{issuer}/keys"] = {"keys": [key.as_dict(private=False) for key in keys]}

    def fetch(self, url: str) -> tuple[int, bytes]:
        self.requests.append(url)
        if url not in self.documents:
            raise UpstreamUnreachable("Nothing answers.")
        return 200, json.dumps(self.documents[url]).encode()


class MemoryStore(dict[str, bytes]):
    def get(self, kind: str, key: str) -> bytes | None:  # type: ignore[override]
        return super().get(key)

    def put(self, kind: str, key: str, value: bytes, ttl_s: float) -> None:
        self[key] = value


def make_key(key_id: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": key_id})


def sign(key: Any, claims: dict[str, Any] | None = None, algorithm: str = "RS256", **header: str) -> str:
    header = {"alg": algorithm, "kid": key.kid, **header}
    return jwt.encode(header, claims or {"iss": ISSUER}, key, algorithms=[algorithm])


def encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def key() -> RSAKey:
    return make_key("one")


@pytest.fixture
def web(key: RSAKey) -> Web:
    web = Web()
    web.publish(key)
    return web


@pytest.fixture
def keys(web: Web, clock: Any) -> IssuerKeys:
    return IssuerKeys(web.fetch, MemoryStore(), clock)


def test_keys_are_discovered_once_and_then_cached(keys: IssuerKeys, web: Web, key: RSAKey) -> None:
    for _ in range(3):
        keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)
    assert web.requests == [DISCOVERY, KEYS]


def test_a_configured_url_needs_no_discovery(keys: IssuerKeys, web: Web, key: RSAKey) -> None:
    keys.verify(issuer_keys_module.decode(sign(key)), KeySource(ISSUER, KEYS))
    assert web.requests == [KEYS]


def test_a_configured_key_set_is_never_fetched(keys: IssuerKeys, web: Web, key: RSAKey) -> None:
    source = KeySource(ISSUER, jwks=json.dumps({"keys": [key.as_dict(private=False)]}))
    keys.verify(issuer_keys_module.decode(sign(key)), source)
    with pytest.raises(InvalidToken):
        keys.verify(issuer_keys_module.decode(sign(make_key("two"))), source)
    assert web.requests == []


def test_rotated_keys_are_loaded_when_a_token_names_an_unknown_key(
    keys: IssuerKeys, web: Web, key: RSAKey, clock: Any
) -> None:
    keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)
    new = make_key("two")
    web.publish(new)
    clock.advance(issuer_keys_module.RETRY_INTERVAL_S)
    keys.verify(issuer_keys_module.decode(sign(new)), SOURCE)
    with pytest.raises(InvalidToken):
        keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)
    assert len(web.requests) == 4


def test_unknown_key_ids_cannot_cause_a_flood_of_fetches(keys: IssuerKeys, web: Web) -> None:
    forged = make_key("forged")
    for _ in range(20):
        with pytest.raises(InvalidToken):
            keys.verify(issuer_keys_module.decode(sign(forged)), SOURCE)
    assert len(web.requests) == 2


def test_an_unavailable_issuer_is_called_again_only_after_a_while(web: Web, key: RSAKey, clock: Any) -> None:
    web.documents.clear()
    keys = IssuerKeys(web.fetch, MemoryStore(), clock)
    for _ in range(5):
        with pytest.raises(Unavailable) as caught:
            keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)
    assert caught.value.code == "issuer_unavailable"
    assert len(web.requests) == 1
    web.publish(key)
    clock.advance(issuer_keys_module.RETRY_INTERVAL_S)
    keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)


def test_loaded_keys_outlive_an_outage_for_a_day(keys: IssuerKeys, web: Web, key: RSAKey, clock: Any) -> None:
    token = issuer_keys_module.decode(sign(key))
    keys.verify(token, SOURCE)
    web.documents.clear()
    clock.advance(issuer_keys_module.REFRESH_AFTER_S)
    keys.verify(token, SOURCE)
    clock.advance(issuer_keys_module.MAX_AGE_S)
    with pytest.raises(Unavailable):
        keys.verify(token, SOURCE)


def test_a_new_worker_uses_stored_keys_while_the_issuer_is_unavailable(web: Web, key: RSAKey, clock: Any) -> None:
    store = MemoryStore()
    IssuerKeys(web.fetch, store, clock).verify(issuer_keys_module.decode(sign(key)), SOURCE)
    web.documents.clear()
    IssuerKeys(web.fetch, store, clock).verify(issuer_keys_module.decode(sign(key)), SOURCE)


def test_a_discovery_document_of_another_issuer_is_refused(keys: IssuerKeys, web: Web, key: RSAKey) -> None:
    web.documents[DISCOVERY]["issuer"] = "https://other.example"
    with pytest.raises(Unavailable):
        keys.verify(issuer_keys_module.decode(sign(key)), SOURCE)
    assert web.requests == [DISCOVERY]


def test_keys_of_one_issuer_do_not_verify_tokens_of_another(keys: IssuerKeys, web: Web, key: RSAKey) -> None:
    other_key = make_key("one")
    web.publish(other_key, issuer="https://other.example")
    with pytest.raises(InvalidToken):
        keys.verify(issuer_keys_module.decode(sign(other_key)), SOURCE)


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize(
    ("algorithm", "curve"),
    [
        *((algorithm, "") for algorithm in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        *(("ES256", "P-256"), ("ES384", "P-384"), ("ES512", "P-521"), ("EdDSA", "Ed25519"), ("Ed25519", "Ed25519")),
    ],
)
def test_every_asymmetric_algorithm_is_accepted(key: RSAKey, algorithm: str, curve: str) -> None:
    kind = OKPKey if curve == "Ed25519" else ECKey
    signing_key = kind.generate_key(curve, {"kid": "x"}) if curve else key
    loaded = issuer_keys_module.read_keys(json.dumps({"keys": [signing_key.as_dict(private=False)]}))
    issuer_keys_module.check_signature(issuer_keys_module.decode(sign(signing_key, algorithm=algorithm)), loaded)


def test_unsigned_tokens_are_refused() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        with pytest.raises(InvalidToken):
            issuer_keys_module.decode(f"{encode({'alg': algorithm})}.{encode({'iss': ISSUER})}.")


def test_a_public_key_is_no_hmac_secret(key: RSAKey) -> None:
    head = f"{encode({'alg': 'HS256', 'kid': 'one'})}.{encode({'iss': ISSUER})}"
    digest = hmac.new(key.as_pem(private=False), head.encode(), hashlib.sha256).digest()
    forged = f"{head}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    with pytest.raises(InvalidToken):
        issuer_keys_module.decode(forged)


def test_symmetric_weak_and_encryption_keys_are_left_out(key: RSAKey) -> None:
    secret = OctKey.generate_key(256).as_dict(private=True)
    encryption = {**key.as_dict(private=False), "use": "enc"}
    with pytest.raises(InvalidKeys):
        issuer_keys_module.read_keys(
            json.dumps({"keys": [secret, encryption, {"kty": "RSA", "n": "AQ", "e": "AQAB"}, 7]})
        )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', "[" * 100_000, "\0"])
def test_malformed_key_sets_are_refused(text: str) -> None:
    with pytest.raises(InvalidKeys):
        issuer_keys_module.read_keys(text)


@pytest.mark.parametrize(
    "token",
    ["eyJ.e.s", "eyJhbGciOiJSUzI1NiJ9.W10.c2ln", f"eyJ{'a' * 20_000}.b.c", "eyJhbGciOiJSUzI1NiJ9.e30", "eyJ.é.c"],
)
def test_malformed_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        issuer_keys_module.decode(token)


def test_a_changed_claim_breaks_the_signature(keys: IssuerKeys, key: RSAKey) -> None:
    head, _, signature = sign(key, {"iss": ISSUER, "sub": "a"}).split(".")
    forged = issuer_keys_module.decode(f"{head}.{encode({'iss': ISSUER, 'sub': 'b'})}.{signature}")
    with pytest.raises(InvalidToken):
        keys.verify(forged, SOURCE)


@pytest.mark.parametrize("kind", [["RSA"], {"a": 1}, 5, None])
def test_a_key_whose_type_is_no_text_is_left_out(key: RSAKey, kind: Any) -> None:
    entries = [key.as_dict(private=False) | {"kty": kind}, key.as_dict(private=False)]
    assert len(issuer_keys_module.read_keys(json.dumps({"keys": entries}))) == 1


@pytest.mark.parametrize("address", ["https://[x", "https://h\u2100/", "http://issuer.example/keys", "", 5])
def test_an_address_of_keys_that_is_none_makes_the_issuer_unavailable(keys: IssuerKeys, web: Web, address: Any) -> None:
    web.documents[DISCOVERY]["jwks_uri"] = address
    with pytest.raises(Unavailable):
        keys.find(SOURCE, "")


def test_a_token_costs_few_checks_however_many_keys_have_no_id(key: RSAKey) -> None:
    def read(last: Any) -> tuple[Any, ...]:
        others = [ECKey.generate_key("P-256").as_dict(private=False) for _ in range(issuer_keys_module.MAX_TRIED_KEYS)]
        return issuer_keys_module.read_keys(json.dumps({"keys": [*others, last.as_dict(private=False)]}))

    own = ECKey.generate_key("P-256", {"kid": "own"})
    token = issuer_keys_module.decode(sign(own, algorithm="ES256"))
    issuer_keys_module.check_signature(token, read(own))
    anonymous = ECKey.import_key({name: value for name, value in own.as_dict().items() if name != "kid"})
    issuer_keys_module.check_signature(token, read(anonymous)[1:])
    with pytest.raises(InvalidToken):
        issuer_keys_module.check_signature(token, read(anonymous))


def test_claims_that_no_store_keeps_are_refused(key: RSAKey) -> None:
    payload = base64.urlsafe_b64encode(b'{"sub": "\\ud800"}').rstrip(b"=").decode()
    with pytest.raises(InvalidToken):
        issuer_keys_module.decode(f"{encode({'alg': 'RS256'})}.{payload}.AAAA")
