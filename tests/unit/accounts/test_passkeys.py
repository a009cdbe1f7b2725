"""Passkeys: each challenge is good for one answer of one browser, and hostile answers are refused."""

import json

import cbor2
import pytest
from msgspec.structs import replace
from support.passkey_device import ATTESTED, PRESENT, PasskeyDevice, decode, encode

from gateway.accounts import audit
from gateway.accounts import passkeys as module
from gateway.accounts.passkeys import MAX_LENGTH, MAX_PASSKEYS, Browser, Passkeys, Site, check_creation, site_of
from gateway.errors import Conflict, InvalidRequest, NotFound, Unauthenticated

SITE = Site("llm.example", "https://llm.example")
BROWSER = Browser(SITE, "the secret of this browser")
OTHER_BROWSER = Browser(SITE, "the secret of another browser")
EVIL = "https://evil.example"
ADA, EVE = "user_ada", "user_eve"


@pytest.fixture
def passkeys(company) -> Passkeys:
    return Passkeys(company.database, (b"a hash key of these tests", b"an older one"))


@pytest.fixture
def small(small_company) -> Passkeys:
    return Passkeys(small_company.database, (b"a hash key of these tests",))


def make_device() -> PasskeyDevice:
    return PasskeyDevice(SITE.origin, SITE.rp_id)


def register(passkeys: Passkeys, user_id: str = ADA, name: str = "Laptop") -> PasskeyDevice:
    device = make_device()
    options = passkeys.begin_registration(BROWSER, user_id, f"{user_id}@example.com")
    passkeys.register(BROWSER, user_id, device.create(options), name)
    return device


def test_a_passkey_is_registered_listed_renamed_used_and_removed(passkeys: Passkeys, company) -> None:
    device = register(passkeys, name="  My   laptop ")
    (info,) = passkeys.list_passkeys(ADA)
    assert (info.name, info.used_at_us, info.synced) == ("My laptop", 0, False)
    options = passkeys.begin_sign_in(BROWSER)
    assert json.loads(options)["rpId"] == "llm.example" and not json.loads(options).get("allowCredentials")
    assert json.loads(options)["userVerification"] == "required"
    assert passkeys.check(BROWSER, device.sign(options)) == ADA
    assert passkeys.list_passkeys(ADA)[0].used_at_us > 0
    passkeys.rename(ADA, info.id, "Key ring")
    with pytest.raises(NotFound):
        passkeys.rename(EVE, info.id, "Mine")
    with pytest.raises(NotFound):
        passkeys.remove(EVE, info.id)
    passkeys.remove(ADA, info.id)
    assert passkeys.list_passkeys(ADA) == []
    with pytest.raises(Unauthenticated):
        passkeys.check(BROWSER, device.sign(passkeys.begin_sign_in(BROWSER)))
    actions = [entry.action for entry in audit.list_entries(company.database) if entry.action.startswith("passkey.")]
    assert sorted(actions) == ["passkey.create", "passkey.delete", "passkey.rename"]


def test_an_answer_is_valid_once(passkeys: Passkeys, company) -> None:
    device = register(passkeys)
    answer = device.sign(passkeys.begin_sign_in(BROWSER))
    assert passkeys.check(BROWSER, answer) == ADA
    with pytest.raises(Unauthenticated, match="expired or was used"):
        passkeys.check(BROWSER, answer)
    created = make_device()
    text = created.create(passkeys.begin_registration(BROWSER, ADA, "ada@example.com"))
    passkeys.register(BROWSER, ADA, text, "x")
    with pytest.raises(Unauthenticated):
        passkeys.register(BROWSER, ADA, text, "x")


