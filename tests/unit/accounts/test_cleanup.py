"""Expired rows are removed in small steps, other rows stay, and the rest of the audit log still verifies."""

import pytest

from gateway.accounts import audit, cleanup, invitations, rules
from gateway.accounts.changes import MAX_NAMES, MAX_RULES
from gateway.accounts.cleanup import STEP_ROWS, AccountCleanup
from gateway.accounts.device_codes import Devices
from gateway.accounts.members import list_members
from gateway.accounts.organizations import set_policy
from gateway.accounts.sessions import Sessions
from gateway.callers.models import DeviceCode, GuardrailFinding, Invitation, Session
from gateway.clock import DAY_US
from gateway.configuration.settings import RetentionSettings
from gateway.errors import InvalidRequest

SETTINGS = RetentionSettings(10, 5, 0, 0, 0, False)


@pytest.fixture
def ended(company) -> AccountCleanup:
    return AccountCleanup(company.database, SETTINGS)


@pytest.fixture
def user_id(company) -> str:
    return list_members(company.database, company.organization_id)[0].user_id


def write(company, work) -> object:
    return company.database.write(work)


def count(company, table) -> int:
    return company.database.read(lambda: table.select().count())


def test_sessions_that_are_over_go_in_steps_and_live_ones_stay(company, ended, user_id, monkeypatch) -> None:
    sessions = Sessions(company.database, company.secrets)
    live = sessions.open(user_id)
    now = company.database.now_us()
    rows = [
        {
            "id": f"ses_{n}",
            "user": user_id,
            "token_hash": f"{n}",
            "created_at": now - 9,
            "refreshed_at": now - 9,
            "expires_at": now - 1,
        }
        for n in range(2 * STEP_ROWS + 3)
    ]
    write(company, lambda: [Session.insert_many(rows[at : at + 100]).execute() for at in range(0, len(rows), 100)])
    sizes, transaction = [], company.database.write
    monkeypatch.setattr(
        company.database, "write", lambda work, patient=False: sizes.append(transaction(work, patient)) or sizes[-1]
    )
    assert ended.forget_sessions() == len(rows) and sizes == [STEP_ROWS, STEP_ROWS, 3]
    assert sessions.find(live.token).user_id == user_id and ended.forget_sessions() == 0


def test_a_cancelled_round_stops(company, ended, user_id) -> None:
    now = company.database.now_us()
    write(
        company,
        lambda: Session.insert(
            id="ses_1", user=user_id, token_hash="1", created_at=1, refreshed_at=1, expires_at=now - 1
        ).execute(),
    )
    assert ended.forget_sessions(lambda: False) == 0 and ended.forget_sessions() == 1


def test_device_codes_that_are_over_go(company, ended) -> None:
    devices = Devices(company.database, company.secrets, Sessions(company.database, company.secrets))
    for peer in ("203.0.113.7", "198.51.100.9"):
        devices.start("llmgateway-cli", peer)
    assert ended.forget_devices() == 0
    write(company, lambda: DeviceCode.update(expires_at=1).execute())
    assert ended.forget_devices() == 2


def test_invitations_stay_some_days_after_their_end(company, ended) -> None:
    invitations_ = invitations.Invitations(company.database, company.control, company.secrets, lambda *given: None)
    for number in range(3):
        invitations_.invite(company.organization_id, f"guest{number}@example.com", "developer", actor="operator")
    now = company.database.now_us()
    invitation = invitations_.list_invitations(company.organization_id)[0]
    write(
        company, lambda: Invitation.update(expires_at=now - 6 * DAY_US).where(Invitation.id == invitation.id).execute()
    )
    assert ended.forget_invitations() == 1 and count(company, Invitation) == 2


def test_findings_of_guardrails_go_after_some_months(company, ended) -> None:
    now = company.database.now_us()
    places = {"organization": "org", "project": "proj", "api_key": "key", "action": "log", "count": 1}
    rows = [
        {
            "request_id": f"r{days}",
            "rule": "guard_1",
            "kind": "email",
            "place": "prompt",
            "at": now - days * DAY_US,
            **places,
        }
        for days in (1, 89, 91, 400)
    ]
    write(company, lambda: GuardrailFinding.insert_many(rows).execute())
    assert ended.forget_findings() == 2 and count(company, GuardrailFinding) == 2


