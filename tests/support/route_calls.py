"""Calls of every route with one credential, for tests that write tables of what each credential may do."""

from typing import Any

import orjson
from support.management import Tenants
from support.management_bodies import BODIES, VARIABLE
from werkzeug.test import Client

from gateway.accounts import keys
from gateway.limits.budgets import Limits
from gateway.surfaces.web.http import Operation

REFUSED = frozenset(
    ("invalid_api_key", "session_invalid", "permission_denied", "metrics_token", "scope_missing", "invalid_scim_token")
)
LAST = ("PATCH /projects/<project_id>", "DELETE /projects/<project_id>", "DELETE /orgs/<organization_id>")


def order(operation: Operation) -> tuple[int, bool, str]:
    """Sort operations that remove resources last, so that the others still find them."""
    name = f"{operation.method} {operation.path}"
    return LAST.index(name) + 1 if name in LAST else 0, operation.method == "DELETE", name


def ids_for(tenants: Tenants, things: dict[str, str], operation: Operation) -> dict[str, str]:
    """The things of the organization; what a call may take away is made for it."""
    things = {**things, "response_id": "resp_" + "0" * 32}
    if operation.path.startswith("/docs/"):
        return {**things, "name": "limits"}
    if "<key_id>" not in operation.path or operation.path.startswith("/keys/provider"):
        return {**things, "key_id": things["provider_key"]}
    if operation.method == "GET":
        return {**things, "key_id": things["developer_key"]}
    return {**things, "key_id": make_key(tenants)}


def make_key(tenants: Tenants) -> str:
    """The id of one more key of the developer."""
    developer = tenants["acme developer"]
    draft = keys.Draft(developer.project_id, developer.member_id, "Short-lived")
    return tenants.services.management.create_key(draft, Limits(), actor=developer.user_id).info.id


def send(client: Client, operation: Operation, ids: dict[str, str], target: Any, token: str) -> tuple[int, str, str]:
    """Status, code of the error and where it leads."""
    path = VARIABLE.sub(lambda found: ids.get(found[1], "unknown"), operation.path)
    schema = operation.about.request if operation.about else None
    make_body = BODIES.get(getattr(schema, "__name__", ""))
    body = make_body(target) if make_body else {}
    if "role" in body:
        body = {**body, "role": "developer"}  # only an owner makes owners, which is another table's matter
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data: Any = None
    if operation.path.startswith(("/console", "/sso", "/oauth/authorize")):
        headers = {"Cookie": f"llmgateway.session_token={token}", "Origin": "http://localhost"} if token else {}
        headers["Origin"] = "http://localhost"
        data = {} if operation.method == "POST" else None
    elif operation.method != "GET":
        headers["Content-Type"], data = "application/json", orjson.dumps(body)
    answer = client.open(path, method=operation.method, headers=headers, data=data)
    try:
        said = orjson.loads(answer.data)
        inner = said.get("error") if isinstance(said, dict) else None
        inner = inner.get("data", inner) if isinstance(inner, dict) else said  # of JSON-RPC it stands in there
        code = inner.get("code", "")
        if operation.path.startswith("/scim/") and answer.status_code == 401:
            code = "invalid_scim_token"  # errors of SCIM have no code
        if isinstance(code, int):  # the HTTP status, in Gemini's errors
            code = inner["details"][0]["metadata"]["code"]
    except (orjson.JSONDecodeError, AttributeError):
        # A page has no error code.
        code = "permission_denied" if answer.status_code == 403 and operation.method == "GET" else ""
    return answer.status_code, code, answer.headers.get("Location", "")


def is_let_in(status: int, code: str, location: str, stranger: bool) -> bool:
    if stranger and status == 404:
        return False  # a 404 also hides that another organization has the resource
    return code not in REFUSED and "/console/login" not in location
