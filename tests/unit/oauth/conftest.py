from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from gateway.accounts import keys, members, organizations, projects
from gateway.callers.authentication import Authentication, TokenCallers
from gateway.callers.throttle import Throttle
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.oauth.grant_values import Consent
from gateway.oauth.grants import Grants
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

SECRETS = Secrets((b"newest-hash-key-of-tests", b"older-hash-key-of-tests"), ("newest-encryption-key", "older-one"))
RESOURCE = "https://llm.example/mcp"
CLIENT = "client_of_tests"


@dataclass
class Office:
    """An organization with an owner and a key of theirs, and what is allowed with it."""

    database: Database
    control: Control
    clock: Clock
    grants: Grants
    organization_id: str
    project_id: str
    member: members.MemberInfo
    key: keys.KeyInfo

    def consent(self, **more) -> Consent:
        scope = "mcp:tools mcp:resources mcp:prompts"
        place = "http://localhost/callback", "localhost", "c" * 43, scope, RESOURCE
        return replace(Consent(CLIENT, "An editor", *place, self.key.id, self.member.user_id), **more)

    def connect(self, **more):
        """Tokens of a new grant."""
        code = self.grants.find_code(self.grants.allow(self.consent(**more)))
        return self.grants.exchange(code, refreshable=True)

    def callers(self, control: Control | None = None) -> TokenCallers:
        """Return the token lookup of one more worker."""
        control = control or self.control
        return TokenCallers(Authentication(self.database, control, SECRETS, self.clock), control, SECRETS, self.clock)

    def make_key(self, **more) -> keys.NewKey:
        draft = keys.Draft(self.project_id, self.member.id, "Another key", **more)
        return keys.create(self.database, self.control, SECRETS.hash_keys, draft, actor="operator")


@pytest.fixture
def office(database: Database, clock: Clock) -> Office:
    """On both stores in turn."""
    return make_office(database, clock)


@pytest.fixture
def small_office(sqlite_database: Database, clock: Clock) -> Office:
    """On SQLite alone, for what does not depend on the store."""
    return make_office(sqlite_database, clock)


def make_office(database: Database, clock: Clock) -> Office:
    database.bind()
    control = Control.observer(database, clock)
    by = {"actor": "operator"}
    organization = organizations.create_organization(database, control, "Acme", **by)
    project = projects.create_project(database, control, organization.id, "Default", **by)
    owner = members.add_member(database, control, organization.id, "owner@example.com", "owner", **by)
    members.add_member(database, control, organization.id, "other@example.com", "owner", **by)
    draft = keys.Draft(project.id, owner.id, "A key")
    key = keys.create(database, control, SECRETS.hash_keys, draft, **by)
    grants = Grants(database, control, SECRETS, Throttle(database, SECRETS.hash_keys[0]))
    return Office(database, control, clock, grants, organization.id, project.id, owner, key.info)
