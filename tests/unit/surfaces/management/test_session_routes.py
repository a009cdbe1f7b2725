"""Accounts keep their promises: what ends a session, who may sign in, who may lift a limit, who may read what."""

import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.monkey import get_original
from support.management import PASSWORD, Tenants

from gateway.accounts import keys, members, organizations, passwords
from gateway.accounts.audit import list_entries
from gateway.accounts.changes import OPERATOR
from gateway.accounts.keys import Change
from gateway.accounts.second_factor import code_at
from gateway.admin import sign_in as module
from gateway.admin.agent_sign_in import Workspace
from gateway.admin.funding import Funding
from gateway.admin.sign_in import Place
from gateway.clock import SECOND_US
from gateway.errors import GatewayError, NotFound, RateLimited, Unauthenticated
from gateway.limits.budgets import Limits
from gateway.limits.models import KEY

OWNER = "owner@localhost"
SIGN_IN = "/auth/sign-in/email"
DOLLAR = 10**9


def sign_in(tenants: Tenants, password: str = PASSWORD, **more: Any) -> tuple[int, Any]:
    return tenants.call("POST", SIGN_IN, body={"email": OWNER, "password": password, **more})


class HeldHasher:
    """Checks no password until `gate` is released."""

    gate = get_original("_thread", "allocate_lock")()

    def verify(self, stored: str, password: str) -> bool:
        with self.gate:
            return False