def test_a_challenge_is_bound_to_its_browser_person_and_purpose(small: Passkeys) -> None:
    device = register(small)
    register(small, EVE)
    with pytest.raises(Unauthenticated):
        small.check(OTHER_BROWSER, device.sign(small.begin_sign_in(BROWSER)))
    # A second factor of one person is no sign-in, and none of another person.
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER, ADA)))
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER, ADA)), EVE)
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER)), ADA)
    registration = small.begin_registration(BROWSER, ADA, "ada@example.com")
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(registration))
    with pytest.raises(Unauthenticated):
        small.register(BROWSER, EVE, make_device().create(registration), "x")
    assert small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER, ADA)), ADA) == ADA


def test_the_passkey_of_another_person_is_no_second_factor(small: Passkeys) -> None:
    register(small)
    other_passkey = register(small, EVE)
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, other_passkey.sign(small.begin_sign_in(BROWSER, ADA)), ADA)


def test_an_expired_challenge_is_refused(small: Passkeys, monkeypatch) -> None:
    device = register(small)
    monkeypatch.setattr(module, "CHALLENGE_LIFETIME_S", 0)
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER)))


@pytest.mark.parametrize("fault", ["origin", "rp", "unverified", "key", "handle", "counter", "signature", "unknown"])
def test_a_hostile_sign_in_is_refused(small: Passkeys, fault: str) -> None:
    device = register(small)
    assert small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER))) == ADA
    more = {}
    if fault == "origin":
        device.origin = EVIL
    elif fault == "rp":
        device.rp_id = "evil.example"
    elif fault == "unverified":
        device.flags = PRESENT
    elif fault == "key":
        device.key = make_device().key
    elif fault == "handle":
        more["userHandle"] = encode(EVE.encode())
    elif fault == "counter":
        device.count = 0
    elif fault == "signature":
        more["signature"] = encode(b"0" * 70)
    else:
        device.credential_id = b"another id of a credential"
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER), **more))


@pytest.mark.parametrize("fault", ["origin", "rp", "unverified"])
def test_a_hostile_registration_is_refused(small: Passkeys, fault: str) -> None:
    device = make_device()
    if fault == "origin":
        device.origin = EVIL
    elif fault == "rp":
        device.rp_id = "evil.example"
    else:
        device.flags = PRESENT | ATTESTED
    options = small.begin_registration(BROWSER, ADA, "ada@example.com")
    with pytest.raises(InvalidRequest):
        small.register(BROWSER, ADA, device.create(options), "x")
    assert small.list_passkeys(ADA) == []


def test_a_credential_belongs_to_one_person(small: Passkeys) -> None:
    device = register(small)
    options = small.begin_registration(BROWSER, EVE, "eve@example.com")
    with pytest.raises(Conflict):
        small.register(BROWSER, EVE, device.create(options), "stolen")


def client_data(challenge: object) -> str:
    return encode(json.dumps({"type": "webauthn.get", "challenge": challenge, "origin": SITE.origin}).encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"response": {"clientDataJSON": 1}, "id": "x"}',
        '{"response": {"clientDataJSON": "x"}, "id": "x"}',
        json.dumps({"id": "x", "response": {"clientDataJSON": client_data(1)}}),
        json.dumps({"id": "\ud800", "response": {"clientDataJSON": client_data("x")}}),
        json.dumps({"id": "x", "response": {"clientDataJSON": client_data("\ud800")}}),
        json.dumps({"id": "x" * MAX_LENGTH, "response": {"clientDataJSON": client_data("x")}}),
        "[" * 5_000,
    ],
)
def test_a_malformed_answer_is_refused(small: Passkeys, text: str) -> None:
    with pytest.raises(InvalidRequest):
        small.check(BROWSER, text)


@pytest.mark.parametrize("part", ["authenticatorData", "signature"])
@pytest.mark.parametrize("value", [None, 1, "", "!", "AAAA", ["x"], "x" * 3_000])
def test_malformed_parts_of_an_answer_are_refused(small: Passkeys, part: str, value: object) -> None:
    device = register(small)
    with pytest.raises(Unauthenticated):
        small.check(BROWSER, device.sign(small.begin_sign_in(BROWSER), **{part: value}))


