"""Sessions of agents in the management API, in the log and on their page."""

import html
import re

import pytest
from support import console
from support.management import Person, Tenants
from support.usage import usage_row

from gateway.clock import DAY_US
from gateway.metering.log.records import LoggedRequest
from gateway.surfaces.console import agent_session_pages
from gateway.surfaces.console.session_branches import find_losses, read_turns

CHOICE = re.compile(r'<option value="([^"]*)"')


def ask(tenants: Tenants, person: Person, session: str, model: str = "sandbox/sandbox-echo") -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    tenants.ok("POST", "/v1/chat/completions", person.key.token, body, x_session_id=session, x_source="editor.example")


@pytest.fixture
def used(tenants: Tenants) -> Tenants:
    """A developer's two sessions, of which a colleague shares one, and a session of another organization."""
    for name in ("acme owner", "rival owner"):
        tenants.services.billing.ledger.grant(tenants[name].organization_id, 10**9, name)
    for session in ("first", "second:1", "first"):
        ask(tenants, tenants["acme developer"], session)
    ask(tenants, tenants["acme colleague"], "first", "sandbox/sandbox-tools")
    ask(tenants, tenants["rival owner"], "first")
    tenants.services.store.journal.flush(60)
    return tenants


def listed(tenants: Tenants, who: Person, query: str = "") -> list[tuple[str, int]]:
    return [
        (session["id"], session["turns"]) for session in tenants.ok("GET", f"/logs/sessions{query}", who)["sessions"]
    ]


def test_sessions_are_listed_with_their_turns_as_each_person_may_see_them(used: Tenants) -> None:
    assert listed(used, used["acme owner"]) == [("first", 3), ("second:1", 1)]
    assert listed(used, used["acme developer"]) == [("first", 2), ("second:1", 1)]
    assert listed(used, used["acme colleague"]) == [("first", 1)]
    assert listed(used, used["rival owner"]) == [("first", 1)]


def test_pages_of_sessions_show_each_session_once(used: Tenants) -> None:
    owner = used["acme owner"]
    first = used.ok("GET", "/logs/sessions?limit=1", owner)
    second = used.ok("GET", f"/logs/sessions?limit=1&cursor={first['next']}", owner)
    third = used.ok("GET", f"/logs/sessions?cursor={second['next']}", owner) if second["next"] else {"sessions": []}
    shown = [one["id"] for one in first["sessions"] + second["sessions"] + third["sessions"]]
    assert shown == ["first", "second:1"]


def test_the_sums_of_a_session_are_those_of_its_requests(used: Tenants) -> None:
    owner = used["acme owner"]
    session = used.ok("GET", "/logs/sessions/first", owner)["session"]
    logs = used.ok("GET", "/logs?session=first", owner)["logs"]
    assert len(logs) == session["turns"] == 3 and {log["session"] for log in logs} == {"first"}
    for name in ("inputTokens", "outputTokens"):
        assert session[name] == sum(log[name] for log in logs) == sum(part[name] for part in session["parts"]) > 0
    assert float(session["cost"]) == pytest.approx(sum(float(log["cost"]) for log in logs))
    assert sorted(part["model"] for part in session["parts"]) == ["sandbox-echo", "sandbox-tools"]
    assert used.ok("GET", "/logs/sessions/second:1", owner)["session"]["turns"] == 1
    assert used.call("GET", "/logs/sessions/second:1", used["rival owner"])[0] == 404


def open_page(tenants: Tenants, who: Person, query: str = "") -> str:
    return console.open_page(tenants, who, f"/console/sessions{query}")


def shown_on(page: str) -> list[str]:
    return re.findall(r'title="Show the turns">([^<]+)<', page)


def test_the_page_shows_sessions_with_links_to_their_requests(used: Tenants) -> None:
    page = open_page(used, used["acme developer"])
    project = used["acme developer"].project_id
    assert f"projectId={project}&session=second%3A1" in page and "sandbox/sandbox-echo" in page and "0.0 %" in page
    assert "sandbox-tools" not in page


