"""Unused deleted keys are removed after the retention period; keys in statistics, logs and books stay."""

import pytest
from support.billing import BillingProcess

from gateway.accounts import keys, members, organizations, projects
from gateway.accounts.provider_keys import ProviderKeyDraft, ProviderKeys
from gateway.accounts.rules import add_rule
from gateway.admin import deleted_keys
from gateway.admin.deleted_keys import DeletedKeys
from gateway.callers.models import AccessRule, ApiKey, ProviderKey
from gateway.callers.vault import Vault
from gateway.limits.budgets import Budgets, Limits
from gateway.metering.rollups.rollup_table import insert_state

DAY_US = 86_400_000_000


class SignedInOwner:
    def __init__(self, database, control, clock) -> None:
        self.database, self.control, self.clock = database, control, clock
        by = {"actor": "operator"}
        self.organization = organizations.create_organization(database, control, "Acme", **by).id
        self.project = projects.create_project(database, control, self.organization, "Default", **by).id
        self.member = members.add_member(database, control, self.organization, "a@example.com", "owner", **by).id
        database.write(lambda: insert_state(database, clock.now_us(), True))

    def deleted(self, days: int = 31) -> str:
        """A key with a rule and a limit that was made and deleted so many days ago."""
        draft = keys.Draft(self.project, self.member, "CI")
        key_id = keys.create(self.database, self.control, (b"a hash key",), draft, actor="operator").info.id
        Budgets(self.database, self.control).set_limits("key", key_id, Limits(total_nusd=5))
        value = {"models": ["gpt-5"]}
        add_rule(self.database, self.control, "key", key_id, "deny_models", value, actor="operator")
        keys.delete(self.database, self.control, key_id, actor="operator")
        at = self.clock.now_us() - days * DAY_US
        self.database.write(lambda: ApiKey.update(updated_at=at).where(ApiKey.id == key_id).execute())
        return key_id

    def left(self) -> set[str]:
        return {key.id for key in keys.list_keys(self.database, deleted=True)}

    def write(self, sql: str, *values: object) -> None:
        self.database.write(lambda: self.database.execute(sql, values))


@pytest.fixture
def desk(start_billing) -> SignedInOwner:
    """On both stores in turn."""
    one: BillingProcess = start_billing()
    one.database.bind()
    return SignedInOwner(one.database, one.control, one.clock)


def raw(key_id: str) -> bytes:
    return bytes.fromhex(key_id.removeprefix("key_"))


def test_a_loop_that_makes_and_deletes_keys_leaves_no_rows(desk, monkeypatch) -> None:
    monkeypatch.setattr(deleted_keys, "STEP_ROWS", 2)
    for _ in range(5):
        desk.deleted()
    fresh = desk.deleted(days=29)
    assert DeletedKeys(desk.database, 30).purge() == 5
    assert desk.left() == {fresh}
    counted = desk.database.read(lambda: desk.database.execute("SELECT DISTINCT scope_id FROM budget").fetchall())
    ruled = desk.database.read(lambda: [one.scope_id for one in AccessRule.select()])
    assert [one[0] for one in counted] == ruled == [fresh]
    assert DeletedKeys(desk.database, 0).purge() == 0 and desk.left() == {fresh}


def test_a_key_that_was_used_logged_or_counted_keeps_its_name(desk) -> None:
    used, logged, spent, idle = (desk.deleted() for _ in range(4))
    desk.write(
        "INSERT INTO rollup (series, owner, hour, part, name, provider, rows) VALUES (3, ?, 1, 0, '', '', 1)", raw(used)
    )
    desk.write(
        "INSERT INTO log_entry (request, organization, project, api_key, member, requests, status, operation, path, "
        "asked, source) VALUES (?, ?, ?, ?, ?, 1, 429, 'chat', '', '', '')",
        *(b"1" * 16, b"2" * 16, b"3" * 16, raw(logged), b"4" * 16),
    )
    desk.write(
        "UPDATE budget SET settled_nusd = 7 WHERE id = ?",
        f"{spent}:total",
    )
    assert DeletedKeys(desk.database, 30).purge() == 1
    assert desk.left() == {used, logged, spent} and idle not in desk.left()


def test_no_key_goes_while_rollups_are_still_summed_up(desk) -> None:
    key_id = desk.deleted()
    desk.write("UPDATE rollup_state SET filled = '' WHERE id = 1")
    assert DeletedKeys(desk.database, 30).purge() == 0 and desk.left() == {key_id}


def test_provider_keys_that_were_deleted_make_room_and_go(desk, monkeypatch) -> None:
    """Rotating provider keys for years never reaches the limit on their number."""
    monkeypatch.setattr("gateway.accounts.provider_keys.MAX_PROVIDER_KEYS", 2)
    vault = Vault(("an encryption key of the tests",))
    stored = ProviderKeys(desk.database, desk.control, vault, Budgets(desk.database, desk.control).write_bound)
    for number in range(4):
        draft = ProviderKeyDraft("openai", f"sk-secret-{number}", max_spend_nusd=5 if number < 2 else None)
        stored_key = stored.add(desk.organization, draft, actor="operator")
        stored.remove(desk.organization, stored_key.id, actor="operator")
        if number == 0:
            desk.write("UPDATE budget SET settled_nusd = 1 WHERE scope_id = ?", stored_key.id)
            counted = stored_key.id
    desk.write("UPDATE provider_key SET updated_at = 1")
    assert DeletedKeys(desk.database, 30).purge() == 3
    left = desk.database.read(lambda: [row.id for row in ProviderKey.select()])
    scopes = desk.database.read(lambda: desk.database.execute("SELECT scope_id FROM budget").fetchall())
    assert left == [counted] == [scope[0] for scope in scopes]
