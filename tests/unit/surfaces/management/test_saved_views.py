"""Saved views of Explore: their addresses, who sees and removes them, and what cannot be saved."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from support.console import browser_headers, open_page, press_button
from support.management import Person, Tenants

from gateway.accounts import saved_views
from gateway.accounts.saved_views import MAX_NAME_LENGTH, MAX_QUERY_LENGTH, MAX_VIEWS

EXPLORE = "/console/explore"
VIEW = re.compile(r'href="http://localhost(/console/explore/views/view_\w+)"[^>]*>([^<]*)<')
QUERY = {"measure": "requests", "groupBy": "user", "timeRange": "30d", "team": 'Sea"rch & <b>', "page": "2", "q": "x"}


def save(tenants: Tenants, who: Person, name: str, query: dict[str, str], **fields: str) -> tuple[int, str]:
    """Press the button of the dialog on Explore with this query; return the status and the text of the page."""
    csrf = re.findall(r'name="csrf" value="([^"]*)"', open_page(tenants, who, EXPLORE))[0]
    data = {"csrf": csrf, "action": "save_view", "name": name, **fields}
    answer = tenants.client.post(f"{EXPLORE}?{urlencode(query)}", headers=browser_headers(who), data=data)
    return answer.status_code, unescape(answer.text)


def views_of(tenants: Tenants, who: Person) -> dict[str, str]:
    """Return the address of each view that Explore lists, by name."""
    return {name: path for path, name in VIEW.findall(open_page(tenants, who, EXPLORE))}


def test_a_view_has_an_address_that_shows_the_same_question(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    status, page = save(tenants, owner, "  People   of <Search> ", QUERY)
    assert status == 200 and "The view “People of <Search>” is saved." in page
    assert '<option value="user" selected>' in page, "the page stays at its question"
    [(path, _)] = VIEW.findall(open_raw(tenants, owner, EXPLORE))
    page = open_page(tenants, owner, path)
    assert "<h1>People of <Search></h1>" in page
    for chosen in ("requests", "user", "30d"):
        assert f'<option value="{chosen}" selected>' in page
    assert 'Team: Sea"rch & <b>' in page and "<Search>" not in open_raw(tenants, owner, path)
    stored = saved_views.list_views(tenants.services.store.database, [owner.organization_id], owner.user_id)
    assert "page=" not in stored[0].query and "q=" not in stored[0].query
    assert '<option value="7d" selected>' in open_page(tenants, owner, f"{path}?timeRange=7d")


def open_raw(tenants: Tenants, who: Person, path: str) -> str:
    return str(tenants.client.get(path, headers=browser_headers(who)).text)


def test_a_view_is_seen_by_its_person_and_a_shared_one_by_the_organization(tenants: Tenants) -> None:
    owner, developer, rival = (tenants[name] for name in ("acme owner", "acme developer", "rival owner"))
    save(tenants, developer, "Mine", {"groupBy": "model"})
    save(tenants, developer, "Ours", {"groupBy": "app"}, shared="on")
    assert set(views_of(tenants, developer)) == {"Mine", "Ours"}
    assert set(views_of(tenants, owner)) == {"Ours"} and views_of(tenants, rival) == {}
    mine, ours = views_of(tenants, developer)["Mine"], views_of(tenants, developer)["Ours"]
    for who, path in ((owner, mine), (rival, mine), (rival, ours)):
        open_page(tenants, who, path, 404)
        assert press_button(tenants, who, path, "remove_view").status_code == 404
    assert "<h1>Ours</h1>" in open_page(tenants, owner, ours)
    assert "API key" not in re.findall(r'<p class="chips">.*?</p>', open_page(tenants, owner, ours))


def test_shared_views_are_removed_by_their_person_or_a_manager(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[name] for name in ("acme owner", "acme developer", "acme colleague"))
    for name in ("first", "second"):
        save(tenants, developer, name, {}, shared="on")
    paths = views_of(tenants, colleague)
    assert "Remove this view" not in open_page(tenants, colleague, paths["first"])
    assert press_button(tenants, colleague, paths["first"], "remove_view").status_code == 403
    answer = press_button(tenants, owner, paths["first"], "remove_view")
    assert answer.status_code == 200 and "The view “first” is removed." in unescape(answer.text)
    assert answer.headers["HX-Replace-Url"].endswith(EXPLORE)
    assert press_button(tenants, developer, paths["second"], "remove_view").status_code == 200
    assert views_of(tenants, colleague) == {}


@pytest.mark.parametrize("name", ["", "   ", "x" * (MAX_NAME_LENGTH + 1)])
def test_a_view_needs_a_name(tenants: Tenants, name: str) -> None:
    status, page = save(tenants, tenants["acme owner"], name, {})
    assert status == 400 and f"1 to {MAX_NAME_LENGTH} characters" in page


def test_views_are_few_and_short(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    long = {"team": "é" * 400, "userId": "é" * 400}
    assert len(urlencode(long)) > MAX_QUERY_LENGTH
    status, page = save(tenants, owner, "long", long)
    assert status == 400 and "too many filters" in page
    place = tenants.services.store.database, owner.organization_id, owner.user_id
    for number in range(MAX_VIEWS):
        saved_views.add(*place, f"view {number}", "", False)
    status, page = save(tenants, owner, "one more", {})
    assert status == 400 and f"at most {MAX_VIEWS} views" in page
    rival = tenants["rival owner"]
    status, page = save(tenants, owner, "elsewhere", {}, organization=rival.organization_id)
    assert status == 403 and views_of(tenants, rival) == {}


def test_a_page_lists_a_limited_number_of_shared_views(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    monkeypatch.setattr(saved_views, "MAX_LISTED", 2)
    save(tenants, owner, "Mine", {"groupBy": "model"})
    for number in range(3):
        save(tenants, developer, f"View {number}", {"groupBy": "app"}, shared="on")
    assert set(views_of(tenants, owner)) == {"Mine", "View 2"}
    database = tenants.services.store.database
    first = database.query_row("SELECT id FROM saved_view WHERE name = ?", ("View 0",))[0]
    assert "<h1>View 0</h1>" in open_page(tenants, owner, f"{EXPLORE}/views/{first}")