def test_the_page_sorts_and_searches_sessions(used: Tenants) -> None:
    owner = used["acme owner"]
    assert shown_on(open_page(used, owner)) == ["first", "second:1"]
    assert shown_on(open_page(used, owner, "?sort=turns")) == ["second:1", "first"]
    assert shown_on(open_page(used, owner, "?sort=-id")) == ["second:1", "first"]
    assert shown_on(open_page(used, owner, "?q=TOOLS")) == ["first"]
    project = used.ok("GET", f"/projects/{owner.project_id}", owner)["project"]["name"]
    for word in (project, "editor.example"):
        assert len(shown_on(open_page(used, owner, f"?q={word}"))) == 2
    assert "Nothing matches" in open_page(used, owner, "?q=tools+second")
    assert shown_on(open_page(used, used["acme colleague"], "?q=second:1")) == []


def test_the_page_shows_the_sessions_of_a_project(used: Tenants) -> None:
    owner = used["acme owner"]
    body = {"organizationId": owner.organization_id, "name": "Empty"}
    empty = used.ok("POST", "/projects", owner, body)["project"]["id"]
    select = re.findall(r'<select id="projectId".*?</select>', open_page(used, owner), re.DOTALL)[0]
    shown = {choice: shown_on(open_page(used, owner, f"?projectId={choice}")) for choice in CHOICE.findall(select)}
    both = ["first", "second:1"]
    assert shown == {"": both, owner.project_id: both, empty: []}


def test_the_search_finds_an_older_session_by_its_complete_name(used: Tenants, monkeypatch) -> None:
    monkeypatch.setattr(agent_session_pages, "READ", 1)
    owner = used["acme owner"]
    page = open_page(used, owner)
    assert shown_on(page) == ["first"] and "Older sessions" in page
    assert shown_on(open_page(used, owner, "?q=second:1")) == ["second:1"]
    assert shown_on(open_page(used, owner, "?q=second")) == []
    [older] = re.findall(r'href="([^"]+)">Older sessions', open_page(used, owner, "?sort=turns"))
    assert "sort=turns" in older
    assert shown_on(open_page(used, owner, html.unescape(older))) == ["second:1"]
    ask(used, used["acme developer"], "second:10")
    used.services.store.journal.flush(60)
    assert shown_on(open_page(used, owner, "?q=second:1")) == ["second:10", "second:1"]


def test_a_session_is_a_timeline_of_its_turns(used: Tenants) -> None:
    owner, colleague = used["acme owner"], used["acme colleague"]
    [path] = re.findall(r'href="http://localhost(/console/sessions/turns[^"]*session=first)"', open_page(used, owner))
    page = console.open_page(used, owner, path)
    logs = used.ok("GET", "/logs?session=first", owner)["logs"]
    turns = re.findall(r'href="http://localhost/console/logs/([0-9a-f]{32})">(\d)\. ', page)
    assert turns == [(log["id"], str(number)) for number, log in enumerate(reversed(logs), 1)]
    so_far = re.findall(r'data-label="So far" class="number"><span title="\$([\d.]+)"', page)
    assert float(so_far[-1]) == pytest.approx(sum(float(log["cost"]) for log in logs))
    assert len(re.findall(r"<title[^>]*>[^<]*UTC: ", page)) == 2 * len(logs)
    own = console.open_page(used, colleague, "/console/sessions/turns?session=first")
    assert len(re.findall(r'class="open"', own)) == 1
    for who, query in (
        (colleague, "session=second:1"),
        (owner, "session=none"),
        (owner, ""),
        (owner, "session=%00<b>"),
    ):
        assert "<b>" not in console.open_page(used, who, f"/console/sessions/turns?{query}", 404)


def test_a_turn_that_reads_less_from_the_cache_than_the_one_before_lost_it() -> None:
    def turn_of(fresh: int, cached: int, written: int = 0) -> LoggedRequest:
        row = usage_row(DAY_US, input=fresh, cache_read=cached, cache_write=written, cost_nusd=5)
        return LoggedRequest(row.request, (row,))

    sizes = ((2_000, 0, 1_900), (10, 1_900), (10, 1_900, 500), (4_000, 0), (10, 4_000), (10, 2_100), (500, 900), (9, 0))
    turns = read_turns([turn_of(*size) for size in sizes])
    find_losses(turns)
    assert [turn.lost for turn in turns] == [0, 0, 0, 1_900, 0, 0, 2_100, 0]
