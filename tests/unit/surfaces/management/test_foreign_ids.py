"""Ids of others in each operation of the management table: of another organization, of another object of the same
organization, and of a member with another role. The cases follow from the table, so that new operations are tried."""

import re
from typing import Any

import pytest
from support.management import Tenants
from support.management_bodies import BODIES, VARIABLE, fill_path, furnish, title

from gateway.callers.models import User
from gateway.callers.rule_values import SCOPES
from gateway.surfaces.management.access_groups import in_organization, in_project
from gateway.surfaces.management.managed_operation import ManagedOperation
from gateway.surfaces.management.table import OPERATIONS

MANAGED = [row for row in OPERATIONS if isinstance(row, ManagedOperation)]
# Variables that are no ids: organizations may have custom providers, limits and routes with the same names.
NO_IDS = frozenset(("name", "scope", "subject", "limit_id", "route_name"))
# Fields with names like those of ids: the client chose the first, and the second is at the identity provider.
CHOSEN = frozenset(("clientId", "client_id", "requestId"))
FIELDS = {
    "projectId": "project_id",
    "organizationId": "organization_id",
    "teamId": "team_id",
    "teamIds": "team_id",
    "memberId": "member_id",
    "groupRuleId": "group_rule_id",
    "breakGlassMemberId": "owner_id",
    "apiKeyId": "key_id",
    "userId": "user_id",
    "viewId": "view_id",
    "hookId": "hook_id",
}
SCOPED = {"organization": "organization_id", "team": "team_id", "member": "member_id", "key": "key_id",
          "service_account": "account_id", "project": "project_id"}  # fmt: skip
# Members without which a body's id has no effect.
NEEDED = {"breakGlassMemberId": {"required": True}}
# A team takes any member, so its members do not belong to its path.
INDEPENDENT = (
    "/orgs/<organization_id>/teams/<team_id>/members/<member_id>",
    "/orgs/<organization_id>/teams/<team_id>/leads/<member_id>",
    "/projects/<project_id>/admins/<member_id>",
)


@pytest.fixture(scope="module")
def things(module_tenants: Tenants) -> dict[str, dict[str, str]]:
    """Ids of one thing of each kind in each organization; "other" are second ones of what others belong to."""
    found = {}
    for name in ("acme", "rival"):
        owner = module_tenants[f"{name} owner"]
        found[name] = {**furnish(module_tenants, name), "user_id": owner.user_id, "owner_id": owner.member_id}
        providers = f"/orgs/{owner.organization_id}/identity-providers"
        second = module_tenants.ok("POST", providers, owner, BODIES["NewProvider"](owner))["identityProvider"]
        module_tenants.ok("PATCH", f"{providers}/{second['id']}", owner, {"status": "active"})
        has_password = User.update(password_hash="x").where(User.id == owner.user_id)
        module_tenants.services.store.database.write(has_password.execute)
        guardrails = f"/orgs/{owner.organization_id}/guardrails"
        guardrail = module_tenants.ok("POST", guardrails, owner, BODIES["NewGuardrail"](owner))["guardrail"]
        second_project = {"organizationId": owner.organization_id, "name": "Second"}
        found["other"] = {
            "project_id": module_tenants.ok("POST", "/projects", owner, second_project)["project"]["id"],
            "provider_id": second["id"],
            "key_id": module_tenants[f"{name} colleague"].key.info.id,
            "guardrail_id": guardrail["id"],
        }
    return found


def variables(operation: ManagedOperation) -> list[str]:
    return [name for name in VARIABLE.findall(operation.path) if name not in NO_IDS]


def fill(path: str, ids: dict[str, str]) -> str:
    if path.startswith("/keys/provider"):
        ids = {**ids, "key_id": ids["provider_key"]}
    return fill_path(path, ids)


def body_of(operation: ManagedOperation, person: Any) -> Any:
    request = operation.about.request
    if request is None:
        return None
    return BODIES[request.__name__](person)


def id_fields(schema: type | None) -> list[str]:
    if schema is None:
        return []
    names = [field.data_key or name for name, field in schema().fields.items()]
    return [name for name in names if re.search(r"(Id|Ids|_id)$", name) and name not in CHOSEN]


SEVERAL = [(row, name) for row in MANAGED for name in variables(row) if len(variables(row)) > 1]


@pytest.mark.parametrize("operation, variable", SEVERAL, ids=title)
def test_an_id_of_another_organization_is_unknown_in_the_own_path(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation, variable: str
) -> None:
    owner = shared_tenants["rival owner"]
    ids = {**things["rival"], variable: things["acme"][variable]}
    status, answer = shared_tenants.call(operation.method, fill(operation.path, ids), owner, body_of(operation, owner))
    assert status in (403, 404), answer


