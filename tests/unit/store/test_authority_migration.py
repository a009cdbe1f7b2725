"""Migration 0039 on stores with data: who counts as backed by an owner, and which accounts provisioning made."""

import importlib
import json
from typing import Any

import pytest

from gateway.store.database import Database

STEP = importlib.import_module("migrations.0039_authority")
ADDED = {
    "user": ("made_by", "email_set_by"),
    "scim_group": ("by_owner",),
    "scim_group_member": ("by_owner",),
    "member_group": ("trusted",),
    "group_rule": ("source", "by_owner"),
}


class OldStore:
    """A store as before the migration. `insert` fills the columns that it is not given."""

    def __init__(self, database: Database) -> None:
        self.database = database
        for table, columns in ADDED.items():
            for column in columns:
                database.write(lambda sql=f'ALTER TABLE "{table}" DROP COLUMN {column}': database.execute(sql))

    def insert(self, table: str, **values: Any) -> None:
        columns = self.database.read(lambda: self.database.peewee.get_columns(table))
        for column in columns:
            if column.name not in values and not column.null and column.default is None:
                kind = column.data_type.lower()
                values[column.name] = False if "bool" in kind else 0 if "int" in kind else ""
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        sql = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
        self.database.write(lambda: self.database.execute(sql, list(values.values())))

    def migrate(self) -> None:
        self.database.write(lambda: STEP.up(None, self.database.peewee))

    def find(self, table: str, key: str, column: str) -> dict[str, Any]:
        sql = f'SELECT {key}, {column} FROM "{table}"'
        return dict(self.database.read(lambda: self.database.fetch(sql)))


@pytest.fixture
def store(database: Database) -> OldStore:
    old = OldStore(database)
    for organization in ("org_1", "org_2"):
        old.insert("organization", id=organization, name=organization)
        for role in ("owner", "admin"):
            user = f"user_{organization}_{role}"
            old.insert("user", id=user, email=f"{user}@corp.example")
            old.insert(
                "member", id=f"member_{user}", organization_id=organization, user_id=user, role=role, status="active"
            )
    return old


def test_accounts_that_provisioning_made_are_its_organizations(store: OldStore) -> None:
    for user, made in (("user_org_1_admin", True), ("user_org_2_admin", False)):
        store.insert(
            "scim_user", member_id=f"member_{user}", organization=user[5:10], made_account=made, user_name=user
        )
    store.migrate()
    assert store.find("user", "id", "made_by") == {
        "user_org_1_owner": "",
        "user_org_1_admin": "org_1",
        "user_org_2_owner": "",
        "user_org_2_admin": "",
    }
    assert set(store.find("user", "id", "email_set_by").values()) == {""}


def test_groups_are_an_owners_where_every_token_is(store: OldStore) -> None:
    for number, by_owner in enumerate((True, True, False)):
        organization = "org_1" if number == 0 else "org_2"
        store.insert(
            "scim_token", id=f"scim_{number}", organization=organization, token_hash=str(number), by_owner=by_owner
        )
    for organization in ("org_1", "org_2"):
        store.insert("scim_group", id=f"group_{organization}", organization=organization, display_name="Owners")
        member = f"member_user_{organization}_admin"
        store.insert("scim_group_member", group_id=f"group_{organization}", member_id=member)
        store.insert("member_group", member=member, source="scim", name="Owners", organization=organization)
    store.migrate()
    assert store.find("scim_group", "id", "by_owner") == {"group_org_1": True, "group_org_2": False}
    assert store.find("scim_group_member", "group_id", "by_owner") == {"group_org_1": True, "group_org_2": False}
    assert store.find("member_group", "organization", "trusted") == {"org_1": True, "org_2": False}


def test_providers_are_an_owners_by_the_author_of_their_newest_change(store: OldStore) -> None:
    authors = {
        "idp_none": (),
        "idp_operator": ("user_org_1_admin", "operator"),
        "idp_owner": ("user_org_1_admin", "user_org_1_owner"),
        "idp_admin": ("user_org_1_owner", "user_org_1_admin"),
        "idp_foreign": ("user_org_2_owner",),
    }
    seq = 1_000
    for ident, actors in authors.items():
        store.insert("identity_provider", id=ident, organization="org_1", name=ident, settings=json.dumps({"a": 1}))
        store.insert("member_group", member="member_user_org_1_admin", source=ident, name="x", organization=ident)
        for actor in actors:
            seq += 1
            store.insert(
                "audit", seq=seq, actor=actor, action="identity_provider.update", subject=ident,
                previous_hash=str(seq), hash=str(seq),
            )  # fmt: skip
    store.insert("member_group", member="member_user_org_1_admin", source="configured", name="x", organization="own")
    store.migrate()
    settings = {ident: json.loads(text) for ident, text in store.find("identity_provider", "id", "settings").items()}
    owned = {"idp_none": True, "idp_operator": True, "idp_owner": True, "idp_admin": False, "idp_foreign": False}
    assert settings == {ident: {"a": 1, "for_owners": by_owner} for ident, by_owner in owned.items()}
    assert store.find("member_group", "organization", "trusted") == {**owned, "own": True}


def test_rules_are_an_owners_unless_an_admin_set_them(store: OldStore) -> None:
    rules = {
        "grule_admin": ("developer", "user_org_1_admin", False),
        "grule_owner": ("developer", "user_org_1_owner", True),
        "grule_owners": ("owner", "user_org_1_admin", True),
        "grule_operator": ("admin", "operator", True),
    }
    for ident, (role, author, _) in rules.items():
        store.insert(
            "group_rule", id=ident, organization="org_1", name=ident, role=role, set_by=author, teams="[]", limits="{}"
        )
    store.migrate()
    assert store.find("group_rule", "id", "by_owner") == {ident: by_owner for ident, (*_, by_owner) in rules.items()}
    assert set(store.find("group_rule", "id", "source").values()) == {""}
