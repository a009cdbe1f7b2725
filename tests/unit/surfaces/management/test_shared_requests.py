"""Links by which members show requests and sessions to colleagues: who opens them, what they show, and their end."""

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from support.console import browser_headers, open_page
from support.demo_sessions import SESSION, SUB_TASK, TASK, add_demo_session
from support.management import Person, Tenants
from support.usage import insert_rows

from gateway.accounts import audit
from gateway.accounts.request_shares import LIFE_US, MAX_SHARES
from gateway.metering.usage_table import UsageRecord, raw_id

Told = tuple[Tenants, list[UsageRecord]]
LINK = re.compile(r"http://localhost(/console/shared/share_\w+)")
TURNS = "/console/sessions/turns"


@pytest.fixture
def told(open_tenants: Callable[[], Tenants]) -> Iterator[Told]:
    """Tenants in which a developer's agent had a session, in a project that retains payloads."""
    with open_tenants() as tenants:
        developer = tenants["acme developer"]
        info = developer.key.info
        ids = (developer.organization_id, developer.project_id, info.id, info.member_id)
        owners = dict(zip(("organization", "project", "api_key", "member"), map(raw_id, ids), strict=True))
        tenants.ok("PATCH", f"/projects/{developer.project_id}", tenants["acme owner"], {"retention": "retain"})
        store = tenants.services.store
        begins_us = tenants.services.clock.now_us() - 100_000_000
        yield tenants, add_demo_session(store.database, store.vault, owners, begins_us)


def press(tenants: Tenants, who: Person, path: str, action: str, **fields: str) -> tuple[int, str]:
    """Press a button of the page at a path with a query; return the status and the text."""
    csrf = re.findall(r'name="csrf" value="([^"]*)"', open_page(tenants, who, "/console/logs"))[0]
    data = {"csrf": csrf, "action": action, **fields}
    answer = tenants.client.post(path, headers=browser_headers(who), data=data)
    return answer.status_code, unescape(answer.text)


def change(tenants: Tenants, who: Person, **fields: str) -> None:
    path = f"/orgs/{who.organization_id}/members/{who.key.info.member_id}"
    tenants.ok("PATCH", path, tenants["acme owner"], fields)


def share(tenants: Tenants, who: Person, path: str) -> str:
    status, page = press(tenants, who, path, "share")
    assert status == 200 and "can open the link below for 30 days" in page
    return str(LINK.findall(page)[0])


def test_nothing_is_shared_without_a_link_and_a_link_opens_for_colleagues_only(told: Told) -> None:
    tenants, rows = told
    path = f"/console/logs/{rows[-1].request.hex()}"
    developer, colleague, rival = (tenants[name] for name in ("acme developer", "acme colleague", "rival owner"))
    open_page(tenants, colleague, path, 403)
    assert "Shared by link" not in open_page(tenants, developer, path)
    link = share(tenants, developer, path)
    page = open_page(tenants, colleague, link)
    assert TASK in page and "developer@acme.example shared this request" in page
    assert 'value="unshare"' not in page and "/console/playground?request=" not in page
    assert TASK not in open_page(tenants, rival, link, 404)
    assert tenants.client.get(link).status_code == 303  # to the sign-in page
    open_page(tenants, colleague, path, 403)  # the link opens its own address only
    open_page(tenants, colleague, f"{link}/{rows[-1].request.hex()}", 404)


def test_only_people_who_may_read_requests_open_a_link(told: Told) -> None:
    tenants, rows = told
    link = share(tenants, tenants["acme developer"], f"/console/logs/{rows[-1].request.hex()}")
    colleague = tenants["acme colleague"]
    change(tenants, colleague, role="billing")
    assert TASK not in open_page(tenants, colleague, link, 403)


def test_who_does_not_see_a_request_cannot_share_it(told: Told) -> None:
    tenants, rows = told
    path = f"/console/logs/{rows[-1].request.hex()}"
    assert press(tenants, tenants["acme colleague"], path, "share")[0] in (403, 404)
    assert press(tenants, tenants["rival owner"], path, "share")[0] in (403, 404)


def test_a_link_ends_when_its_maker_or_an_owner_ends_it_and_when_it_expires(told: Told) -> None:
    tenants, rows = told
    developer, owner, colleague = (tenants[name] for name in ("acme developer", "acme owner", "acme colleague"))
    path = f"/console/logs/{rows[-1].request.hex()}"
    link = share(tenants, developer, path)
    assert share(tenants, developer, path) == link  # a second press keeps it
    assert link in open_page(tenants, owner, path)
    status, _ = press(tenants, owner, path, "unshare", share=link.rpartition("/")[2])
    assert status == 200
    open_page(tenants, colleague, link, 404)
    entries = [entry.action for entry in audit.list_entries(tenants.services.store.database, owner.organization_id)]
    assert {"request.share", "request.unshare"} <= set(entries)
    link = share(tenants, developer, path)
    database = tenants.services.store.database
    database.write(lambda: database.execute("UPDATE request_share SET expires_at = expires_at - ?", (LIFE_US,)))
    open_page(tenants, colleague, link, 404)


