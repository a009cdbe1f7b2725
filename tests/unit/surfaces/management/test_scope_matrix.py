"""Call every management operation with each scope. docs/permissions.md lists the scope of each operation."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.management import Tenants
from support.management_bodies import furnish
from support.route_calls import ids_for, is_let_in, make_key, order, send
from werkzeug.test import Client

from gateway.accounts.service_accounts import ServiceAccountDraft
from gateway.callers.permissions import TABLE
from gateway.surfaces import surface_table
from gateway.surfaces.management import table as management
from gateway.surfaces.management.access_groups import SCOPES
from gateway.surfaces.management.managed_operation import ManagedOperation

pytestmark = pytest.mark.slow

# Permissions of owners and operators alone.
FOR_OWNERS = {name for name, row in TABLE.items() if row.roles in ((), ("owner",)) and not row.signed_in}
ROWS = tuple(row for row in management.OPERATIONS if isinstance(row, ManagedOperation))


def name_of(row: ManagedOperation) -> str:
    return f"{row.method} {row.path}"


@pytest.fixture(scope="module")
def matrix(make_tenants: Callable[..., Any]) -> Iterator[dict[str, set[str]]]:
    """Map each operation to the scopes with which it is accepted."""
    with make_tenants(GATEWAY_LIMITS_MAX_CHANGES="0") as gateway:
        tenants = Tenants(gateway)
        things = furnish(tenants, "acme")
        things["developer_key"] = make_key(tenants)
        owner = tenants["acme owner"]
        accounts = tenants.services.management.service_accounts
        tokens: dict[str, str] = {}
        for scope in SCOPES:
            draft = ServiceAccountDraft(scope, [scope])
            tokens[scope] = accounts.create(owner.organization_id, draft, actor=owner.user_id).token
        things["account_id"] = accounts.list_accounts(owner.organization_id)[0].id
        client = Client(gateway.app.flask, use_cookies=False)
        matrix: dict[str, set[str]] = {}
        for row in sorted(ROWS, key=order):
            accepted = matrix[name_of(row)] = set()
            for scope, token in tokens.items():
                ids = ids_for(tenants, things, row)
                status, code, location = send(client, row, ids, owner, token)
                assert status < 500, (row.path, scope, code)
                # A refusal for another reason than the scope comes after the check of the scope.
                if is_let_in(status, code, location, False) or code == "permission_denied":
                    accepted.add(scope)
        yield matrix


def test_each_operation_is_allowed_by_the_scope_of_its_row_alone(matrix: dict[str, set[str]]) -> None:
    for row in ROWS:
        assert matrix[name_of(row)] == ({row.scope} if row.scope else set()), row.path


def test_every_scope_allows_an_operation() -> None:
    assert {row.scope for row in ROWS if row.scope} == set(SCOPES)


def test_read_scopes_allow_no_changes() -> None:
    # They only try rules on a text, and check a document, that they are sent.
    harmless = ["POST /orgs/<organization_id>/guardrails/test", "POST /orgs/<organization_id>/routes/check"]
    harmless.append("POST /orgs/<organization_id>/routes/simulation")
    changing = [name_of(row) for row in ROWS if row.method != "GET" and row.scope.endswith(":read")]
    assert changing == harmless


def test_operations_of_owners_and_operators_have_no_scope() -> None:
    for row in ROWS:
        if row.action is not None and row.action.who.permission in FOR_OWNERS:
            assert row.scope == "", row.path


def test_tokens_of_service_accounts_open_nothing_but_the_management_api(make_tenants: Callable[..., Any]) -> None:
    with make_tenants() as gateway:
        tenants = Tenants(gateway)
        things = furnish(tenants, "acme")
        things["developer_key"] = make_key(tenants)
        owner = tenants["acme owner"]
        accounts = tenants.services.management.service_accounts
        draft = ServiceAccountDraft("all", SCOPES)
        token = accounts.create(owner.organization_id, draft, actor=owner.user_id).token
        client = Client(gateway.app.flask, use_cookies=False)
        for operation in surface_table.operations():
            if isinstance(operation, ManagedOperation) or operation.path.startswith("/auth/"):
                continue
            ids = ids_for(tenants, things, operation)
            with_token = send(client, operation, ids, owner, token)
            with_unknown = send(client, operation, ids, owner, "llmgtwy_" + "0" * 40)
            assert with_token == with_unknown, operation.path
