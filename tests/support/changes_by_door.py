"""Changes of people, keys, limits and organizations through each door, tried one after the other.

A change is allowed if the field has another value afterwards, whatever the answer was.
"""

import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.management import Person, Tenants
from support.management_bodies import BODIES, RULE

from gateway.accounts import group_rules, members, teams
from gateway.accounts.changes import commit
from gateway.accounts.group_rules import RuleDraft
from gateway.accounts.keys import Draft
from gateway.accounts.member_attributes import ENTERPRISE, read_current
from gateway.accounts.organizations import change_organization
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provisioning.user_rows import ProvisioningClient, UserValues
from gateway.accounts.scoped_roles import set_role
from gateway.accounts.second_factor import STEP_S, SecondFactors, code_at
from gateway.accounts.service_accounts import ServiceAccountDraft
from gateway.callers.models import ApiKey, Member, Organization, TeamMember, User
from gateway.callers.permissions import PROJECT_ADMIN, TEAM_LEAD
from gateway.errors import GatewayError
from gateway.limits.budgets import Limits
from gateway.oauth.grant_values import Consent
from gateway.operator.derived_commands import visit_as_operator
from gateway.sso.provider_identity import ProviderIdentity
from gateway.surfaces.console.page_calls import ManagementCall
from gateway.surfaces.management.access_groups import SCOPES
from gateway.surfaces.web.http import Inbound

DEVELOPER, ADMIN, OWNER = "developer", "admin", "owner"
VIEWER, BILLING = "viewer", "billing"
SESSIONS = (VIEWER, BILLING, DEVELOPER, ADMIN, OWNER)
PARTS = (TEAM_LEAD, PROJECT_ADMIN)
SERVICE_ACCOUNT, OAUTH = "service account", "OAuth token"
TOKENS = {"SCIM, token of an admin": False, "SCIM, token of an owner": True}
PROVIDERS = {"identity provider of an admin": ADMIN, "identity provider of an owner": OWNER}
RULES = {"group rule of an admin": ADMIN, "group rule of an owner": OWNER}
OPERATOR = "operator"
DOORS = (*SESSIONS, *PARTS, SERVICE_ACCOUNT, OAUTH, *TOKENS, *PROVIDERS, *RULES, OPERATOR)


@dataclass(frozen=True)
class Change:
    """A field, and how each door would change it.

    `operation` and `body` are the row of the management table, which sessions, service accounts, OAuth tokens and the
    operator try. `wanted` is what the other doors try: a role, an address, or that the person is removed. `of` is the
    role of the person that is concerned. With `in_team` the person is in the team that the team lead leads.
    """

    name: str
    read: Callable[["Doors", Person], Any]
    operation: str = ""
    body: Callable[["Doors", Person], Any] = lambda doors, person: {}
    of: str = DEVELOPER
    wanted: dict[str, Any] = field(default_factory=dict)
    by_operator: Callable[["Doors", Person], Any] | None = None
    prepare: Callable[["Doors", Person], Any] = lambda doors, person: None
    in_team: bool = False