def test_a_link_ends_with_the_membership_of_its_maker(told: Told) -> None:
    tenants, rows = told
    developer = tenants["acme developer"]
    link = share(tenants, developer, f"/console/logs/{rows[-1].request.hex()}")
    change(tenants, developer, status="inactive")
    open_page(tenants, tenants["acme colleague"], link, 404)


def test_a_link_shows_no_payload_once_the_project_retains_none(told: Told) -> None:
    tenants, rows = told
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    link = share(tenants, tenants["acme developer"], f"/console/logs/{rows[-1].request.hex()}")
    session = share(tenants, owner, f"{TURNS}?projectId={owner.project_id}&session={SESSION}")
    assert TASK in open_page(tenants, colleague, session)
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "none"})
    for place in (link, session, f"{session}/{rows[-1].request.hex()}"):
        page = open_page(tenants, colleague, place)
        assert TASK not in page and SUB_TASK not in page and "claude-sonnet-4-5" in page


def test_a_link_shows_a_video_as_long_as_the_project_retains_payloads(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants, rows = told
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    now_us = tenants.services.clock.now_us()
    video = rows[0]._replace(request=b"v" * 16, at=now_us, operation="videos", session=None)
    insert_rows(tenants.services.store.database, video)
    monkeypatch.setattr(tenants.services.engine.videos, "link_of_log", lambda log_id, base_url: f"{base_url}/film")
    link = share(tenants, tenants["acme developer"], f"/console/logs/{video.request.hex()}")
    assert "/film" in open_page(tenants, colleague, link)
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "none"})
    assert "/film" not in open_page(tenants, colleague, link)


def test_a_session_that_a_person_does_not_see_cannot_be_shared(told: Told) -> None:
    tenants, _ = told
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    for who, session in ((owner, "n" * 200), (owner, "unknown"), (colleague, SESSION)):
        path = f"{TURNS}?projectId={owner.project_id}&session={session}"
        assert press(tenants, who, path, "share")[0] == 404
    entries = audit.list_entries(tenants.services.store.database, owner.organization_id)
    assert "request.share" not in {entry.action for entry in entries}


def test_a_shared_session_shows_what_its_maker_sees_of_it(told: Told) -> None:
    tenants, rows = told
    developer, colleague = tenants["acme developer"], tenants["acme colleague"]
    link = share(tenants, developer, f"{TURNS}?projectId={developer.project_id}&session={SESSION}")
    page = open_page(tenants, colleague, link)
    assert "Main agent" in page and SUB_TASK in page
    turn = f"{link}/{rows[-1].request.hex()}"
    assert turn in page and "/console/logs/" not in page.partition('id="content"')[2]
    assert TASK in open_page(tenants, colleague, turn)
    other = rows[0]._replace(request=bytes(16))
    open_page(tenants, colleague, f"{link}/{other.request.hex()}", 404)


def test_the_number_of_links_is_bounded(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants, rows = told
    assert MAX_SHARES >= 50
    monkeypatch.setattr("gateway.accounts.request_shares.MAX_SHARES", 1)
    share(tenants, tenants["acme developer"], f"/console/logs/{rows[0].request.hex()}")
    status, page = press(tenants, tenants["acme developer"], f"/console/logs/{rows[1].request.hex()}", "share")
    assert status == 400 and "at most 1 requests" in page


def test_the_api_lists_makes_and_revokes_links(told: Told) -> None:
    tenants, rows = told
    owner, developer, colleague, rival = (
        tenants[name] for name in ("acme owner", "acme developer", "acme colleague", "rival owner")
    )
    shares = f"/orgs/{developer.organization_id}/shares"
    asked = {"requestId": rows[-1].request.hex()}
    for who, path in ((colleague, shares), (rival, f"/orgs/{rival.organization_id}/shares")):
        assert tenants.call("POST", path, who, asked)[0] in (403, 404), "nobody shares what they do not see"
    made = tenants.ok("POST", shares, developer, asked)["share"]
    assert TASK in open_page(tenants, colleague, made["url"].removeprefix("http://localhost"))
    named = {"session": SESSION, "projectId": developer.project_id}
    session = tenants.ok("POST", shares, developer, named)["share"]
    assert TASK in open_page(tenants, colleague, session["url"].removeprefix("http://localhost"))
    for body in ({}, {**asked, **named}, {"session": SESSION}, {**named, "session": "no such session"}):
        assert tenants.call("POST", shares, developer, body)[0] in (400, 404)
    assert tenants.ok("GET", shares, developer)["shares"] == [made, session]
    assert tenants.ok("GET", shares, owner)["shares"] == [made, session]
    assert tenants.ok("GET", shares, colleague)["shares"] == []
    assert tenants.call("DELETE", f"{shares}/{made['id']}", colleague)[0] == 403
    tenants.ok("DELETE", f"{shares}/{made['id']}", developer)
    tenants.ok("DELETE", f"{shares}/{session['id']}", owner)
    open_page(tenants, colleague, made["url"].removeprefix("http://localhost"), 404)
    entries = [entry.action for entry in audit.list_entries(tenants.services.store.database, owner.organization_id)]
    assert entries.count("request.share") == entries.count("request.unshare") == 2
