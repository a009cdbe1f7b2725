"""Signed tokens as credentials: the rules that accept them, and every attack that must be refused."""

import base64
import hashlib
import hmac
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from support.issuers import Issuer, Web, encode_part, make_key

from gateway.accounts import keys, organizations, projects
from gateway.accounts.key_caps import NO_CAPS
from gateway.accounts.workload_callers import WorkloadCallers
from gateway.accounts.workload_identities import (
    WorkloadIdentities,
    WorkloadIdentityChange,
    WorkloadIdentityDraft,
    WorkloadIdentityInfo,
)
from gateway.callers.authentication import Authentication, Caller
from gateway.callers.issuer_keys import RETRY_INTERVAL_S, IssuerKeys
from gateway.clock import SECOND_US
from gateway.errors import Conflict, Gone, InvalidRequest, Unauthenticated, Unavailable
from gateway.store.documents import Documents

URL = "https://issuer.example"
AUDIENCE = "llm-gateway"
KEY = make_key("one")


@dataclass
class Setting:
    """An organization that accepts tokens of an issuer."""

    company: Any
    issuer: Issuer
    web: Web
    authentication: Authentication
    identities: WorkloadIdentities

    def accept(self, claims: dict[str, Any] | None = None, **more: Any) -> WorkloadIdentityInfo:
        values: dict[str, Any] = {
            "organization_id": self.company.organization_id,
            "project_id": self.company.project_id,
            "name": "Deployments",
            "issuer": self.issuer.url,
            "audience": AUDIENCE,
            "claims": claims or {"sub": "repo:acme/*"},
            **more,
        }
        return self.identities.create(WorkloadIdentityDraft(**values), lambda key_id: None, actor="operator")

    def claims(self, **more: Any) -> dict[str, Any]:
        now = self.company.clock.now_us() // SECOND_US
        return {"aud": AUDIENCE, "sub": "repo:acme/app", "iat": now, "exp": now + 600, **more}

    def token(self, **more: Any) -> str:
        claims = self.claims(**more)
        return self.issuer.sign({name: value for name, value in claims.items() if value is not None})

    def call(self, token: str) -> Caller:
        return self.authentication.caller(token)

    def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as caught:
            self.call(token)
        assert caught.value.code == "invalid_token"
        assert token not in caught.value.message
        return caught.value.message


@pytest.fixture
def setting(small_company: Any) -> Setting:
    company = small_company
    issuer = Issuer(URL, KEY)
    web = Web(issuer)
    authentication = company.authentication()
    issuer_keys = IssuerKeys(web.fetch, Documents(company.database), company.clock)
    callers = WorkloadCallers(authentication, issuer_keys, company.control, company.clock)
    authentication.accept_signed_tokens(callers.read)
    identities = WorkloadIdentities(company.database, company.control, company.secrets.hash_keys, NO_CAPS)
    return Setting(company, issuer, web, authentication, identities)


def test_an_accepted_token_calls_with_the_key_of_its_identity(setting: Setting) -> None:
    identity = setting.accept(attribution={"User": "actor", "run": "run_id", "absent": "nope"})
    caller = setting.call(setting.token(actor="ada", run_id=7))
    assert (caller.key_id, caller.identity_id) == (identity.api_key_id, identity.id)
    assert (caller.project_id, caller.key_kind, caller.role) == (setting.company.project_id, "customer", "developer")
    assert caller.tags == {"user": "ada", "run": "7"}


def test_the_result_is_cached_until_the_token_expires(setting: Setting) -> None:
    setting.accept()
    token = setting.token()
    caller = setting.call(token)
    assert setting.call(token) is caller and setting.authentication.holds(caller)
    assert len(setting.web.requests) == 2
    setting.company.clock.advance(601)
    assert "expired" in setting.refusal(token)
    assert not setting.authentication.holds(caller)


