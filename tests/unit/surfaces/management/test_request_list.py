"""The list of requests: columns that a person chose, saved filters, and the comparison of two requests."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import urlencode

import orjson
import pytest
from support.console import browser_headers, open_page
from support.demo_sessions import MESSAGES, SESSION, TASK, add_demo_session, insert_payloads, pack_payload
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway.metering.usage_table import UsageRecord, raw_id

Told = tuple[Tenants, list[UsageRecord]]
LOGS = "/console/logs"
VIEW = re.compile(r'href="http://localhost(/console/logs/views/view_\w+)"[^>]*>([^<]*)<')
TITLES = re.compile(r'<th scope="col"[^>]*>([^<]*)</th>')


@pytest.fixture(scope="module")
def told(open_tenants: Callable[[], Tenants]) -> Iterator[Told]:
    with open_tenants() as tenants:
        store = tenants.services.store
        begins_us = tenants.services.clock.now_us() - 100_000_000
        yield tenants, add_demo_session(store.database, store.vault, owners_of(tenants["acme developer"]), begins_us)


def owners_of(who: Person) -> dict[str, bytes]:
    info = who.key.info
    ids = (who.organization_id, who.project_id, info.id, info.member_id)
    return dict(zip(("organization", "project", "api_key", "member"), map(raw_id, ids), strict=True))


def press(tenants: Tenants, who: Person, path: str, action: str, **fields: str) -> tuple[int, str]:
    csrf = re.findall(r'name="csrf" value="([^"]*)"', open_page(tenants, who, LOGS))[0]
    data = {"csrf": csrf, "action": action, **fields}
    answer = tenants.client.post(path, headers=browser_headers(who), data=data)
    return answer.status_code, unescape(answer.text)


def titles(page: str) -> list[str]:
    return TITLES.findall(page)


def test_chosen_columns_are_kept_for_the_person(told: Told) -> None:
    tenants, _ = told
    developer, owner = tenants["acme developer"], tenants["acme owner"]
    usual = titles(open_page(tenants, developer, LOGS))
    assert usual[-3:] == ["Tokens in / out", "Duration", "Cost"] and "Session" not in usual
    chosen = {f"column-{name}": "on" for name in ("session", "cached", "first", "cost", "tags", "nonsense")}
    status, page = press(tenants, developer, f"{LOGS}?status=200", "columns", **chosen)
    assert status == 200 and "The columns are changed." in page
    page = open_page(tenants, developer, LOGS)
    assert titles(page)[3:] == ["Session", "Metadata", "From cache", "First token", "Cost"]
    assert f"session={SESSION}" in page and 'data-label="From cache" class="number chosen">92 %' in page
    assert titles(open_page(tenants, owner, LOGS)) == usual
    press(tenants, developer, LOGS, "columns")
    assert titles(open_page(tenants, developer, LOGS)) == usual


def test_the_live_view_names_the_keys_of_its_rows(told: Told) -> None:
    tenants, _ = told
    developer = tenants["acme developer"]
    headers = {**browser_headers(developer), "HX-Target": "list"}
    page = tenants.client.get(f"{LOGS}?live=1", headers=headers).text
    assert f'/console/keys/{developer.key.info.id}">{developer.key.info.description}</a>' in page
    assert "<option" not in page.partition('id="model-names"')[2].partition("</datalist>")[0]


def test_filters_are_saved_with_a_name_and_an_address(told: Told) -> None:
    tenants, _ = told
    developer, owner, rival = (tenants[name] for name in ("acme developer", "acme owner", "rival owner"))
    query = urlencode({"model": "claude-haiku-4-5", "timeRange": "30d", "cursor": "f" * 32})
    status, page = press(tenants, developer, f"{LOGS}?{query}", "save_view", name="Haiku <b>", shared="on")
    assert status == 200 and "The view “Haiku <b>” is saved for all members." in page
    [(path, name)] = VIEW.findall(open_page(tenants, developer, LOGS))
    page = open_page(tenants, developer, path)
    assert name == "Haiku <b>"[: len(name)] and "<h1>Haiku <b></h1>" in page
    assert page.count('class="open" id="r') == 1 and 'value="claude-haiku-4-5"' in page and "cursor=" not in page
    assert "<b>" not in str(tenants.client.get(path, headers=browser_headers(developer)).text)
    assert open_page(tenants, owner, path).count('class="open" id="r') == 1
    open_page(tenants, rival, path, 404)
    assert "Haiku" not in open_page(tenants, developer, "/console/explore")
    open_page(tenants, developer, path.replace("/logs/", "/explore/"), 404)
    assert path in open_page(tenants, developer, "/console/find?q=haiku")
    colleague = tenants["acme colleague"]
    assert press(tenants, colleague, path, "remove_view")[0] == 403
    assert press(tenants, developer, path, "remove_view")[0] == 200
    assert VIEW.findall(open_page(tenants, developer, LOGS)) == []


def compare(tenants: Tenants, who: Person, *ids: str, status: int = 200) -> str:
    query = urlencode([("request", ident) for ident in ids])
    return open_page(tenants, who, f"{LOGS}/compare?{query}", status)


def test_two_requests_are_compared(told: Told) -> None:
    tenants, rows = told
    developer = tenants["acme developer"]
    page = open_page(tenants, developer, LOGS)
    assert page.count('form="compare" name="request"') == len(rows) and 'id="compare"' in page
    assert 'form="compare"' not in open_page(tenants, developer, f"{LOGS}?live=1")
    page = compare(tenants, developer, rows[5].request.hex(), rows[6].request.hex())
    for text in ("tool Today", "Read from the cache", "15.1K", "First answer", "Second answer", "pricing/rules.py"):
        assert text in page, text
    other = compare(tenants, developer, rows[0].request.hex(), rows[1].request.hex())
    assert '<th scope="row">max_tokens</th><td>60</td><td>8000</td>' in other
    same = compare(tenants, developer, rows[1].request.hex(), rows[1].request.hex())
    assert "Both prompts are the same." in same and "All parameters are the same." in same


def test_a_comparison_begins_with_one_request_or_none(told: Told) -> None:
    tenants, rows = told
    developer = tenants["acme developer"]
    assert 'name="request"' in compare(tenants, developer)
    assert f'value="{rows[0].request.hex()}" readonly' in compare(tenants, developer, rows[0].request.hex())
    compare(tenants, developer, *[row.request.hex() for row in rows[:3]], status=400)


def test_only_visible_requests_are_compared(told: Told) -> None:
    tenants, rows = told
    for name, status in (("acme colleague", 403), ("rival owner", 404)):
        assert TASK not in compare(tenants, tenants[name], rows[5].request.hex(), rows[6].request.hex(), status=status)


def test_other_operations_and_hostile_values_are_compared(told: Told) -> None:
    tenants, rows = told
    developer, store = tenants["acme developer"], tenants.services.store
    hostile = "<script>alert(1)</script>"
    values = {"provider": "p", "asked": hostile, "served": hostile, "status": 200, "finish": hostile}
    made = []
    for seconds, size in ((3, "256x256"), (2, hostile)):
        at = tenants.services.clock.now_us() - seconds * 1_000_000
        row = usage_row(at, **owners_of(developer), operation="images", **values)
        insert_rows(store.database, row)
        sent = orjson.dumps({"prompt": hostile, "size": size, hostile: 1})
        insert_payloads(store.database, [pack_payload(store.vault, row, MESSAGES, sent, b'{"data": []}')])
        made.append(row.request.hex())
    query = urlencode([("request", ident) for ident in made])
    page = tenants.client.get(f"{LOGS}/compare?{query}", headers=browser_headers(developer)).text
    assert "Both prompts are the same." in page and "256x256" in page and "<script>alert" not in page
    assert "retained, so prompts cannot" not in page
    at = tenants.services.clock.now_us() - 1_000_000
    unretained = usage_row(at, **owners_of(developer), operation="chat", **values)
    insert_rows(store.database, unretained)
    page = compare(tenants, developer, rows[5].request.hex(), unretained.request_id)
    assert "One of the payloads was not retained" in page