def test_old_rows_behind_newer_ones_stay(company, ended) -> None:
    """A chain is shortened from its beginning alone."""
    now = company.database.now_us()
    write(company, lambda: audit.append("test", "old", actor="me", at_us=now - 20 * DAY_US))
    assert ended.shorten_audit() == 0 and audit.verify(company.database)[1] == []


@pytest.fixture
def aged(company) -> int:
    """All entries that there are, as if they were twenty days old, in a chain that is right; how many."""
    before = company.database.now_us() - 20 * DAY_US

    def rewrite() -> int:
        previous = audit.GENESIS
        rows = list(audit.Audit.select().order_by(audit.Audit.seq))
        for row in rows:
            row.at, row.previous_hash = before, previous
            previous = row.hash = audit.hash_entry(audit.read_entry(row), previous)
            row.save()
        audit.AuditHead.update(hash=previous).where(audit.AuditHead.id == audit.HEAD).execute()
        return len(rows)

    return company.database.write(rewrite)


def test_the_oldest_entries_go_by_their_age_and_the_rest_proves_itself(company, ended, aged) -> None:
    assert audit.verify(company.database) == (aged, [])
    now = company.database.now_us()
    write(company, lambda: audit.append("test", "new", actor="me", at_us=now))
    assert ended.shorten_audit() == aged
    newest, kept = audit.list_entries(company.database, limit=10)
    assert (kept.subject, newest.action, newest.actor) == ("new", "audit.shorten", "gateway")
    assert audit.verify(company.database) == (2, []) and ended.shorten_audit() == 0
    write(company, lambda: audit.append("test", "newer", actor="me", at_us=now))
    assert audit.verify(company.database) == (3, [])


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM audit WHERE subject = 'new'",
        "UPDATE audit SET actor = 'x' WHERE subject = 'new'",
        "UPDATE audit_head SET seq = seq + 1 WHERE id = 2",
        "DELETE FROM audit_head WHERE id = 2",
    ],
)
def test_tampering_shows_in_a_shortened_log_too(company, ended, aged, tampering) -> None:
    write(company, lambda: audit.append("test", "new", actor="me", at_us=company.database.now_us()))
    assert ended.shorten_audit() == aged
    write(company, lambda: company.database.execute(tampering))
    assert audit.verify(company.database)[1]


def test_the_newest_entry_stays_however_old(company, ended, aged) -> None:
    assert ended.shorten_audit() == aged - 1 and audit.verify(company.database) == (2, [])


def test_zero_days_keep_all(company, aged) -> None:
    forever = AccountCleanup(company.database, RetentionSettings(0, 0, 0, 0, 0, False))
    assert forever.shorten_audit() == forever.forget_invitations() == 0


def test_rules_at_one_place_name_so_much_together_and_no_more(company) -> None:
    def add(count: int, start: int = 0) -> object:
        networks = [f"10.{n // 250 % 250}.{n % 250}.0/24" for n in range(start, start + count)]
        rule = ("organization", company.organization_id, "deny_ip_cidrs", {"ipCidrs": networks})
        return rules.add_rule(company.database, company.control, *rule, actor="me")

    with pytest.raises(InvalidRequest) as caught:
        add(MAX_NAMES + 1)
    assert caught.value.code == "too_many"
    add(MAX_NAMES - 5)
    with pytest.raises(InvalidRequest):
        add(6, MAX_NAMES)
    add(5, MAX_NAMES)
    for _ in range(MAX_RULES - 2):
        rules.add_rule(
            *(company.database, company.control, "organization", company.organization_id, "allow_pricing"),
            {"pricingType": "free"},
            actor="me",
        )
    with pytest.raises(InvalidRequest, match="at most 100 rules"):
        rules.add_rule(
            *(company.database, company.control, "organization", company.organization_id, "allow_pricing"),
            {"pricingType": "free"},
            actor="me",
        )


def test_a_policy_names_so_many_and_no_more(company) -> None:
    with pytest.raises(InvalidRequest) as caught:
        set_policy(
            *(company.database, company.control, company.organization_id),
            {"blockedModels": [f"m{n}" for n in range(MAX_NAMES + 1)]},
            actor="me",
        )
    assert (caught.value.code, caught.value.param) == ("too_many", "blockedModels")


def test_the_steps_of_a_round_are_bounded(company, ended, monkeypatch) -> None:
    monkeypatch.setattr(cleanup, "ROUND_STEPS", 2)
    counts: list[int] = []
    assert ended._repeat(lambda: counts.append(1) or STEP_ROWS, lambda: True) == 2 * STEP_ROWS and len(counts) == 2