def test_rules_work_in_both_stores(company: Any) -> None:
    identities = WorkloadIdentities(company.database, company.control, company.secrets.hash_keys, NO_CAPS)
    draft = WorkloadIdentityDraft(company.organization_id, company.project_id, "CI", URL, AUDIENCE, {"sub": "x"})
    identity = identities.create(draft, lambda key_id: None, actor="operator")
    change = WorkloadIdentityChange(name="Renamed", claims={"sub": ["y", "z"]})
    changed = identities.update(company.organization_id, identity.id, change, actor="operator")
    assert changed.name == "Renamed" and changed.claims == {"sub": ["y", "z"]}
    identities.delete(company.organization_id, identity.id, actor="operator")
    assert identities.list_identities(company.organization_id) == []


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"aud": "another"}, "issuer and audience"),
        ({"aud": None}, "issuer and audience"),
        ({"aud": ["another", 7]}, "issuer and audience"),
        ({"aud": {"a": "b"}}, "issuer and audience"),
        ({"iss": "https://issuer.example/"}, "issuer and audience"),
        ({"iss": "https://unknown.example"}, "issuer and audience"),
        ({"iss": 7}, "issuer and audience"),
        ({"iss": ["https://issuer.example"]}, "issuer and audience"),
        ({"sub": "repo:rival/app"}, "claims"),
        ({"sub": None}, "claims"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no valid expiry"),
        ({"exp": "tomorrow"}, "no valid expiry"),
        ({"exp": True}, "no valid expiry"),
        ({"exp": 1e300}, "no valid expiry"),
        ({"exp": float("nan")}, "malformed"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"iat": 4_000_000_000}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
    ],
)
def test_tokens_that_break_a_rule_are_refused(setting: Setting, claims: dict[str, Any], text: str) -> None:
    setting.accept()
    assert text in setting.refusal(setting.token(**claims))


def test_a_token_becomes_valid_after_its_refusal(setting: Setting) -> None:
    setting.accept()
    now = setting.company.clock.now_us() // SECOND_US
    token = setting.token(nbf=now + 120)
    assert "not valid yet" in setting.refusal(token)
    setting.company.clock.advance(61)
    assert setting.call(token).identity_id


def test_forged_tokens_are_refused(setting: Setting) -> None:
    setting.accept()
    setting.call(setting.token())
    head, body, signature = setting.token().split(".")
    claims = setting.claims(iss=URL)
    unsigned = f"{encode_part({'alg': 'none'})}.{encode_part(claims)}."
    public = KEY.as_pem(private=False)
    mixed = f"{encode_part({'alg': 'HS256', 'kid': 'one'})}.{encode_part(claims)}"
    digest = hmac.new(public, mixed.encode(), hashlib.sha256).digest()
    with_public_key = f"{mixed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    own_key = make_key("own")
    embedded = Issuer(URL, own_key).sign(claims, jwk=own_key.as_dict(private=False), kid="one")
    elsewhere = Issuer(URL, own_key).sign(claims, jku="https://evil.example/keys", kid="one")
    changed = f"{head}.{encode_part({**claims, 'sub': 'repo:acme/other'})}.{signature}"
    for token in (unsigned, with_public_key, embedded, elsewhere, changed, f"{head}.{body}.", f"{head}.{body}.AAAA"):
        setting.refusal(token)
    assert all(url.startswith(URL) for url in setting.web.requests)


def test_unknown_issuers_never_cause_a_request(setting: Setting) -> None:
    setting.accept()
    for number in range(20):
        other_issuer = Issuer(f"https://issuer-{number}.example", KEY)
        setting.web.publish(other_issuer)
        setting.refusal(other_issuer.sign(setting.claims()))
        setting.refusal(setting.token(aud=f"audience {number}"))
    assert setting.web.requests == []


def test_a_token_of_one_organization_opens_no_other(setting: Setting) -> None:
    """Both organizations use one public issuer, and the second one accepts all tokens of the issuer."""
    setting.accept()
    company = setting.company
    stores = (company.database, company.control)
    rival = organizations.create_organization(*stores, "Rival", actor="operator")
    project = projects.create_project(*stores, rival.id, "Default", actor="operator")
    place = {"organization_id": rival.id, "project_id": project.id, "claims": {"sub": "repo:*"}}
    with pytest.raises(Conflict) as caught:
        setting.accept(**place)
    assert caught.value.code == "audience_taken"
    setting.accept(audience="rival-gateway", **place)
    assert setting.call(setting.token()).organization_id == company.organization_id
    assert setting.call(setting.token(aud="rival-gateway")).organization_id == rival.id
    assert "several organizations" in setting.refusal(setting.token(aud=[AUDIENCE, "rival-gateway"]))


def test_a_deleted_identity_frees_its_audience(setting: Setting) -> None:
    company = setting.company
    identity = setting.accept()
    stores = (company.database, company.control)
    rival = organizations.create_organization(*stores, "Rival", actor="operator")
    project = projects.create_project(*stores, rival.id, "Default", actor="operator")
    setting.identities.delete(company.organization_id, identity.id, actor="operator")
    setting.accept(organization_id=rival.id, project_id=project.id)


def test_the_most_specific_rule_decides(setting: Setting) -> None:
    general = setting.accept({"sub": "repo:acme/*"})
    special = setting.accept({"sub": "repo:acme/*", "environment": "production"})
    assert setting.call(setting.token()).identity_id == general.id
    assert setting.call(setting.token(environment="production")).identity_id == special.id