class Doors:
    """The organization acme with a credential for each door."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.services = tenants.services
        self.management = tenants.services.management
        self.database = tenants.services.store.database
        self.stores = self.database, tenants.services.store.control
        self.owner = tenants["acme owner"]
        self.id = self.owner.organization_id
        self.team = self.rule = ""
        for role in (VIEWER, BILLING, *PARTS):
            email = f"{role.replace(' ', '-')}@acme.example"
            whole = VIEWER if role in PARTS else role
            tenants.people[f"acme {role}"] = tenants.join(self.id, self.owner.project_id, email, whole)
        self.bearers = {role: tenants[f"acme {role}"].token for role in (*SESSIONS, *PARTS)}
        project_admin = tenants[f"acme {PROJECT_ADMIN}"].member_id
        set_role(*self.stores, self.owner.project_id, project_admin, True, actor="test")
        draft = ServiceAccountDraft("Automation", list(SCOPES))
        self.bearers[SERVICE_ACCOUNT] = self.management.service_accounts.create(
            self.id, draft, actor=self.owner.user_id
        ).token
        scopes, audience = "mcp:tools", "http://localhost/mcp"
        consent = Consent("c", "App", "", "", "", scopes, audience, self.owner.key.info.id, self.owner.user_id)
        self.bearers[OAUTH] = tenants.services.accounts.oauth.grants.issue_for_key(consent).access
        self.clients = {
            name: ProvisioningClient(self.id, f"scim_{name[-5:]}", by_owner) for name, by_owner in TOKENS.items()
        }
        for name in TOKENS:  # the doors of SCIM are tried at the management API too
            role = OWNER if TOKENS[name] else ADMIN
            path = f"/orgs/{self.id}/scim/tokens"
            self.bearers[name] = tenants.ok("POST", path, tenants[f"acme {role}"], {"name": "x"})["token"]["token"]
        self.providers = {name: self._add_provider(role) for name, role in PROVIDERS.items()}
        self._numbers = itertools.count()
        self._rules: list[str] = []

    def is_allowed(self, change: Change, door: str) -> bool:
        """Try a change of a new person, and return whether the field changed."""
        person = self._settle(change.of)
        if change.in_team:
            teams.set_team_member(*self.stores, self.team, person.member_id, True, actor="test")
        change.prepare(self, person)
        before = change.read(self, person)
        try:
            self._try(change, door, person)
        except GatewayError:
            pass
        self.database.bind()
        changed = bool(change.read(self, person) != before)
        for rule_id in self._rules:
            group_rules.delete_rule(*self.stores, self.id, rule_id, actor="test")
        self._rules.clear()
        return changed

    def _try(self, change: Change, door: str, person: Person) -> None:
        if door in PROVIDERS:
            self._sign_in(change, door, person)
        elif door in RULES:
            self._write_rule(change, door, person)
        elif door == OPERATOR:
            self._operate(change, person)
        else:
            if change.operation:
                self._call(change, self.bearers[door], person)
            if door in TOKENS:
                self._provision(change, self.clients[door], person)

    def _call(self, change: Change, bearer: str, person: Person) -> None:
        method, path = change.operation.split(" ")
        status, answer = self.tenants.call(method, self.fill(path, person), bearer, change.body(self, person))
        assert status < 500, answer

    def _operate(self, change: Change, person: Person) -> None:
        if change.by_operator is not None:
            change.by_operator(self, person)
        if change.by_operator is not None or not change.operation:
            return
        path = {name: value for name, value in self._ids(person).items() if f"<{name}>" in change.operation}
        inbound = Inbound("POST", "/", {}, base_url="http://localhost", peer="127.0.0.1")
        call = ManagementCall(change.operation)
        call.run(visit_as_operator(self.services), inbound, change.body(self, person), **path)

    def _provision(self, change: Change, client: ProvisioningClient, person: Person) -> None:
        users, groups = self.management.provisioned_users, self.management.provisioned_groups
        wanted = change.wanted
        if "role" in wanted or "team" in wanted:
            group = self._add_rule(wanted, person)
            groups.create(client, group, "", [person.member_id])
        if "removed" in wanted:
            users.delete(client, person.member_id)
        if "email" in wanted:
            before = users.find(self.id, person.member_id)
            users.update(client, before, UserValues(before.user_name, f"evil-{person.member_id}@acme.example"))
        if "attributes" in wanted:
            before = users.find(self.id, person.member_id)
            stated = {ENTERPRISE: wanted["attributes"]}
            users.update(client, before, UserValues(before.user_name, before.email, attributes=stated))

    def _sign_in(self, change: Change, door: str, person: Person) -> None:
        wanted = change.wanted
        group = self._add_rule(wanted, person) if "role" in wanted or "team" in wanted else "nothing"
        provider = self.services.sso.service.providers.find(self.providers[door])
        email = f"evil-{person.member_id}@acme.example" if "email" in wanted else ""
        attributes = wanted.get("attributes", {})
        identity = ProviderIdentity(provider.issuer, person.member_id, email, "", (group,), attributes=attributes)
        if "removed" in wanted:
            self.database.write(Organization.update(sso_required=True).where(Organization.id == self.id).execute)
            self.services.sso.service.accounts.suspensions.suspend(provider, person.user_id, actor="test")
            self.database.write(Organization.update(sso_required=False).where(Organization.id == self.id).execute)
            return
        # The person connected the account at the provider before, as a developer.
        link = "INSERT INTO user_identity VALUES (?, ?, ?, ?, ?, ?, '', 1, 1)"
        values = (f"i-{person.member_id}-{provider.id}"[:40], self.id, provider.issuer, person.member_id)
        self.database.write(lambda: self.database.execute(link, (*values, person.user_id, provider.id)))
        self.services.sso.service.accounts.sign_in(provider, identity)

    def _write_rule(self, change: Change, door: str, person: Person) -> None:
        """Write a rule, as a person, for a group that a source which owners trust states."""
        if not change.wanted.keys() & {"role", "team", "limits"}:
            return
        body: dict[str, Any] = {"group": f"g-{person.member_id}", "source": "scim"}
        body["role"] = change.wanted.get("role")
        body["teamIds"] = [self.team] if "team" in change.wanted else []
        body["limits"] = {"usageLimit": "7"} if "limits" in change.wanted else {}
        self.management.group_grants.set_groups(self.id, person.member_id, "scim", {body["group"]: True}, actor="test")
        author = self.tenants[f"acme {RULES[door]}"]
        _, answer = self.tenants.call("POST", f"/orgs/{self.id}/group-rules", author, body)
        if "groupRule" in answer:
            self._rules.append(answer["groupRule"]["id"])

    def _add_rule(self, wanted: dict[str, Any], person: Person) -> str:
        """Let the owner write a rule for a group that only this person will be in; return the group."""
        group = f"only-{person.member_id}"
        draft = RuleDraft(group, wanted.get("role", ""), (self.team,) if "team" in wanted else ())
        made = group_rules.create_rule(*self.stores, self.id, draft, actor=self.owner.user_id)
        self._rules.append(made.id)
        return group

    def _add_provider(self, role: str) -> str:
        body = {**BODIES["NewProvider"](self.owner), "issuer": f"https://{role}.example"}
        path = f"/orgs/{self.id}/identity-providers"
        made: str = self.tenants.ok("POST", path, self.tenants[f"acme {role}"], body)["identityProvider"]["id"]
        return made

    def _settle(self, role: str) -> Person:
        """Return a new person with an account from provisioning."""
        number = next(self._numbers)
        self.team = teams.create_team(*self.stores, self.id, f"Team {number}", actor=self.owner.user_id).id
        lead = self.tenants[f"acme {TEAM_LEAD}"].member_id
        set_role(*self.stores, self.team, lead, True, actor="test")
        change_organization(*self.stores, self.id, leads_add_members=False, actor="test")
        update_project(*self.stores, self.owner.project_id, ProjectChange(status="active"), actor="test")
        email = f"person-{number}@acme.example"
        client = ProvisioningClient(self.id, "scim_owner", True)
        user = self.management.provisioned_users.create(client, UserValues(email, email))
        if role != DEVELOPER:
            members.update_member(*self.stores, self.id, user.id, role=role, actor="test")
        draft = Draft(self.owner.project_id, user.id, "Key")
        key = self.management.create_key(draft, Limits(), actor=user.user_id)
        return Person("", user.user_id, user.id, self.id, self.owner.project_id, key)

    def _ids(self, person: Person) -> dict[str, str]:
        return {
            "organization_id": self.id,
            "member_id": person.member_id,
            "key_id": person.key.info.id,
            "project_id": self.owner.project_id,
            "team_id": self.team,
            "rule_id": self.rule,
            "limit_id": f"of-{self.team}",
            "provider_id": self.providers["identity provider of an admin"],
        }

    def fill(self, path: str, person: Person) -> str:
        for name, value in self._ids(person).items():
            path = path.replace(f"<{name}>", value)
        return path


def of_member(name: str) -> Callable[[Doors, Person], Any]:
    return lambda doors, person: doors.database.read(lambda: getattr(Member.get_by_id(person.member_id), name))


def is_in_force(doors: Doors, person: Person) -> Any:
    row = doors.database.read(lambda: Member.get_by_id(person.member_id))
    return row.status, row.suspended_at is None


def of_user(name: str) -> Callable[[Doors, Person], Any]:
    return lambda doors, person: doors.database.read(lambda: getattr(User.get_by_id(person.user_id), name))


def of_key(name: str) -> Callable[[Doors, Person], Any]:
    return lambda doors, person: doors.database.read(lambda: getattr(ApiKey.get_by_id(person.key.info.id), name))


def attributes_of(doors: Doors, person: Person) -> Any:
    return read_current(doors.database, [person.member_id])


def is_in_team(doors: Doors, person: Person) -> Any:
    return doors.database.read(lambda: TeamMember.select().where(TeamMember.member == person.member_id).exists())


def limits_of(subject: Callable[[Doors, Person], str]) -> Callable[[Doors, Person], Any]:
    return lambda doors, person: doors.management.budgets.status(subject(doors, person)).limits


def count(table: str, condition: str = "1 = 1") -> Callable[[Doors, Person], Any]:
    """Return the number of rows of a table."""
    sql = f"SELECT COUNT(*) FROM {table} WHERE {condition}"
    return lambda doors, person: doors.database.query_row(sql, ())


def value(sql: str) -> Callable[[Doors, Person], Any]:
    """Return a value of the organization."""
    return lambda doors, person: doors.database.query_row(sql, (doors.id,))


def factor(doors: Doors, person: Person) -> Any:
    return doors.management.second_factors.find(person.user_id).active


def enrol(doors: Doors, person: Person) -> None:
    factors: SecondFactors = doors.management.second_factors
    secret = base64.b32decode(factors.begin(person.user_id, "x@acme.example").secret)
    factors.confirm(person.user_id, code_at(secret, doors.database.now_us() // 1_000_000 // STEP_S))


def limit_by_owner(doors: Doors, person: Person) -> None:
    """Let an owner limit the person."""
    path = f"/orgs/{doors.id}/members/{person.member_id}/limit"
    doors.tenants.ok("PATCH", path, doors.owner, {"usageLimit": "5"})


FAR = "2070-01-01T00:00:00.000Z"


def limit_team(role: str) -> Callable[[Doors, Person], None]:
    """Return a function that lets a person with this role limit the team."""
    path = "/orgs/{}/teams/{}/limit"

    def limit(doors: Doors, person: Person) -> None:
        who = doors.tenants[f"acme {role}"]
        doors.tenants.ok("PATCH", path.format(doors.id, doors.team), who, {"usageLimit": "5"})

    return limit


def any_limit(doors: Doors, amount: str) -> dict[str, Any]:
    """Return the body of a limit of the team."""
    return {"subjects": [f"team={doors.team}"], "amount": amount}


def set_any_limit(role: str) -> Callable[[Doors, Person], None]:
    """Return a function that lets a person with this role set a limit of the team."""

    def limit(doors: Doors, person: Person) -> None:
        path = doors.fill(ANY_LIMIT, person)
        doors.tenants.ok("PUT", path, doors.tenants[f"acme {role}"], any_limit(doors, "5"))

    return limit


def limit_named(subject: Callable[[Doors, Person], str]) -> Callable[[Doors, Person], None]:
    """Return a function that lets an owner set a limit that names something."""

    def limit(doors: Doors, person: Person) -> None:
        body = {"subjects": [subject(doors, person)], "amount": "5"}
        doors.tenants.ok("PUT", doors.fill(ANY_LIMIT, person), doors.owner, body)

    return limit


def restrict_team(doors: Doors, person: Person) -> None:
    """Let an admin add an access rule to the team."""
    body = {**RULE, "scope": "team", "scopeId": doors.team, "status": "active"}
    doors.tenants.ok("POST", f"/orgs/{doors.id}/iam", doors.tenants["acme admin"], body)


def let_leads_add(doors: Doors, person: Person) -> None:
    change_organization(*doors.stores, doors.id, leads_add_members=True, actor="test")


def restrict_key(doors: Doors, person: Person) -> None:
    """Let an owner add an access rule to the key."""
    path = f"/keys/api/{person.key.info.id}/iam"
    doors.rule = doors.tenants.ok("POST", path, doors.owner, {**RULE, "status": "inactive"})["rule"]["id"]


def limit_by(path: str, fields: dict[str, Any]) -> Callable[[Doors, Person], None]:
    """Return a function that lets an owner set a limit."""
    return lambda doors, person: doors.tenants.ok("PATCH", doors.fill(path, person), doors.owner, fields)


def change_key_by_owner(fields: dict[str, Any]) -> Callable[[Doors, Person], None]:
    """Return a function that lets an owner change the person's key."""
    return lambda doors, person: doors.tenants.ok("PATCH", f"/keys/api/{person.key.info.id}", doors.owner, fields)