def test_a_flood_of_sign_ins_is_refused_early_and_leaves_the_threads_of_the_store_free(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tenants.ok("POST", SIGN_IN, body={"email": OWNER, "password": PASSWORD})["token"]
    monkeypatch.setattr(passwords, "make_hasher", HeldHasher)
    body = {"email": "stranger@example.com", "password": PASSWORD}
    with HeldHasher.gate:
        # One password is checked while the others wait; a tenth attempt would meet the throttle on a slow machine.
        count = passwords.WAITING_EACH + 1
        flood = [gevent.spawn(tenants.call, "POST", SIGN_IN, body=body) for _ in range(count)]
        waiting = tenants.services.background.passwords
        until = time.monotonic() + 20
        while waiting.waiting < passwords.WAITING_EACH and time.monotonic() < until:
            gevent.sleep(0.005)
        assert tenants.refused("POST", SIGN_IN, body=body) == "503 sign_in_busy"
        assert tenants.services.background.threads.run(lambda: "free") == "free"
        assert tenants.ok("GET", "/auth/get-session", token)
    assert [attempt.get(timeout=20)[0] for attempt in flood] == [401] * count


def test_a_sign_in_that_was_not_checked_counts_as_no_attempt(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> bool:
        raise passwords.PasswordsBusy("busy")

    with monkeypatch.context() as full:
        full.setattr(passwords.Passwords, "check", refuse)
        for _ in range(12):
            assert tenants.refused("POST", SIGN_IN, body={"email": OWNER, "password": PASSWORD}) == "503 sign_in_busy"
    assert sign_in(tenants)[0] == 200


def root(tenants: Tenants) -> members.MemberInfo:
    return members.list_members(tenants.services.store.database)[0]


def set_password(tenants: Tenants, password: str = "another long one") -> None:
    services = tenants.services
    members.set_password(
        services.store.database,
        services.store.control,
        services.background.passwords,
        root(tenants).user_id,
        password,
        actor=OPERATOR,
    )


def test_a_password_that_the_operator_sets_ends_every_session(tenants: Tenants) -> None:
    token = sign_in(tenants)[1]["token"]
    set_password(tenants)
    assert tenants.refused("GET", "/orgs", token) == "401 session_invalid"


def test_a_device_that_was_approved_before_a_password_change_gets_no_session(tenants: Tenants) -> None:
    token = sign_in(tenants)[1]["token"]
    grant = tenants.ok("POST", "/auth/device/code", body={"client_id": "llmgateway-cli"})
    tenants.services.management.approve_device(
        grant["user_code"], root(tenants).user_id, Workspace("", "", frozenset(), "")
    )
    body = {"currentPassword": PASSWORD, "newPassword": "another long one"}
    tenants.ok("POST", "/auth/change-password", token, body)
    ask = {
        "client_id": "llmgateway-cli",
        "device_code": grant["device_code"],
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
    }
    status, answer = tenants.call("POST", "/auth/device/token", body=ask)
    assert (status, answer["error"]) == (400, "expired_token")


@pytest.mark.parametrize("change", [{"active": False}, {"role": "developer"}])
def test_invitations_of_people_who_lost_the_permission_are_refused(tenants: Tenants, change: dict[str, Any]) -> None:
    admin, services = tenants["acme admin"], tenants.services
    body = {"email": "friend@example.com", "role": "admin"}
    path = f"/orgs/{admin.organization_id}/invitations"
    token = tenants.ok("POST", path, admin, body)["invitation"]["token"]
    members.update_member(
        services.store.database,
        services.store.control,
        admin.organization_id,
        admin.member_id,
        actor=OPERATOR,
        **change,
    )
    joined = {"token": token, "name": "Friend", "password": "a password of a friend"}
    assert tenants.call("POST", "/auth/sign-up/email", body=joined)[0] == 404
    assert tenants.ok("GET", path, tenants["acme owner"])["invitations"] == []


def guess(tenants: Tenants, count: int, peer: str) -> None:
    for _ in range(count):
        with pytest.raises(GatewayError):
            tenants.services.management.sign_in.begin(OWNER, "wrong", Place(peer))


def test_a_hundred_wrong_passwords_of_strangers_do_not_lock_out_who_is_known(tenants: Tenants, monkeypatch) -> None:
    monkeypatch.setattr(module, "GATES", (("address and place", 10), ("address", 12), ("place", 50)))
    door = tenants.services.management.sign_in
    device = door.begin(OWNER, PASSWORD, Place("192.0.2.1")).device
    for peer in ("198.51.100.1", "198.51.100.2"):
        guess(tenants, 7, peer)
    with pytest.raises(RateLimited):
        door.begin(OWNER, PASSWORD, Place("203.0.113.9"))
    assert door.begin(OWNER, PASSWORD, Place("192.0.2.1")).session
    assert door.begin(OWNER, PASSWORD, Place("203.0.113.9", device=device)).session
    with pytest.raises(RateLimited):
        door.begin(OWNER, PASSWORD, Place("203.0.113.8", device="x." + device.partition(".")[2]))


def test_a_known_device_that_guesses_is_slowed_down_too(tenants: Tenants) -> None:
    door = tenants.services.management.sign_in
    device = door.begin(OWNER, PASSWORD, Place("192.0.2.1")).device
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            door.begin(OWNER, "wrong", Place("192.0.2.1", device=device))
    with pytest.raises(RateLimited):
        door.begin(OWNER, PASSWORD, Place("192.0.2.1", device=device))


def test_a_failed_sign_in_is_in_the_audit_trail(tenants: Tenants) -> None:
    assert sign_in(tenants, "wrong")[0] == 401
    for _ in range(100):
        found = [entry for entry in list_entries(tenants.services.store.database) if entry.action == "session.refuse"]
        if found:
            break
        gevent.sleep(0.02)
    assert found[0].subject == root(tenants).user_id and "invalid_credentials" in found[0].detail


# Limits


def set_limit(tenants: Tenants, who: str, key_id: str, **limits: Any) -> tuple[int, Any]:
    return tenants.call("PATCH", f"/keys/api/limit/{key_id}", tenants[who], limits)


def test_a_limit_is_lifted_by_who_set_it_or_stands_above(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert set_limit(tenants, "acme developer", key, usageLimit="5")[0] == 200
    assert set_limit(tenants, "acme developer", key, usageLimit="50")[0] == 200  # one's own
    assert set_limit(tenants, "acme owner", key, usageLimit="10")[0] == 200
    for lifted in ({"usageLimit": "11"}, {"usageLimit": None}):
        status, answer = set_limit(tenants, "acme developer", key, **lifted)
        assert (status, answer["code"]) == (403, "limit_not_yours")
        assert set_limit(tenants, "acme admin", key, **lifted)[0] == 403
    assert set_limit(tenants, "acme developer", key, usageLimit="2")[0] == 200
    assert set_limit(tenants, "acme developer", key, usageLimit="10")[0] == 200  # up to what the owner left
    period = {"periodUsageLimit": "1", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"}
    assert set_limit(tenants, "acme developer", key, **period)[0] == 200
    assert set_limit(tenants, "acme developer", key, **dict.fromkeys(period))[0] == 200
    assert set_limit(tenants, "acme owner", key, usageLimit=None)[0] == 200
    assert set_limit(tenants, "acme developer", key, usageLimit="500")[0] == 200
    assert set_limit(tenants, "acme admin", key, usageLimit="600")[0] == 200
    assert set_limit(tenants, "acme developer", key, usageLimit="601")[0] == 403


def test_the_exact_reservation_of_an_owner_is_not_relaxed_by_a_developer(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert set_limit(tenants, "acme developer", key, reservation="exact")[0] == 200
    assert set_limit(tenants, "acme developer", key, reservation="likely")[0] == 200  # one's own
    assert set_limit(tenants, "acme owner", key, usageLimit="1", reservation="exact")[0] == 200
    for who in ("acme developer", "acme admin"):
        status, answer = set_limit(tenants, who, key, reservation="likely")
        assert (status, answer["code"]) == (403, "limit_not_yours") and "highest cost" in answer["message"]
    assert set_limit(tenants, "acme owner", key, reservation="likely")[0] == 200
    assert set_limit(tenants, "acme admin", key, reservation="exact")[0] == 200


def test_thresholds_of_alerts_are_removed_by_who_set_them_or_stands_above(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert set_limit(tenants, "acme owner", key, usageLimit="1", alertThresholds=[50, 80])[0] == 200
    for fewer in ([], [80], [100]):
        status, answer = set_limit(tenants, "acme developer", key, alertThresholds=fewer)
        assert (status, answer["code"]) == (403, "limit_not_yours") and "alerts" in answer["message"]
    assert set_limit(tenants, "acme developer", key, alertThresholds=[50, 80, 95])[0] == 200
    assert set_limit(tenants, "acme developer", key, alertThresholds=[50, 80])[0] == 200
    assert set_limit(tenants, "acme owner", key, alertThresholds=[])[0] == 200


def test_a_strict_reservation_from_before_its_setter_was_stored_belongs_to_the_setter_of_the_limit(
    tenants: Tenants,
) -> None:
    key = tenants["acme developer"].key.info.id
    assert set_limit(tenants, "acme owner", key, usageLimit="1", reservation="exact")[0] == 200
    database = tenants.services.store.database
    forget = "UPDATE limit_setter SET setters = ? WHERE scope_id = ?"
    owner = tenants["acme owner"].user_id
    stored = json.dumps({"total": [owner, 2, 1_000_000_000, ""]})
    database.write(lambda: database.execute(forget, (stored, key)))
    assert set_limit(tenants, "acme developer", key, reservation="likely")[0] == 403


def change_key(tenants: Tenants, who: str, key_id: str, **fields: Any) -> str:
    status, answer = tenants.call("PATCH", f"/keys/api/{key_id}", tenants[who], fields)
    return "ok" if status == 200 else f"{status} {answer['code']}"


NOT_YOURS = "403 limit_not_yours"
SOON, LATER, LATEST = (f"20{year}-01-01T00:00:00.000Z" for year in (60, 70, 80))


@pytest.mark.parametrize(("setter", "allowed"), [("acme admin", ("acme owner",)), ("acme owner", ())])
def test_a_key_is_activated_by_who_deactivated_it_or_stands_above(
    tenants: Tenants, setter: str, allowed: tuple[str, ...]
) -> None:
    key = tenants["acme developer"].key.info.id
    for who in (setter, *allowed):
        assert change_key(tenants, setter, key, status="inactive") == "ok"
        assert change_key(tenants, "acme developer", key, status="inactive") == "ok"  # this takes nothing over
        for fields in ({}, {"expiresAt": LATER}, {"description": "Mine"}):
            assert change_key(tenants, "acme developer", key, status="active", **fields) == NOT_YOURS
        assert change_key(tenants, "acme developer", key, description="Mine") == "ok"
        assert change_key(tenants, who, key, status="active") == "ok"
        assert change_key(tenants, "acme developer", key, status="active") == "ok"  # without an effect
    assert change_key(tenants, "acme developer", key, status="inactive") == "ok"
    assert change_key(tenants, "acme developer", key, status="active") == "ok"  # one's own
    assert change_key(tenants, "acme developer", key, status="inactive") == "ok"
    assert change_key(tenants, "acme owner", key, status="inactive") == "ok"  # takes it over
    assert change_key(tenants, "acme admin", key, status="active") == NOT_YOURS


def test_a_refused_activation_changes_and_audits_nothing(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert change_key(tenants, "acme admin", key, status="inactive") == "ok"
    before = [entry.seq for entry in list_entries(tenants.services.store.database) if entry.subject == key]
    assert change_key(tenants, "acme developer", key, status="active", description="Other") == NOT_YOURS
    assert [entry.seq for entry in list_entries(tenants.services.store.database) if entry.subject == key] == before
    shown = tenants.ok("GET", f"/keys/api/{key}", tenants["acme developer"])["apiKey"]
    assert shown["status"] == "inactive" and shown["description"] != "Other"


def test_an_expiry_is_extended_by_who_set_it_or_stands_above(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert change_key(tenants, "acme developer", key, expiresAt=SOON) == "ok"
    assert change_key(tenants, "acme developer", key, expiresAt=None) == "ok"  # one's own
    assert change_key(tenants, "acme owner", key, expiresAt=LATER) == "ok"
    for longer in (LATEST, None):
        assert change_key(tenants, "acme developer", key, expiresAt=longer) == NOT_YOURS
        assert change_key(tenants, "acme admin", key, expiresAt=longer) == NOT_YOURS
    assert change_key(tenants, "acme developer", key, expiresAt=SOON) == "ok"
    assert change_key(tenants, "acme developer", key, expiresAt=LATER) == "ok"  # up to what the owner left
    assert change_key(tenants, "acme owner", key, expiresAt=None) == "ok"
    assert change_key(tenants, "acme developer", key, expiresAt=LATEST) == "ok"
    assert change_key(tenants, "acme admin", key, expiresAt=None) == "ok"  # what the key's owner set binds nobody else


def test_a_key_that_expired_is_not_revived_by_its_owner_if_another_person_set_its_expiry(tenants: Tenants) -> None:
    key, database = tenants["acme developer"].key.info.id, tenants.services.store.database
    assert change_key(tenants, "acme admin", key, expiresAt=SOON) == "ok"
    over = database.now_us() - 1
    stored = {"expiry": [tenants["acme admin"].user_id, 1, over, ""]}

    def expire() -> None:
        database.execute("UPDATE api_key SET expires_at = ? WHERE id = ?", (over, key))
        database.execute("UPDATE limit_setter SET setters = ? WHERE scope_id = ?", (json.dumps(stored), key))

    database.write(expire)
    assert change_key(tenants, "acme developer", key, status="active", expiresAt=LATER) == NOT_YOURS
    assert change_key(tenants, "acme admin", key, status="active", expiresAt=LATER) == "ok"


def test_status_and_expiry_from_before_their_setters_were_stored_have_those_of_the_audit_trail(
    tenants: Tenants,
) -> None:
    key, database = tenants["acme developer"].key.info.id, tenants.services.store.database
    assert change_key(tenants, "acme owner", key, status="inactive", expiresAt=SOON) == "ok"
    assert set_limit(tenants, "acme owner", key, usageLimit="5")[0] == 200
    database.write(lambda: database.execute("DELETE FROM limit_setter WHERE scope_id = ?", (key,)))
    assert change_key(tenants, "acme developer", key, status="active") == NOT_YOURS
    assert change_key(tenants, "acme developer", key, expiresAt=LATER) == NOT_YOURS
    assert change_key(tenants, "acme owner", key, status="active", expiresAt=LATER) == "ok"
    assert set_limit(tenants, "acme developer", key, usageLimit="6")[0] == 403
    assert change_key(tenants, "acme developer", key, expiresAt=LATEST) == NOT_YOURS


def test_the_expiry_of_a_key_for_another_member_belongs_to_who_created_it(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    fields = {"description": "Given", "projectId": owner.project_id, "memberId": developer.member_id}
    key = tenants.ok("POST", "/keys/api", owner, {**fields, "expiresAt": SOON})["apiKey"]["id"]
    assert change_key(tenants, "acme developer", key, expiresAt=LATER) == NOT_YOURS
    assert set_limit(tenants, "acme developer", key, usageLimit="5")[0] == 200
    assert set_limit(tenants, "acme developer", key, usageLimit="6")[0] == 200
    assert change_key(tenants, "acme owner", key, expiresAt=LATER) == "ok"


def test_owners_of_the_first_organization_change_what_other_owners_and_the_operator_set(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tenants["acme owner"].organization_id
    monkeypatch.setattr(organizations, "first_id", lambda: first)
    members_of = f"/orgs/{first}/members/{tenants['acme admin'].member_id}"
    tenants.ok("PATCH", members_of, tenants["acme owner"], {"role": "owner"})
    key, management = tenants["acme developer"].key.info, tenants.services.management
    assert change_key(tenants, "acme owner", key.id, status="inactive", expiresAt=SOON) == "ok"
    assert change_key(tenants, "acme admin", key.id, status="active", expiresAt=LATER) == "ok"
    management.update_key(key, Change("deactivate"), actor=OPERATOR)
    assert change_key(tenants, "acme developer", key.id, status="active") == NOT_YOURS
    assert change_key(tenants, "acme owner", key.id, status="active") == "ok"


def test_a_limit_of_the_operator_is_not_lifted_by_owners_or_admins(tenants: Tenants) -> None:
    key, services = tenants["acme owner"].key.info, tenants.services
    funding = Funding(services.store.database, services.store.control)
    funding.set_limits(KEY, key.id, key.organization_id, lambda before: Limits(total_nusd=DOLLAR), actor=OPERATOR)
    assert set_limit(tenants, "acme owner", key.id, usageLimit=None)[0] == 403
    funding.set_limits(KEY, key.id, key.organization_id, lambda before: Limits(), actor=OPERATOR)
    assert set_limit(tenants, "acme owner", key.id, usageLimit="7")[0] == 200


def test_a_limit_from_before_setters_were_kept_belongs_to_who_the_trail_names(tenants: Tenants) -> None:
    key = tenants["acme developer"].key.info.id
    assert set_limit(tenants, "acme owner", key, usageLimit="10")[0] == 200
    database = tenants.services.store.database
    database.write(lambda: database.execute("DELETE FROM limit_setter"))
    assert set_limit(tenants, "acme developer", key, usageLimit="11")[0] == 403


# Second factor


class Authenticator:
    """An authenticator that holds the secret and shows codes; each code belongs to a later time step."""

    def __init__(self, tenants: Tenants, token: str) -> None:
        self.tenants, self.token = tenants, token
        made = tenants.ok("POST", "/auth/second-factor", token, {"password": PASSWORD})
        self.secret = base64.b32decode(made["secret"])
        assert made["uri"].startswith("otpauth://totp/") and made["secret"] in made["uri"]

    def code(self, ahead: int = 0) -> str:
        return code_at(self.secret, self.tenants.services.store.database.now_us() // (30 * SECOND_US) + ahead)

    def confirm(self) -> list[str]:
        return self.tenants.ok("POST", "/auth/second-factor/confirm", self.token, {"code": self.code(-1)})[
            "recoveryCodes"
        ]


def test_codes_are_those_of_the_standard() -> None:
    # RFC 6238, appendix B, its last six digits.
    secret = b"12345678901234567890"
    assert [code_at(secret, at // 30) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]


def test_with_a_second_factor_the_password_alone_opens_nothing(tenants: Tenants) -> None:
    token, other = sign_in(tenants)[1]["token"], sign_in(tenants)[1]["token"]
    authenticator = Authenticator(tenants, token)
    assert sign_in(tenants)[0] == 200  # not in force before it is confirmed
    codes = authenticator.confirm()
    assert len(set(codes)) == 10 and tenants.refused("GET", "/orgs", other) == "401 session_invalid"
    assert tenants.ok("GET", "/auth/second-factor", token)["active"] is True
    status, answer = sign_in(tenants)
    assert (status, answer["error"]) == (401, "second_factor_required") and "token" not in answer
    assert sign_in(tenants, code="000000")[1]["error"] == "second_factor_wrong"
    code = authenticator.code()
    assert sign_in(tenants, code=code)[0] == 200
    assert sign_in(tenants, code=code)[1]["error"] == "second_factor_wrong"  # a code is good once
    assert sign_in(tenants, code=authenticator.code(-1))[1]["error"] == "second_factor_wrong"  # nor an earlier one
    assert sign_in(tenants, code=codes[0].upper())[0] == 200
    assert sign_in(tenants, code=codes[0])[1]["error"] == "second_factor_wrong"
    assert tenants.ok("GET", "/auth/second-factor", token)["recoveryCodesLeft"] == 9


def test_guessing_codes_is_slowed_down(tenants: Tenants) -> None:
    authenticator = Authenticator(tenants, sign_in(tenants)[1]["token"])
    authenticator.confirm()
    seen = [sign_in(tenants, code=f"{number:06}")[0] for number in range(12)]
    assert seen[0] == 401 and seen[-1] == 429


def test_the_secret_and_the_recovery_codes_are_not_readable_in_the_store(tenants: Tenants) -> None:
    authenticator = Authenticator(tenants, sign_in(tenants)[1]["token"])
    codes = authenticator.confirm()
    database = tenants.services.store.database
    text = str(database.read(lambda: database.execute("SELECT * FROM second_factor").fetchall()))
    assert base64.b32encode(authenticator.secret).decode() not in text and not any(code in text for code in codes)


def test_a_second_factor_is_removed_by_password_and_code_or_by_the_operator(tenants: Tenants) -> None:
    token = sign_in(tenants)[1]["token"]
    authenticator = Authenticator(tenants, token)
    codes = authenticator.confirm()
    path, body = "/auth/second-factor/remove", {"password": PASSWORD, "code": "000000"}
    assert tenants.call("POST", path, token, body)[0] == 401
    assert tenants.call("POST", "/auth/second-factor", token, {"password": PASSWORD})[0] == 409
    tenants.ok("POST", path, token, body | {"code": codes[1]})
    assert sign_in(tenants)[0] == 200
    Authenticator(tenants, token).confirm()
    assert tenants.services.management.second_factors.remove(root(tenants).user_id, actor=OPERATOR)
    assert sign_in(tenants)[0] == 200


def test_the_console_requests_the_code_after_the_password(tenants: Tenants) -> None:
    authenticator = Authenticator(tenants, sign_in(tenants)[1]["token"])
    authenticator.confirm()
    browser = tenants.gateway.app.flask.test_client()

    def post(**form: str) -> Any:
        return browser.post("/console/login", data=form, headers={"Origin": "http://localhost"})

    page = post(email=OWNER, password=PASSWORD, redirect="/console/device")
    assert page.status_code == 200 and "Set-Cookie" not in page.headers
    ticket = re.search(r'name="ticket" value="([^"]+)"', page.text)[1]
    assert PASSWORD not in page.text
    assert post(ticket=ticket, code="000000").status_code == 401
    forged = ticket.rpartition(".")[0] + "." + "0" * 64
    assert post(ticket=forged, code=authenticator.code()).status_code == 401
    done = post(ticket=ticket, code=authenticator.code(), redirect="/console/device")
    assert done.status_code == 303 and done.headers["Location"].endswith("/console/device")
    assert "Signed in as" in browser.get("/console/account").text


# Sessions


def test_own_sessions_are_listed_and_all_end_at_once(tenants: Tenants) -> None:
    first, second = sign_in(tenants)[1]["token"], sign_in(tenants)[1]["token"]
    listed = tenants.ok("GET", "/auth/sessions", first)["sessions"]
    assert [one["current"] for one in listed].count(True) == 1 and len(listed) >= 2
    current = next(
        session["id"] for session in tenants.ok("GET", "/auth/sessions", second)["sessions"] if session["current"]
    )
    assert tenants.refused("DELETE", f"/auth/sessions/{current}", tenants["acme owner"]) == "404 not_found"
    tenants.ok("DELETE", f"/auth/sessions/{current}", first)
    assert tenants.refused("GET", "/orgs", second) == "401 session_invalid"
    third = sign_in(tenants)[1]["token"]
    tenants.ok("POST", "/auth/sign-out-everywhere", first)
    for token in (first, third):
        assert tenants.refused("GET", "/orgs", token) == "401 session_invalid"


def test_the_page_of_the_account_signs_out_everywhere(tenants: Tenants) -> None:
    elsewhere = sign_in(tenants)[1]["token"]
    browser = tenants.gateway.app.flask.test_client()
    headers = {"Origin": "http://localhost"}
    browser.post("/console/login", data={"email": OWNER, "password": PASSWORD}, headers=headers)
    page = browser.get("/console/account").text
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[-1]
    form = {"action": "everywhere", "csrf": csrf}
    assert browser.post("/console/account", data=form | {"csrf": "x"}, headers=headers).status_code == 403
    assert browser.post("/console/account", data=form, headers=headers).status_code == 303
    assert browser.get_cookie("llmgateway.session_token") is None
    assert tenants.refused("GET", "/orgs", elsewhere) == "401 session_invalid"


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/131.0 Safari/537.36",
            "<strong>Chrome on Linux</strong>",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1",
            "<strong>Safari on iOS</strong>",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/131.0 Safari/537.36 Edg/131",
            "<strong>Edge on Windows</strong>",
        ),
        ("python-requests/2.34", "<strong>python-requests/2.34</strong>"),
    ],
)
def test_the_page_of_the_account_names_a_sessions_browser(tenants: Tenants, agent: str, shown: str) -> None:
    browser = tenants.gateway.app.flask.test_client()
    headers = {"Origin": "http://localhost", "User-Agent": agent}
    browser.post("/console/login", data={"email": OWNER, "password": PASSWORD}, headers=headers)
    assert shown in browser.get("/console/account").text


def test_the_page_of_the_account_changes_the_password_for_who_knows_it(tenants: Tenants) -> None:
    elsewhere = sign_in(tenants)[1]["token"]
    browser = tenants.gateway.app.flask.test_client()
    headers = {"Origin": "http://localhost"}
    browser.post("/console/login", data={"email": OWNER, "password": PASSWORD}, headers=headers)
    csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.get("/console/account").text)[-1]
    form = {"action": "change", "csrf": csrf, "current": PASSWORD, "chosen": "another long one"}
    wrong = browser.post("/console/account", data=form | {"current": "guessed"}, headers=headers)
    assert wrong.status_code == 401 and "password is wrong" in wrong.text
    short = browser.post("/console/account", data=form | {"chosen": "short"}, headers=headers)
    assert short.status_code == 400 and "12" in short.text
    assert "password was changed" in browser.post("/console/account", data=form, headers=headers).text
    assert tenants.refused("GET", "/orgs", elsewhere) == "401 session_invalid"
    assert browser.get("/console/account").status_code == 200
    set_password(tenants)


# Explanations, caps


def test_explanations_are_shown_to_their_requester_only(tenants: Tenants) -> None:
    services, owner, developer = tenants.services, tenants["acme owner"], tenants["acme developer"]
    draft = keys.Draft(owner.project_id, owner.member_id, "Customer", "customer")
    customer = services.management.create_key(draft, Limits(), actor=owner.user_id)
    other = services.management.create_key(draft, Limits(), actor=owner.user_id)
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}
    services.billing.ledger.grant(owner.organization_id, DOLLAR, "doors")

    def ask(token: str) -> str:
        return tenants.ok("POST", "/v1/chat/completions", token, body)["metadata"]["log_id"]

    def look(token: str, log_id: str) -> int:
        return tenants.call("GET", f"/v1/route/explain/{log_id}", token)[0]

    mine, theirs = ask(customer.token), ask(owner.key.token)
    services.store.journal.flush(60)
    assert look(customer.token, mine) == 200 and look(other.token, mine) == 404 and look(customer.token, theirs) == 404
    assert look(owner.key.token, mine) == 200 and look(developer.key.token, theirs) == 404


def test_organizations_and_projects_have_caps(make_tenants: Callable[..., Any]) -> None:
    with make_tenants(GATEWAY_LIMITS_MAX_ORGANIZATIONS="4", GATEWAY_LIMITS_MAX_PROJECTS="2") as gateway:
        tenants = Tenants(gateway)
        token = tenants.open(root(tenants).user_id)
        seen = [tenants.call("POST", "/orgs", token, {"name": f"More {number}"}) for number in range(3)]
        assert [status for status, _ in seen] == [201, 400, 400] and seen[1][1]["code"] == "organization_cap_reached"
        body = {"organizationId": tenants["acme owner"].organization_id, "name": "Another"}
        seen = [tenants.call("POST", "/projects", tenants["acme owner"], body) for _ in range(2)]
        assert [status for status, _ in seen] == [201, 400] and seen[1][1]["code"] == "project_cap_reached"


def test_an_unknown_session_of_others_is_not_found(tenants: Tenants) -> None:
    with pytest.raises(NotFound):
        tenants.services.management.sessions.close_one(root(tenants).user_id, "ses_0")


def test_reports_of_one_user_run_one_after_the_other_and_do_not_delay_others(tenants: Tenants) -> None:
    first, second = tenants["acme owner"], tenants["rival owner"]
    body = {"organizationId": first.organization_id, "name": "changes do not wait"}
    with tenants.services.background.reports.turn(first.user_id):
        waiting = [gevent.spawn(tenants.ok, "GET", "/orgs", first) for _ in range(16)]
        gevent.sleep(0.05)
        assert tenants.ok("GET", "/orgs", second)
        assert tenants.ok("POST", "/projects", first, body=body)
        assert not any(one.ready() for one in waiting)
    gevent.joinall(waiting, timeout=20, raise_error=True)
    assert all(one.value for one in waiting)


def test_a_lowered_periodic_limit_keeps_the_usage_of_its_period(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    key = developer.key.info.id
    tenants.services.billing.ledger.grant(developer.organization_id, 10**9, "first")
    day = {"periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"}
    assert set_limit(tenants, "acme owner", key, periodUsageLimit="1", **day)[0] == 200
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    tenants.ok("POST", "/v1/chat/completions", developer.key.token, body)
    tenants.services.store.journal.flush(60)
    spent = tenants.ok("GET", f"/keys/api/{key}", developer)["apiKey"]["currentPeriodUsage"]
    assert spent != "0"
    for amount in ("0.9", "1", "0.8"):
        answer = set_limit(tenants, "acme developer", key, periodUsageLimit=amount)[1]["apiKey"]
        assert (answer["periodUsageLimit"], answer["currentPeriodUsage"]) == (amount, spent)
    assert set_limit(tenants, "acme owner", key, periodUsageLimit="2")[1]["apiKey"]["currentPeriodUsage"] == spent
