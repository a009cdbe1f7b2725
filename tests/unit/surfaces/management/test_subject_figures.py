"""Pages of one key, person, team, project, model and provider begin with its spend, limits and latest requests."""

import re
from collections.abc import Iterator

import pytest
from support.console import open_page
from support.management import Person, Tenants

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
CALLS = {"acme developer": 2, "acme colleague": 1}
COUNT = re.compile(r"for (\d+) request")
LATEST = re.compile(r'class="open" href="[^"]*/console/logs/([0-9a-f]+)"')


@pytest.fixture(scope="module")
def used(open_tenants) -> Iterator[tuple[Tenants, dict[str, str]]]:
    """Tenants with requests of two people in one team, and the pages of the subjects."""
    with open_tenants() as tenants:
        owner, developer = tenants["acme owner"], tenants["acme developer"]
        organization = owner.organization_id
        tenants.services.billing.ledger.grant(organization, 10**9, "pages")
        place = f"/orgs/{organization}"
        team = tenants.ok("POST", f"{place}/teams", owner, {"name": "Search"})["team"]["id"]
        for who in CALLS:
            tenants.ok("PUT", f"{place}/teams/{team}/members/{tenants[who].member_id}", owner)
        for who, times in CALLS.items():
            for _ in range(times):
                tenants.ok("POST", "/v1/chat/completions", tenants[who].key.token, BODY)
        for name, subject in (("team-month", f"team={team}"), ("each-key", "each key"), ("other", "each user")):
            tenants.ok("PUT", f"{place}/limits/{name}", owner, {"subjects": [subject], "amount": "5"})
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        pages = {
            "key": f"/console/keys/{developer.key.info.id}",
            "person": f"/console/people/{organization}/{developer.member_id}",
            "team": f"/console/teams/{organization}/{team}",
            "project": f"/console/projects/{developer.key.info.project_id}",
            "model": "/console/models/sandbox-echo",
            "provider": "/console/providers/sandbox",
        }
        yield tenants, pages


def counted(tenants: Tenants, who: Person, path: str) -> tuple[int, int]:
    """Return the requests that a page counts, and how many it lists."""
    page = open_page(tenants, who, path)
    text = re.sub(r"<[^>]*>", "", page)
    return sum(map(int, COUNT.findall(text)[:1])), len(LATEST.findall(page))


@pytest.mark.parametrize(
    ("page", "requests"), [("key", 2), ("person", 2), ("team", 3), ("project", 3), ("model", 3), ("provider", 3)]
)
def test_a_page_counts_and_lists_the_requests_of_its_subject(
    used: tuple[Tenants, dict[str, str]], page: str, requests: int
) -> None:
    tenants, pages = used
    assert counted(tenants, tenants["acme owner"], pages[page]) == (requests, requests)


@pytest.mark.parametrize("page", ["model", "provider"])
def test_a_developer_counts_own_requests_and_strangers_none(used: tuple[Tenants, dict[str, str]], page: str) -> None:
    tenants, pages = used
    assert counted(tenants, tenants["acme developer"], pages[page]) == (2, 2)
    assert counted(tenants, tenants["rival owner"], pages[page]) == (0, 0)


def test_limits_of_the_subject_and_of_each_of_its_kind_are_shown(used: tuple[Tenants, dict[str, str]]) -> None:
    tenants, pages = used
    shown = {
        page: set(re.findall(r'/console/budgets/[^/"]*/([a-z-]+)"', open_page(tenants, tenants["acme owner"], path)))
        for page, path in pages.items()
    }
    expected = {"key": {"each-key"}, "team": {"team-month"}}
    assert shown == {page: expected.get(page, set()) for page in pages}


def test_forms_are_behind_a_tab(used: tuple[Tenants, dict[str, str]]) -> None:
    tenants, pages = used
    for page in ("key", "person", "team", "project"):
        first = open_page(tenants, tenants["acme owner"], pages[page])
        settings = open_page(tenants, tenants["acme owner"], f"{pages[page]}?tab=settings")
        assert "Latest requests" in first and "Latest requests" not in settings
        assert 'class="form"' not in first and "<form" in settings
