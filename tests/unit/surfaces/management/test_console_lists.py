"""Searches and orders of the console's lists, with something in each of them."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from html import unescape
from urllib.parse import quote_plus

import pytest
from support.console import open_page, press_button
from support.management import Tenants

from gateway.accounts import members

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
SORT_LINK = re.compile(r'aria-sort="[a-z]+"><a href="([^"]+)"')
# A word of each member that a list searches. A row must contain all of them, so one query tries each.
QUERIES = {
    "/console/keys": ["Sought Default owner@acme.example llmgtwy_"],
    "/console/people": ["Ada lovelace@acme.example developer Research", "grace@new.example admin"],
    "/console/teams": ["Research"],
    "/console/teams/{organization}/{team}": ["Ada lovelace@acme.example developer"],
    "/console/budgets": ["search-month team=search"],
    "/console/projects": ["Default paid with credits"],
    "/console/providers": ["Z.ai zai"],
    "/console/providers/keys": ["Z.ai zai Spare …cdef https://llm.acme.example/v1 eu-west glm active"],
    "/console/models": ["4.5 claude-sonnet-4-5"],
    "/console/models/custom": ["small own-llm"],
    "/console/automation": ["Terraform keys:write active", "CI https://issuer.example spire active"],
    "/console/sessions": ["long-refactoring Default my-agent sandbox/sandbox-echo"],
}


@pytest.fixture(scope="module")
def filled(open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Iterator[tuple[Tenants, dict[str, str]]]:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        organization = owner.organization_id
        place = f"/orgs/{organization}"
        stores = tenants.services.store.database, tenants.services.store.control
        email = "lovelace@acme.example"
        member = members.add_member(*stores, organization, email, "developer", name="Ada", actor="test")
        team = tenants.ok("POST", f"{place}/teams", owner, {"name": "Research"})["team"]["id"]
        tenants.ok("PUT", f"{place}/teams/{team}/members/{member.id}", owner)
        press_button(tenants, owner, "/console/people", "invite", email="grace@new.example", role="admin")
        press_button(tenants, owner, "/console/keys/new", "create", description="Sought", project=owner.project_id)
        key = {"provider": "zai", "token": "sk-0123456789abcdef", "name": "Spare", "region": "eu-west"}
        key |= {"baseUrl": "https://llm.acme.example/v1", "allowedModels": ["glm-4.6"], "projects": "unchanged"}
        tenants.ok("POST", "/keys/provider", owner, {**key, "organizationId": organization})
        provider = {"name": "own-llm", "baseUrl": "https://llm.acme.example/v1", "models": [{"id": "small"}]}
        tenants.ok("POST", f"{place}/custom-providers", owner, provider)
        tenants.ok("POST", f"{place}/service-accounts", owner, {"name": "Terraform", "scopes": ["keys:write"]})
        limit = {"subjects": ["tag:team=search"], "amount": "5"}
        tenants.ok("PUT", f"{place}/limits/search-month", owner, limit)
        identity = {"name": "CI", "issuer": "https://issuer.example", "audience": "spire", "claims": {"sub": "x"}}
        tenants.ok("POST", f"{place}/workload-identities", owner, {**identity, "projectId": owner.project_id})
        tenants.services.billing.ledger.grant(organization, 10**9, "lists")
        headers = {"x_session_id": "long-refactoring", "x_source": "my-agent"}
        tenants.ok("POST", "/v1/chat/completions", owner.key.token, BODY, **headers)
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        yield tenants, {"organization": organization, "team": team}


def rows_of(page: str) -> str:
    return "".join(re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL))


@pytest.mark.parametrize(("path", "query"), [(path, query) for path, queries in QUERIES.items() for query in queries])
def test_a_row_is_found_by_each_member_that_is_searched(
    filled: tuple[Tenants, dict[str, str]], path: str, query: str
) -> None:
    tenants, names = filled
    page = open_page(tenants, tenants["acme owner"], f"{path.format(**names)}?q={quote_plus(query)}")
    assert "<td data-label" in rows_of(page), page


@pytest.mark.parametrize("path", [*QUERIES, "/console/explore"])
def test_a_list_is_sorted_by_each_column_that_has_a_link(filled: tuple[Tenants, dict[str, str]], path: str) -> None:
    tenants, names = filled
    path = path.format(**names)
    links = SORT_LINK.findall(open_page(tenants, tenants["acme owner"], path))
    assert links
    for link in links:
        page = open_page(tenants, tenants["acme owner"], path + unescape(link))
        assert re.search(r'aria-sort="(a|de)scending"', page), link