def set_password(doors: Doors, person: Person) -> None:
    def work(now: int) -> None:
        User.update(password_hash=f"set-{now}").where(User.id == person.user_id).execute()

    commit(*doors.stores, work)


POLICY = "SELECT policy FROM organization WHERE id = ?"
MEMBER = "/orgs/<organization_id>/members/<member_id>"
KEY = "/keys/api/<key_id>"
IN_TEAM = "/orgs/<organization_id>/teams/<team_id>/members/<member_id>"
ORG = "/orgs/<organization_id>"
ANY_LIMIT = f"{ORG}/limits/<limit_id>"
SUM_OF_LIMITS = value(
    "SELECT COALESCE(SUM(amount_nusd + raise_nusd), 0) FROM limits WHERE organization = ? AND deleted_at IS NULL"
)
CHANGES: dict[str, tuple[Change, ...]] = {
    "A person": (
        Change("role: developer becomes admin", of_member("role"), f"PATCH {MEMBER}", lambda d, p: {"role": ADMIN},
               wanted={"role": ADMIN}),
        Change("role: developer becomes owner", of_member("role"), f"PATCH {MEMBER}", lambda d, p: {"role": OWNER},
               wanted={"role": OWNER}),
        Change("role of an admin", of_member("role"), f"PATCH {MEMBER}", lambda d, p: {"role": DEVELOPER}, of=ADMIN,
               wanted={"role": DEVELOPER}),
        Change("role of an owner", of_member("role"), f"PATCH {MEMBER}", lambda d, p: {"role": ADMIN}, of=OWNER,
               wanted={"role": ADMIN}),
        Change("membership of a developer: ended or suspended", is_in_force, f"DELETE {MEMBER}",
               wanted={"removed": True}),
        Change("membership of an owner", is_in_force, f"DELETE {MEMBER}", of=OWNER, wanted={"removed": True}),
        Change("e-mail address of a developer made by provisioning", of_user("email"), wanted={"email": True}),
        Change("e-mail address of an owner made by provisioning", of_user("email"), of=OWNER, wanted={"email": True}),
        Change("attributes of a developer, such as the cost center", attributes_of,
               wanted={"attributes": {"costCenter": "4711"}}),
        Change("attributes of an owner", attributes_of, of=OWNER, wanted={"attributes": {"costCenter": "4711"}}),
        Change("password of another", of_user("password_hash"), "POST /auth/change-password",
               lambda d, p: {"currentPassword": "x", "newPassword": "a new password"}, by_operator=set_password),
        Change("second factor of another", factor, "POST /auth/second-factor/remove",
               lambda d, p: {"password": "x", "code": "000000"}, prepare=enrol,
               by_operator=lambda d, p: d.management.second_factors.remove(p.user_id, actor="operator")),
        Change("team of a developer: added", is_in_team, f"PUT {IN_TEAM}", wanted={"team": True}),
        Change("team of a developer: added, where leads may add members", is_in_team, f"PUT {IN_TEAM}",
               wanted={"team": True}, prepare=let_leads_add),
        Change("team of an owner: added", is_in_team, f"PUT {IN_TEAM}", of=OWNER, wanted={"team": True},
               prepare=let_leads_add),
        Change("team of a developer: removed", is_in_team, f"DELETE {IN_TEAM}", in_team=True),
        Change("team of a developer: removed, where an admin set limits", is_in_team, f"DELETE {IN_TEAM}", in_team=True,
               prepare=limit_team(ADMIN)),
        Change("team of a developer: removed, where an owner set limits", is_in_team, f"DELETE {IN_TEAM}", in_team=True,
               prepare=limit_team(OWNER)),
        Change("team of a developer: removed, where an owner set a limit of any subject", is_in_team,
               f"DELETE {IN_TEAM}", in_team=True, prepare=set_any_limit(OWNER)),
        Change("team of a developer: removed, where access rules apply", is_in_team, f"DELETE {IN_TEAM}", in_team=True,
               prepare=restrict_team),
        Change("team of an owner: removed", is_in_team, f"DELETE {IN_TEAM}", of=OWNER, in_team=True),
    ),
    "Spending limits": (
        Change("limits of a developer", limits_of(lambda d, p: p.member_id), f"PATCH {MEMBER}/limit",
               lambda d, p: {"usageLimit": "9"}, wanted={"limits": True}, in_team=True),
        Change("limits of an owner", limits_of(lambda d, p: p.member_id), f"PATCH {MEMBER}/limit",
               lambda d, p: {"usageLimit": "9"}, of=OWNER, wanted={"limits": True}, in_team=True),
        Change("a limit that an owner set: raised", limits_of(lambda d, p: p.member_id), f"PATCH {MEMBER}/limit",
               lambda d, p: {"usageLimit": "9"}, prepare=limit_by_owner, wanted={"limits": True}, in_team=True),
        Change("limits of a developer's key", limits_of(lambda d, p: p.key.info.id), "PATCH /keys/api/limit/<key_id>",
               lambda d, p: {"usageLimit": "9"}),
        Change("limits of an owner's key", limits_of(lambda d, p: p.key.info.id), "PATCH /keys/api/limit/<key_id>",
               lambda d, p: {"usageLimit": "9"}, of=OWNER),
        Change("limits of a team", limits_of(lambda d, p: d.team), f"PATCH {ORG}/teams/<team_id>/limit",
               lambda d, p: {"usageLimit": str(9 + int(d.database.now_us() % 1000))}),
        Change("limits of a team that an owner set: raised", limits_of(lambda d, p: d.team),
               f"PATCH {ORG}/teams/<team_id>/limit", lambda d, p: {"usageLimit": "9"}, prepare=limit_team(OWNER)),
        Change("a limit of any subject: set", SUM_OF_LIMITS, f"PUT {ANY_LIMIT}", lambda d, p: any_limit(d, "5")),
        Change("a limit of any subject that an admin set: raised for a time", SUM_OF_LIMITS, f"PUT {ANY_LIMIT}/raise",
               lambda d, p: {"amount": "2", "until": FAR}, prepare=set_any_limit(ADMIN)),
        Change("a limit of any subject that an owner set: raised for a time", SUM_OF_LIMITS, f"PUT {ANY_LIMIT}/raise",
               lambda d, p: {"amount": "2", "until": FAR}, prepare=set_any_limit(OWNER)),
        Change("a limit of any subject that an owner set: raised", SUM_OF_LIMITS, f"PUT {ANY_LIMIT}",
               lambda d, p: any_limit(d, "9"), prepare=set_any_limit(OWNER)),
        Change("a limit of any subject that an owner set: deleted", SUM_OF_LIMITS, f"DELETE {ANY_LIMIT}",
               prepare=set_any_limit(OWNER)),
        Change("caps on active keys", value("SELECT max_keys FROM organization WHERE id = ?"), f"PATCH {ORG}/key-caps",
               lambda d, p: {"maxKeys": 100_000 + int(d.database.now_us() % 1000)}),
        Change("credits", count("ledger"), f"POST {ORG}/credits", lambda d, p: {"amount": "5"}),
    ),
    "A key of another": (
        Change("status of a developer's key", of_key("status"), f"PATCH {KEY}", lambda d, p: {"status": "inactive"}),
        Change("status of an owner's key", of_key("status"), f"PATCH {KEY}", lambda d, p: {"status": "inactive"},
               of=OWNER),
        Change("status of a key that an owner deactivated", of_key("status"), f"PATCH {KEY}",
               lambda d, p: {"status": "active"}, prepare=change_key_by_owner({"status": "inactive"})),
        Change("an expiry that an owner set: extended", of_key("expires_at"), f"PATCH {KEY}",
               lambda d, p: {"expiresAt": None}, prepare=change_key_by_owner({"expiresAt": FAR})),
        Change("token of a developer's key", of_key("token_hash"), f"POST {KEY}/roll"),
        Change("token of an owner's key", of_key("token_hash"), f"POST {KEY}/roll", of=OWNER),
        Change("deletion of a developer's key", of_key("status"), f"DELETE {KEY}", wanted={"removed": True}),
        Change("deletion of an owner's key", of_key("status"), f"DELETE {KEY}", of=OWNER, wanted={"removed": True}),
        Change("deletion of a developer's key that a limit of an owner names", of_key("status"), f"DELETE {KEY}",
               prepare=limit_named(lambda d, p: f"key={p.key.info.id}")),
        Change("access rules of a developer's key", count("access_rule"), f"POST {KEY}/iam",
               lambda d, p: {**RULE, "status": "inactive"}),
        Change("access rules of an owner's key", count("access_rule"), f"POST {KEY}/iam",
               lambda d, p: {**RULE, "status": "inactive"}, of=OWNER),
        Change("an access rule that an owner added: removed", count("access_rule"), f"DELETE {KEY}/iam/<rule_id>",
               prepare=restrict_key),
        Change("rate limits of a developer's key", count("rate_limit"), f"PATCH {KEY}/rate-limits",
               lambda d, p: {"requestsPerMinute": 5_000}),
        Change("rate limits of an owner's key", count("rate_limit"), f"PATCH {KEY}/rate-limits",
               lambda d, p: {"requestsPerMinute": 5_000}, of=OWNER),
        Change("a rate limit that an owner set: raised", count("rate_limit"), f"PATCH {KEY}/rate-limits",
               lambda d, p: {"requestsPerMinute": None},
               prepare=limit_by(f"{KEY}/rate-limits", {"requestsPerMinute": 5})),
        Change("a budget of sessions that an owner set: raised", count("session_budget"), f"PATCH {KEY}/session-budget",
               lambda d, p: {"sessionBudget": None},
               prepare=limit_by(f"{KEY}/session-budget", {"sessionBudget": "5"})),
    ),
    "The organization": (
        Change("name", value("SELECT name FROM organization WHERE id = ?"), f"PATCH {ORG}",
               lambda d, p: {"name": f"Acme {d.database.now_us()}"}),
        Change("compliance policy", value("SELECT policy FROM organization WHERE id = ?"), f"PUT {ORG}/policy",
               lambda d, p: {"requireGdpr": "true" not in str(value(POLICY)(d, p))}),
        Change("access rules", count("access_rule"), f"POST {ORG}/iam",
               lambda d, p: {**BODIES["PlacedRule"](d.owner), "status": "inactive"}),
        Change("projects", count("project"), "POST /projects",
               lambda d, p: {"organizationId": d.id, "name": f"P {d.database.now_us()}"}),
        Change("a project's settings", value("SELECT SUM(cache_ttl_s) FROM project WHERE organization_id = ?"),
               "PATCH /projects/<project_id>", lambda d, p: {"cacheDurationSeconds": 10 + d.database.now_us() % 10**6}),
        Change("a project: archived", count("project", "status = 'archived'"), "PATCH /projects/<project_id>",
               lambda d, p: {"status": "archived"}),
        Change("a project: archived, where a limit of an owner names it", count("project", "status = 'archived'"),
               "PATCH /projects/<project_id>", lambda d, p: {"status": "archived"},
               prepare=limit_named(lambda d, p: f"project={d.owner.project_id}")),
        Change("teams: deleted", count("team"), f"DELETE {ORG}/teams/<team_id>"),
        Change("teams: deleted, where an owner set limits", count("team"), f"DELETE {ORG}/teams/<team_id>",
               prepare=limit_team(OWNER)),
        Change("teams: deleted, where an owner set a limit of any subject", count("team"),
               f"DELETE {ORG}/teams/<team_id>", prepare=set_any_limit(OWNER)),
        Change("provider keys", count("provider_key"), "POST /keys/provider",
               lambda d, p: BODIES["NewProviderKey"](d.owner)),
        Change("invitation of a developer", count("invitation"), f"POST {ORG}/invitations",
               lambda d, p: {"email": f"{p.member_id}@new.example"}),
        Change("invitation of an admin", count("invitation"), f"POST {ORG}/invitations",
               lambda d, p: {"email": f"{p.member_id}@new.example", "role": ADMIN}),
        Change("invitation of an owner", count("invitation"), f"POST {ORG}/invitations",
               lambda d, p: {"email": f"{p.member_id}@new.example", "role": OWNER}),
        Change("service accounts", count("service_account"), f"POST {ORG}/service-accounts",
               lambda d, p: {"name": p.member_id, "scopes": ["keys:read"]}),
        Change("SCIM tokens that change no owners", count("scim_token", "by_owner = FALSE"), f"POST {ORG}/scim/tokens",
               lambda d, p: {"name": "x"}),
        Change("SCIM tokens that change owners", count("scim_token", "by_owner = TRUE"), f"POST {ORG}/scim/tokens",
               lambda d, p: {"name": "x"}),
        Change("identity providers", count("identity_provider"), f"POST {ORG}/identity-providers",
               lambda d, p: {**BODIES["NewProvider"](d.owner), "forOwners": False}),
        Change("identity providers for owners", count("identity_provider"), f"POST {ORG}/identity-providers",
               lambda d, p: {**BODIES["NewProvider"](d.owner), "forOwners": True}),
        Change("group rules", count("group_rule"), f"POST {ORG}/group-rules",
               lambda d, p: {"group": f"r-{p.member_id}", "role": ADMIN}),
        Change("group rules that make owners", count("group_rule"), f"POST {ORG}/group-rules",
               lambda d, p: {"group": f"r-{p.member_id}", "role": OWNER, "source": "scim"}),
        Change("required single sign-on", value("SELECT sso_required FROM organization WHERE id = ?"), f"PUT {ORG}/sso",
               lambda d, p: {"required": False},
               prepare=lambda d, p: d.database.write(
                   Organization.update(sso_required=True, break_glass=d.owner.member_id)
                   .where(Organization.id == d.id).execute)),
    ),
}  # fmt: skip
