"""A request as a conversation, its differences to the turn before, and its session, for those who may see them."""

import re
from collections.abc import Callable, Iterator

import orjson
import pytest
from support.console import open_page
from support.demo_sessions import (
    MESSAGES,
    SESSION,
    SUB_TASK,
    TASK,
    add_demo_session,
    insert_payloads,
    make_turns,
    pack_payload,
)
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway.metering.usage_table import UsageRecord, raw_id

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1)) \x00 {{ 7 * 7 }}"
Told = tuple[Tenants, list[UsageRecord]]
TURNS = f"/console/sessions/turns?session={SESSION}"


def owners_of(person: Person) -> dict[str, bytes]:
    return {
        "organization": raw_id(person.organization_id),
        "project": raw_id(person.project_id),
        "api_key": raw_id(person.key.info.id),
        "member": raw_id(person.key.info.member_id),
    }


@pytest.fixture(scope="module")
def told(open_tenants: Callable[[], Tenants]) -> Iterator[Told]:
    """Tenants in which a developer's agent had a session, and the rows of its turns."""
    with open_tenants() as tenants:
        developer = tenants["acme developer"]
        store = tenants.services.store
        begins_us = tenants.services.clock.now_us() - 100_000_000
        yield tenants, add_demo_session(store.database, store.vault, owners_of(developer), begins_us)


def add_request(tenants: Tenants, person: Person, sent: bytes, answer: bytes, **fields: object) -> str:
    """Add a retained request, and return its path."""
    store = tenants.services.store
    values = {"operation": "chat", "provider": "p", "asked": "m", "served": "m", "finish": "stop", "status": 200}
    row = usage_row(tenants.services.clock.now_us() - 1_000_000, **owners_of(person), **{**values, **fields})
    insert_rows(store.database, row)
    insert_payloads(store.database, [pack_payload(store.vault, row, MESSAGES, sent, answer)])
    return f"/console/logs/{row.request.hex()}"


def test_a_request_is_a_conversation_with_its_tools_reasoning_and_calls(
    told: Told,
) -> None:
    tenants, rows = told
    page = open_page(tenants, tenants["acme developer"], f"/console/logs/{rows[-1].request.hex()}")
    conversation = page.partition('id="conversation"')[2].partition("</section>")[0]
    for text in (
        TASK,
        "4 tools",
        "It is 3 June.",
        "Reasoning",
        "cache mark",
        "Calls <strong>Agent</strong>",
        "max_tokens",
    ):
        assert text in conversation, text
    assert 'Result <span class="note">Read</span> <span class="badge bad">error</span>' in conversation
    assert '"path": "billing/discounts.py"' in conversation  # pretty JSON
    assert "Request, as it was sent" in conversation and "show-raw" in conversation
    assert f"/console/sessions/turns?projectId={tenants['acme developer'].project_id}&session={SESSION}" in page


def test_the_differences_to_the_turn_before_say_what_cost_the_cache(told: Told) -> None:
    tenants, rows = told
    page = open_page(tenants, tenants["acme developer"], f"/console/logs/{rows[-1].request.hex()}/changes")
    assert f'/console/logs/{rows[5].request.hex()}">turn before</a> at tool Today.' in page and "cache lost" in page
    assert '<span class="badge good">added</span> tool Today' in page
    continued = open_page(tenants, tenants["acme developer"], f"/console/logs/{rows[5].request.hex()}/changes")
    # The turn before in time is the sub-agent's; that of the conversation is compared.
    assert f"/console/logs/{rows[2].request.hex()}" in continued and "begins exactly as that of" in continued
    assert "adds 2 messages" in continued
    first = open_page(tenants, tenants["acme developer"], f"/console/logs/{rows[0].request.hex()}/changes")
    assert "There is no retained request of this conversation before this one." in first