HEAD = 37 + 16 + 2 + 32  # of the data of a new passkey (Web Authentication, section 6.1): its public key follows


@pytest.mark.parametrize("named", [["\ud800"], ["\0", "usb"], ["usb", 5, {}], 5, {"a": 1}])
def test_only_known_transports_of_a_passkey_are_stored(small: Passkeys, named: object) -> None:
    options = small.begin_registration(BROWSER, ADA, "ada@example.com")
    answer = json.loads(make_device().create(options))
    answer["response"]["transports"] = named
    try:
        small.register(BROWSER, ADA, json.dumps(answer), "Laptop")
    except InvalidRequest:
        assert not isinstance(named, list)
    known = json.loads(small.begin_registration(BROWSER, ADA, "ada@example.com"))["excludeCredentials"]
    assert [one.get("transports", []) for one in known] in ([], [[]], [["usb"]])


@pytest.mark.parametrize(
    ("public_key", "attested"),
    [
        ([], {}),
        (1, {}),
        ({}, {}),
        (None, {"fmt": "android-safetynet", "attStmt": {"ver": "1", "response": 1}}),
        (None, {"fmt": "fido-u2f", "attStmt": {"x5c": [b"no certificate"], "sig": b"x"}}),
        (None, {"fmt": "of the future", "attStmt": None}),
    ],
)
def test_a_malformed_new_passkey_is_refused(public_key: object, attested: dict[str, object]) -> None:
    challenge = encode(b"c" * 32)
    answer = json.loads(make_device().create(json.dumps({"challenge": challenge, "user": {"id": encode(b"ada")}})))
    attestation = cbor2.loads(decode(answer["response"]["attestationObject"]))
    data = attestation["authData"]
    if public_key is not None:
        data = data[:HEAD] + cbor2.dumps(public_key)
    answer["response"]["attestationObject"] = encode(cbor2.dumps({**attestation, **attested, "authData": data}))
    with pytest.raises(InvalidRequest):
        check_creation(SITE, answer, challenge)


def test_the_number_of_passkeys_is_limited(small: Passkeys) -> None:
    for _ in range(MAX_PASSKEYS):
        register(small)
    with pytest.raises(InvalidRequest):
        small.begin_registration(BROWSER, ADA, "ada@example.com")


def test_challenges_of_one_network_do_not_shut_out_others(small: Passkeys, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_CHALLENGES", 100)
    device = register(small)
    mine = replace(BROWSER, peer="198.51.100.9")
    options = small.begin_sign_in(mine)
    for number in range(300):
        small.begin_sign_in(replace(BROWSER, peer=f"2001:db8:1:{number:x}::1"))
    assert small.check(mine, device.sign(options)) == ADA


@pytest.mark.parametrize(
    ("url", "rp_id"),
    [
        ("https://llm.example:8443/gateway", "llm.example"),
        ("http://localhost:4001", "localhost"),
        ("http://llm.example", ""),
        ("https://127.0.0.1", ""),
        ("https://[::1]:4001", ""),
    ],
)
def test_passkeys_need_a_host_name_and_tls(small: Passkeys, url: str, rp_id: str) -> None:
    site = site_of(url)
    assert site.rp_id == rp_id
    if not rp_id:
        with pytest.raises(InvalidRequest):
            small.begin_sign_in(replace(BROWSER, site=site))


def test_the_options_name_no_more_than_needed(small: Passkeys) -> None:
    register(small)
    options = json.loads(small.begin_registration(BROWSER, ADA, "ada@example.com"))
    assert len(options["excludeCredentials"]) == 1 and len(decode(options["challenge"])) == 32
    assert options["rp"] == {"name": "llmgateway", "id": "llm.example"}
    with pytest.raises(NotFound):
        small.begin_sign_in(BROWSER, EVE)