@pytest.mark.parametrize("end", ["inactive", "deleted", "claims", "key", "archived"])
def test_ended_rules_are_refused_at_once(setting: Setting, end: str) -> None:
    identity = setting.accept()
    company = setting.company
    token = setting.token()
    setting.call(token)
    stores = (company.database, company.control)
    place = (company.organization_id, identity.id)
    if end == "inactive":
        setting.identities.update(*place, WorkloadIdentityChange(status="inactive"), actor="operator")
    elif end == "deleted":
        setting.identities.delete(*place, actor="operator")
    elif end == "claims":
        setting.identities.update(*place, WorkloadIdentityChange(claims={"sub": "x"}), actor="operator")
    elif end == "key":
        keys.revoke(*stores, identity.api_key_id, actor="operator")
    else:
        change = projects.ProjectChange(status="archived")
        projects.update_project(*stores, company.project_id, change, actor="operator")
    with pytest.raises((Unauthenticated, Gone)):
        setting.call(token)


def test_tokens_under_rotated_keys_are_accepted(setting: Setting) -> None:
    setting.accept()
    setting.call(setting.token())
    setting.issuer.key = make_key("two")
    setting.web.publish(setting.issuer)
    token = setting.token()
    setting.refusal(token)
    setting.company.clock.advance(RETRY_INTERVAL_S)
    assert setting.call(token).identity_id


def test_an_unavailable_issuer_is_no_reason_to_refuse_the_token(setting: Setting) -> None:
    setting.accept()
    setting.web.documents.clear()
    token = setting.token()
    with pytest.raises(Unavailable):
        setting.call(token)
    setting.web.publish(setting.issuer)
    setting.company.clock.advance(RETRY_INTERVAL_S)
    assert setting.call(token).identity_id


def test_a_slow_issuer_delays_no_tokens_of_another(setting: Setting) -> None:
    setting.accept()
    slow = Issuer("https://slow.example", KEY)
    setting.accept(issuer=slow.url)
    setting.web.publish(slow)
    requested = threading.Event()
    answer = threading.Event()
    fetch = setting.web.fetch

    def wait_for_release(url: str) -> tuple[int, bytes]:
        if url.startswith(slow.url):
            requested.set()
            answer.wait(60)
        return fetch(url)

    setting.web.fetch = wait_for_release  # type: ignore[method-assign]
    reader: Any = setting.authentication._read_signed
    reader.__self__._keys._fetch = wait_for_release
    waiting = threading.Thread(target=lambda: setting.call(slow.sign(setting.claims())))
    waiting.start()
    assert requested.wait(60)
    assert setting.call(setting.token()).identity_id
    assert setting.call(setting.company.make_key().token).key_kind == "user"
    answer.set()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_flood_of_tokens_evicts_no_keys(setting: Setting) -> None:
    setting.accept()
    key = setting.company.make_key()
    known = setting.call(key.token)
    memory: Any = setting.authentication._memory
    memory._minor_size = 5
    for number in range(20):
        setting.call(setting.token(jti=str(number)))
    assert setting.call(key.token) is known and len(memory._minors) == 5


def test_the_limits_of_the_key_are_written_with_it(setting: Setting) -> None:
    limited: list[str] = []
    draft = WorkloadIdentityDraft(
        setting.company.organization_id, setting.company.project_id, "CI", URL, AUDIENCE, {"sub": "x"}
    )
    identity = setting.identities.create(draft, limited.append, actor="operator")
    assert limited == [identity.api_key_id]


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": "http://issuer.example"},
        {"issuer": "https://127.0.0.1"},
        {"issuer": "https://localhost"},
        {"issuer": "https://user@issuer.example"},
        {"issuer": "https://issuer.example?x=1"},
        {"issuer": "issuer.example"},
        {"issuer": "https://169.254.169.254"},
        {"jwks_url": "https://10.0.0.1/keys"},
        {"jwks_url": "file:///etc/passwd"},
        {"jwks": "{}"},
        {"jwks": '{"keys": [{"kty": "oct", "k": "AAAA"}]}'},
        {"audience": " "},
        {"claims": {"sub": "*"}},
        {"attribution": {"user": 7}},
        {"attribution": {"": "sub"}},
        {"attribution": {f"tag{number}": "sub" for number in range(17)}},
        {"name": ""},
    ],
)
def test_invalid_rules_are_refused(setting: Setting, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        setting.accept(**more)
    assert setting.web.requests == []