def test_a_session_has_branches_and_names_what_cost_the_cache(told: Told) -> None:
    tenants, rows = told
    page = open_page(tenants, tenants["acme developer"], TURNS)
    assert f'Main agent <span class="note">{TASK}</span>' in page
    assert f'Sub-agent 1 <span class="note">{SUB_TASK}</span>' in page and "Side call 1" in page
    assert "A changed beginning of the prompt</strong>: tool Today (added)" in page
    assert page.count('class="badge warn">turn') == 1 and f"/console/logs/{rows[-1].request.hex()}/changes" in page
    assert "Budget used" not in page


def test_a_session_shows_what_is_used_of_its_budget(told: Told) -> None:
    tenants, _ = told
    developer, owner = tenants["acme developer"], tenants["acme owner"]
    path = f"/projects/{developer.project_id}/session-budget"
    tenants.ok("PATCH", path, owner, {"sessionBudget": "0.50"})
    page = open_page(tenants, developer, TURNS)
    assert "Budget used" in page and '<span title="$0.5">$0.50</span>' in page
    tenants.ok("PATCH", path, owner, {"sessionBudget": None})


def test_others_see_nothing_of_a_request_or_its_session(told: Told) -> None:
    tenants, rows = told
    path = f"/console/logs/{rows[-1].request.hex()}"
    assert TASK in open_page(tenants, tenants["acme owner"], path)
    for name, status in (("acme colleague", 403), ("rival owner", 404)):
        for place in (path, f"{path}/changes"):
            assert TASK not in open_page(tenants, tenants[name], place, status)
        assert TASK not in open_page(tenants, tenants[name], TURNS, 404)


def test_the_turn_before_of_another_person_is_not_compared(told: Told) -> None:
    """A colleague names the same session: their request is compared with their own requests only."""
    tenants, _ = told
    colleague = tenants["acme colleague"]
    body = orjson.dumps(make_turns()[-1].body)
    path = add_request(tenants, colleague, body, b"{}", session=SESSION)
    assert "There is no retained request of this conversation" in open_page(tenants, colleague, f"{path}/changes")


def test_hostile_payloads_are_shown_as_text(told: Told) -> None:
    tenants, _ = told
    developer = tenants["acme developer"]
    body = {
        "messages": [
            {"role": HOSTILE, "content": HOSTILE},
            {"role": "user", "content": [{"type": HOSTILE, "x": HOSTILE}]},
        ],
        "tools": [{"name": HOSTILE, "description": HOSTILE, "input_schema": {HOSTILE: HOSTILE}}],
        HOSTILE: HOSTILE,
    }
    answer = {
        "content": [
            {"type": "text", "text": HOSTILE, "citations": [{"url": "javascript:alert(1)", "title": HOSTILE}]},
            {"type": "tool_use", "name": HOSTILE, "input": {HOSTILE: HOSTILE}},
        ]
    }
    path = add_request(tenants, developer, orjson.dumps(body), orjson.dumps(answer))
    for place in (path, f"{path}/changes"):
        page = tenants.client.get(place, headers={"Cookie": f"llmgateway.session_token={developer.token}"}).text
        assert "<script>alert" not in page and "<img src=x" not in page and "49" not in re.findall(r"{{.*?}}", page)
        assert not re.search(r'(href|src)="[^"]*javascript:', page)
    assert "javascript:alert(1)" in page or place.endswith("changes")


def test_a_payload_of_which_a_part_was_stored_is_shown_up_to_there(told: Told) -> None:
    tenants, _ = told
    sent = orjson.dumps({"messages": [{"role": "user", "content": "first"}, {"role": "user", "content": "x" * 50_000}]})
    path = add_request(tenants, tenants["acme developer"], sent[:4_096], b"\x00\xff" * 50, operation="chat")
    page = open_page(tenants, tenants["acme developer"], path)
    assert "The end of the request was not stored" in page and '<div class="said">first</div>' in page
    assert "100 bytes that are no text" in page
