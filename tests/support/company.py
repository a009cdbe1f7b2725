from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gateway.accounts import keys, members, organizations, projects
from gateway.callers.authentication import Authentication
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

SECRETS = Secrets((b"newest-hash-key-of-tests", b"older-hash-key-of-tests"), ("newest-encryption-key", "older-one"))


@dataclass
class Company:
    """An organization with a project and an owner, and the ways to change and to ask."""

    database: Database
    control: Control
    clock: Clock
    organization_id: str
    project_id: str
    member_id: str
    secrets: Secrets = SECRETS
    bounds: dict[str, int | None] = field(default_factory=dict)  # of provider keys, where budgets would keep them

    def draft(self, **more) -> keys.Draft:
        return keys.Draft(self.project_id, self.member_id, "A key", **more)

    def make_key(self, **more) -> keys.NewKey:
        return keys.create(self.database, self.control, SECRETS.hash_keys, self.draft(**more), actor="operator")

    def authentication(self, control: Control | None = None) -> Authentication:
        return Authentication(self.database, control or self.control, SECRETS, self.clock)


@pytest.fixture
def make_company(clock: Clock) -> Callable[[Database], Company]:
    def make(database: Database) -> Company:
        database.bind()
        control = Control.observer(database, clock)
        by = {"actor": "operator"}
        organization = organizations.create_organization(database, control, "Acme", **by)
        project = projects.create_project(database, control, organization.id, "Default", **by)
        owner = members.add_member(database, control, organization.id, "Owner@Example.com", "owner", **by)
        return Company(database, control, clock, organization.id, project.id, owner.id)

    return make


@pytest.fixture
def company(database: Database, make_company: Callable[[Database], Company]) -> Company:
    """On both stores in turn."""
    return make_company(database)


@pytest.fixture
def small_company(sqlite_database: Database, make_company: Callable[[Database], Company]) -> Company:
    """On SQLite alone, for what does not depend on the store."""
    return make_company(sqlite_database)