SENT = [(row, name) for row in MANAGED for name in id_fields(row.about.request)]


def foreign(name: str, ids: dict[str, str], schema: Any) -> list[dict[str, Any]]:
    """Return the members of a body or a query that name something by the ids."""
    if name == "scopeId":
        scopes = getattr(schema().fields["scope"], "choices", SCOPES)
        return [{"scope": scope, "scopeId": ids[SCOPED[scope]]} for scope in scopes]
    value: Any = ids[FIELDS[name]]
    if name.endswith("Ids"):
        value = [value]
    return [{name: value, **NEEDED.get(name, {})}]


@pytest.mark.parametrize("operation, name", SENT, ids=title)
def test_an_id_of_another_organization_is_unknown_in_a_body(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation, name: str
) -> None:
    owner = shared_tenants["rival owner"]
    for members in foreign(name, things["acme"], operation.about.request):
        body = {**body_of(operation, owner), **members}
        path = fill(operation.path, things["rival"])
        status, answer = shared_tenants.call(operation.method, path, owner, body)
        unknown = status == 400 and answer["param"] in (name, "scope")  # or a scope that it does not have
        assert status in (403, 404) or unknown, (members, answer)


def _rows_of(answer: Any) -> list[Any]:
    """Return the rows of a CSV file without its titles, or the members of an object."""
    if isinstance(answer, str):
        return answer.splitlines()[1:]
    if isinstance(answer, dict):
        return list(answer.values())
    return answer


ASKED = [(row, name) for row in MANAGED for name in id_fields(row.about.query)]


@pytest.mark.parametrize("operation, name", ASKED, ids=title)
def test_an_id_of_another_organization_finds_nothing_in_a_query(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation, name: str
) -> None:
    owner = shared_tenants["rival owner"]
    for members in foreign(name, things["acme"], operation.about.query):
        query = "&".join(f"{field}={value}" for field, value in members.items())
        path = f"{fill(operation.path, things['rival'])}?{query}"
        status, answer = shared_tenants.call(operation.method, path, owner)
        if status < 300:
            assert not any(_rows_of(answer)), (members, answer)
        else:
            assert status in (403, 404), (members, answer)


@pytest.mark.parametrize("operation, name", ASKED, ids=title)
def test_a_developer_who_made_no_requests_finds_none_by_the_ids_of_others(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation, name: str
) -> None:
    owner = shared_tenants["acme owner"]
    developer = shared_tenants["acme developer"]
    for members in foreign(name, things["acme"], operation.about.query):
        query = "&".join(f"{field}={value}" for field, value in members.items())
        path = f"{fill(operation.path, things['acme'])}?{query}"
        status, answer = shared_tenants.call(operation.method, path, developer)
        assert status in (200, 403), (members, answer)
        shown = str(answer)
        assert not [one for one in (owner.user_id, owner.key.info.id, things["acme"]["log_id"]) if one in shown]
        assert "'requestCount': 1" not in shown


NESTED = [row for row in MANAGED if len(set(variables(row)) - {"organization_id"}) > 1 and row.path not in INDEPENDENT]


@pytest.mark.parametrize("operation", NESTED, ids=title)
def test_an_id_below_another_object_of_the_organization_is_unknown(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation
) -> None:
    owner = shared_tenants["rival owner"]
    *_, above, _ = variables(operation)
    ids = {**things["rival"], above: things["other"][above]}
    status, answer = shared_tenants.call(operation.method, fill(operation.path, ids), owner, body_of(operation, owner))
    assert status == 404, answer


FOR_MEMBERS = (in_organization("organization:read"), in_organization("projects:read"), in_project("projects:read"))
# A member with usage under a limit may request more, and all usage counts under the limit of the organization. Each
# member has views, subscriptions and links, and lists those.
ASKED_BY_MEMBERS = (
    "POST /orgs/<organization_id>/limits/<limit_id>/requests",
    "GET /orgs/<organization_id>/views",
    "POST /orgs/<organization_id>/views",
    "GET /orgs/<organization_id>/view-subscriptions",
    "GET /orgs/<organization_id>/shares",
)
PLACED = [
    row
    for row in MANAGED
    if variables(row) and row.action and row.action.who not in FOR_MEMBERS and title(row) not in ASKED_BY_MEMBERS
]


@pytest.mark.parametrize("operation", PLACED, ids=title)
def test_a_developer_reaches_nothing_of_others(
    shared_tenants: Tenants, things: dict[str, dict[str, str]], operation: ManagedOperation
) -> None:
    developer = shared_tenants["acme developer"]
    path = fill(operation.path, things["acme"])
    status, answer = shared_tenants.call(operation.method, path, developer, body_of(operation, developer))
    assert status in (403, 404), answer
