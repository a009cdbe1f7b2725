"""Call every route with every kind of credential and compare with docs/permissions.md (`make pages` writes it)."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.management import Tenants
from support.management_bodies import VARIABLE, allow, furnish
from support.route_calls import ids_for, is_let_in, make_key, order, send
from werkzeug.test import Client

from gateway.accounts import keys, members
from gateway.accounts.keys import Change, Draft
from gateway.callers.models import ScopedRole
from gateway.callers.permissions import COLUMNS, PROJECT_ADMIN, TABLE, TEAM_LEAD
from gateway.callers.scopes import audience_at
from gateway.configuration.settings import ROOT
from gateway.errors import GatewayError
from gateway.limits.budgets import Limits
from gateway.oauth.grant_values import Consent
from gateway.surfaces import surface_table
from gateway.surfaces.management import table as management
from gateway.surfaces.management.managed_operation import ManagedOperation

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "permissions.md"
SESSIONS = ("developer", "admin", "owner")
# People who are viewers in the organization, with a role in a part of it.
PARTS = {TEAM_LEAD: "team_id", PROJECT_ADMIN: "project_id"}
ADDED = ("viewer", "billing", *PARTS)
METRICS_TOKEN = "an operator's token of some length"
HEAD = """# Permissions of each route

This table shows which credentials each route accepts: ● means accepted, · means refused (401, 403, or a redirect to the
sign-in page). Keys and sessions belong to the organization that the route names; a stranger's session to another
organization. The operator is an owner of the first organization. The metrics token is the value of
`GATEWAY_METRICS_TOKEN`. For some routes, the permissions of developers depend on the owner of the key or request
([roles](management.md#roles)); in this table it is the developer. The columns team lead and project admin are those of
viewers with this role in the team or project that the route names. Routes below `/scim`
accept [SCIM tokens](scim.md) only. [Access rules](access-rules.md) restrict models, providers and prices. A test
generates this page, and fails if a route is missing.

## Permissions of roles

Each operation asks one row of this table, and so does each page of the [console](console.md) and each command of the
[client](cli.md): ● means that the role has the permission in the whole organization, *own* for own keys and requests,
*team* and *project* in the team or project of which the person is the lead or an admin, and · not at all.
[Roles](management.md#roles) explains them, and [who may change what](authority.md) which roles a person may give.

@MATRIX@
## Scopes of service accounts

The last column is the scope with which the token of a [service account](management.md#service-accounts) is accepted;
any other scope is refused (403 `scope_missing`). Operations with a – are for people only, because a service account
could otherwise give itself, or a person, more than it has. Other routes refuse these tokens. Within its scopes a
service account may do what an admin of its organization may, with these exceptions: it invites, changes and removes
developers only, changes only API keys of developers and service accounts, and changes no access rules of
service accounts.

## Routes

"""


class Credentials:
    """One of each kind; whatever a call may have ended is made anew."""

    def __init__(self, tenants: Tenants) -> None:
        self._owner, services = tenants, tenants.services
        owner = tenants["acme owner"]
        services.billing.ledger.grant(owner.organization_id, 10**9, "access")

        def make(kind: Any, who: str) -> str:
            person = tenants[f"acme {who}"]
            draft = Draft(person.project_id, person.member_id, kind, kind)
            return services.management.create_key(draft, Limits(), actor=person.user_id).token

        inactive = services.management.create_key(
            Draft(owner.project_id, owner.member_id, "Off", "user"), Limits(), actor=owner.user_id
        )
        services.management.update_key(inactive.info, Change("deactivate"), actor=owner.user_id)
        self.keys = {
            "no credential": "",
            "unknown key": "llmgtwy_" + "0" * 40,
            "inactive key": inactive.token,
            "customer key": make("customer", "developer"),
            "developer's key": make("user", "developer"),
            "owner's key": make("user", "owner"),
            "metrics token": METRICS_TOKEN,
        }

        self._people = {"stranger": tenants["rival owner"].user_id}
        self._parts = {}
        for role in ADDED:
            stores = services.store.database, services.store.control
            email = f"{role.replace(' ', '-')}@acme.example"
            kind = "viewer" if role in PARTS else role
            member = members.add_member(*stores, owner.organization_id, email, kind, actor="operator")
            self._people[role] = member.user_id
            self._parts[role] = member.id
        self._people |= {role: tenants[f"acme {role}"].user_id for role in SESSIONS}
        self._people["operator"] = tenants.operator_id
        self._sessions: dict[str, str] = {}

    def appoint(self, things: dict[str, str]) -> None:
        """Give the roles in a part of the organization again, which an operation may have ended."""
        database = self._owner.services.store.database
        for role, variable in PARTS.items():
            given = ScopedRole.insert(scope_id=things[variable], member=self._parts[role], created_at=1)
            database.write(given.on_conflict_ignore().execute)

    def each(self) -> Iterator[tuple[str, str]]:
        """Name and token of every credential for one operation."""
        yield from self.keys.items()
        for name, user in self._people.items():
            if not self._is_signed_in(name):
                self._sessions[name] = self._owner.open(user)
            yield name, self._sessions[name]

    def _is_signed_in(self, name: str) -> bool:
        try:
            self._owner.services.management.sessions.find(self._sessions[name])
        except (KeyError, GatewayError):
            return False
        return True


@pytest.fixture(scope="module")
def lines(make_tenants: Callable[..., Any]) -> Iterator[dict[str, dict[str, bool]]]:
    """Map each route and credential to whether access is granted."""
    with make_tenants(GATEWAY_METRICS_TOKEN=METRICS_TOKEN) as gateway:
        tenants = Tenants(gateway)
        things, credentials = furnish(tenants, "acme"), Credentials(tenants)
        owner = tenants["acme owner"]
        team = f"/orgs/{owner.organization_id}/teams/{things['team_id']}/members/{things['member_id']}"
        tenants.ok("PUT", team, owner)
        things["developer_key"] = make_key(tenants)
        things["application_id"] = allow(tenants, tenants["acme developer"])
        lanes = (Client(gateway.app.flask, use_cookies=False), Client(gateway.app, use_cookies=False))
        found: dict[str, dict[str, bool]] = {}
        for operation in sorted(surface_table.operations(), key=order):
            row = found[f"{operation.method} {operation.path}"] = {}
            target = tenants["acme owner"]
            for name, token in credentials.each():
                credentials.appoint(things)
                ids = ids_for(tenants, things, operation)
                told = [send(lane, operation, ids, target, token) for lane in (lanes if operation.hot else lanes[:1])]
                assert len({status for status, _, _ in told}) == 1, (operation.path, name, told)
                assert told[0][0] < 500, (operation.path, name, told)
                row[name] = is_let_in(*told[0], name == "stranger" and "<" in operation.path)
        yield found


def write(lines: dict[str, dict[str, bool]]) -> str:
    """Return the page. `test_scope_matrix.py` calls each operation with each scope."""
    columns = list(next(iter(lines.values())))
    scopes = {
        f"{row.method} {row.path}": row.scope for row in management.OPERATIONS if isinstance(row, ManagedOperation)
    }
    rows = [f"| Route | {' | '.join(columns)} | Scope |", f"|---|{':-:|' * len(columns)}---|"]
    for route in sorted(lines, key=lambda name: (name.partition(" ")[2], name)):
        marks = " | ".join("●" if lines[route][column] else "·" for column in columns)
        scope = ""
        if route in scopes:
            scope = f"`{scopes[route]}`" if scopes[route] else "–"
        rows.append(f"| `{route}` | {marks} | {scope} |")
    return HEAD.replace("@MATRIX@", write_matrix()) + "\n".join(rows) + "\n"


def write_matrix() -> str:
    """Return the table of permissions and roles."""
    marks = {"all": "●", "": "·"}
    rows = [f"| Permission | {' | '.join(COLUMNS)} | Allows to |", f"|---|{':-:|' * len(COLUMNS)}---|"]
    for name, row in TABLE.items():
        reaches = (row.reach(role) for role in COLUMNS)
        cells = " | ".join(marks.get(reach, f"*{reach}*") for reach in reaches)
        rows.append(f"| `{name}` | {cells} | {row.text} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_access_is_what_the_gateway_does(lines: dict[str, dict[str, bool]]) -> None:
    text = write(lines)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


def test_management_routes_refuse_keys_and_missing_credentials(lines: dict[str, dict[str, bool]]) -> None:
    for operation in surface_table.operations():
        if operation.about is not None and operation.about.access == "session":
            row = lines[f"{operation.method} {operation.path}"]
            assert not any(row[name] for name in row if "key" in name or name == "no credential"), operation.path


# A report without its project is refused before the person is checked; the request is the owner's, so that developers
# do not reach it, and so are job and file, views, their subscriptions and shared links. Leads raise limits of their
# teams; that of the table is the organization's.
OTHERWISE = {
    "GET /projects/<project_id>/files/<file_id>/content",
    "GET /projects/<project_id>/jobs/<job_id>/content",
    "GET /projects/<project_id>/jobs/<job_id>/errors",
    "POST /projects/<project_id>/jobs/<job_id>/cancel",
    "DELETE /orgs/<organization_id>/shares/<share_id>",
    "DELETE /orgs/<organization_id>/views/<view_id>",
    "PATCH /orgs/<organization_id>/view-subscriptions/<subscription_id>",
    "PATCH /orgs/<organization_id>/views/<view_id>",
    "POST /orgs/<organization_id>/view-subscriptions/<subscription_id>/send",
    "DELETE /logs/<log_id>",
    "GET /activity/sources",
    "GET /logs/<log_id>",
    "GET /orgs/<organization_id>/limits/<limit_id>/requests",
    "PUT /orgs/<organization_id>/limits/<limit_id>/raise",
    "PUT /orgs/<organization_id>/limits/<limit_id>/requests/<request_id>",
}


def test_each_operation_admits_the_roles_of_its_permission(lines: dict[str, dict[str, bool]]) -> None:
    rows = [row for row in management.OPERATIONS if isinstance(row, ManagedOperation)]
    differing = {}
    for row in rows:
        permission = TABLE[row.action.who.permission]
        name = f"{row.method} {row.path}"
        for role in (*SESSIONS, *ADDED):
            held = ("viewer", role) if role in PARTS else (role,)
            if lines[name][role] != any(permission.reach(one) for one in held):
                differing.setdefault(name, []).append(role)
    assert differing.keys() == OTHERWISE, differing


def test_only_operators_operate_the_installation(lines: dict[str, dict[str, bool]]) -> None:
    for row in management.OPERATIONS:
        if isinstance(row, ManagedOperation) and row.action.who.permission == "installation:operate":
            found = lines[f"{row.method} {row.path}"]
            assert [role for role in (*SESSIONS, *ADDED, "operator") if found[role]] == ["operator"], row.path


def test_paid_routes_refuse_all_but_active_keys(lines: dict[str, dict[str, bool]]) -> None:
    for operation in (operation for operation in surface_table.operations() if operation.paid):
        row = lines[f"{operation.method} {operation.path}"]
        assert [name for name, good in row.items() if good] == ["customer key", "developer's key", "owner's key"]


def make_dead(tenants: Tenants) -> dict[str, str]:
    """Credentials that were valid or are valid elsewhere, and a live access token, which is valid on /mcp alone."""
    owner, services = tenants["acme owner"], tenants.services
    stores = services.store.database, services.store.control

    def key(name: str, **more: Any) -> keys.NewKey:
        draft = Draft(owner.project_id, owner.member_id, name, **more)
        return services.management.create_key(draft, Limits(), actor=owner.user_id)

    def token(made: keys.NewKey, base: str = "http://localhost") -> str:
        asked = Consent("c", "An app", "", "", "", "mcp:tools", f"{base}/mcp", made.info.id, owner.user_id)
        return services.accounts.oauth.grants.issue_for_key(asked).access

    rolled, deleted, live = key("rolled"), key("deleted"), key("live")
    over = key("expired", expires_at_us=services.store.database.now_us() + 50_000_000)
    dead = {
        "rolled key": rolled.token,
        "expired key": over.token,
        "token of a rolled key": token(rolled),
        "token of a deleted key": token(deleted),
        "token for another address": token(live, "https://elsewhere.example"),
        "token": token(live),
    }
    services.management.roll_key(rolled.info.id, actor=owner.user_id)
    keys.delete(*stores, deleted.info.id, actor=owner.user_id)
    sql = "UPDATE api_key SET expires_at = 1 WHERE id = ?"
    services.store.database.write(lambda: services.store.database.execute(sql, (over.info.id,)))
    return dead


@pytest.mark.extended
def test_credentials_that_ended_and_tokens_elsewhere_get_what_an_unknown_key_gets(
    make_tenants: Callable[..., Any],
) -> None:
    with make_tenants(GATEWAY_METRICS_TOKEN=METRICS_TOKEN) as gateway:
        tenants = Tenants(gateway)
        things = furnish(tenants, "acme")
        dead = make_dead(tenants)
        target = tenants["acme owner"]
        things["developer_key"] = make_key(tenants)
        client = Client(gateway.app.flask, use_cookies=False)
        hidden = {target.organization_id, target.project_id, target.key.info.id, "owner@acme.example"}
        for operation in surface_table.operations():
            # Another test covers the limit on repeated attempts within one minute.
            tenants.services.store.database.write(
                lambda: tenants.services.store.database.execute("DELETE FROM attempt")
            )
            ids = {**things, "key_id": things["developer_key"]}
            unknown = send(client, operation, ids, target, "llmgtwy_" + "0" * 40)
            for name, token in dead.items():
                if operation.path == "/mcp" and name == "token":
                    continue
                takes_tokens = bool(audience_at(operation.path, "http://localhost"))
                status, code, _ = told = send(client, operation, ids, target, token)
                wanted = (unknown[0], unknown[1].replace("invalid_api_key", "invalid_token"))
                assert told[:2] == unknown[:2] or (takes_tokens and told[:2] == wanted), (operation, name)
                if operation.about is not None and operation.about.access in ("key", "session"):
                    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                    path = VARIABLE.sub(lambda found, ids=ids: ids.get(found[1], "unknown"), operation.path)
                    text = client.open(path, method=operation.method, headers=headers, data=b"{}").text
                    assert status in (401, 405) and not [one for one in hidden if one in text], (operation, name, code)
