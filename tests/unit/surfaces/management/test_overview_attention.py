"""What the overview says that an owner has to look at, and to whom."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import gevent
import orjson
import pytest
from support.management import Person, Tenants

from gateway.accounts.members import add_member
from gateway.clock import DAY_US, MINUTE_US, to_iso
from gateway.limits.limit_states import MemberState
from gateway.runtime.state_changes import StateChange
from gateway.surfaces.console import overview_attention
from gateway.surfaces.console.overview_attention import MAX_NOTICES, AttentionItem, choose_items
from gateway.telemetry.alert_delivery import TROUBLE, TROUBLE_TTL_S
from gateway.telemetry.unusual_days import EVENT


@pytest.fixture(scope="module")
def tenants(open_tenants) -> Iterator[Tenants]:
    with open_tenants() as made:
        yield made


def read(tenants: Tenants, who: Person, query: str = "") -> str:
    answer = tenants.client.get(f"/console{query}", headers={"Cookie": f"llmgateway.session_token={who.token}"})
    assert answer.status_code == 200
    return unescape(answer.text)


def needs(page: str) -> list[tuple[str, str]]:
    """Return path and text of each line of the card."""
    card = page.partition('id="attention"')[2].partition("</section>")[0]
    return re.findall(r'<a href="http://localhost([^"]+)">(.*?)</a>', card)


def texts(page: str) -> str:
    return "\n".join(text for _, text in needs(page))


def in_days(tenants: Tenants, days: int) -> int:
    return tenants.services.clock.now_us() + days * DAY_US + MINUTE_US


def test_keys_and_accounts_that_end_within_a_week_are_named_to_who_sees_them(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    ended = {"projectId": developer.project_id, "expiresAt": to_iso(in_days(tenants, 3))}
    made = tenants.ok("POST", "/keys/api", developer, {**ended, "description": "Nightly"})["apiKey"]
    later = {**ended, "expiresAt": to_iso(in_days(tenants, 30)), "description": "Yearly"}
    tenants.ok("POST", "/keys/api", developer, later)
    short = {**ended, "expiresAt": to_iso(in_days(tenants, 1)), "description": "Trial"}
    tenants.ok("POST", "/keys/api", developer, short)
    account = {"name": "Deploy", "scopes": ["keys:read"], "expiresAt": to_iso(in_days(tenants, 2))}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/service-accounts", owner, account)
    lines = needs(read(tenants, owner))
    assert (f"/console/keys/{made['id']}", "The API key “Nightly” ends in 3 days.") in lines
    assert (
        f"/console/automation?organization={owner.organization_id}",
        "The service account “Deploy” ends in 2 days.",
    ) in lines
    assert "Yearly" not in str(lines) and "Trial" not in str(lines)
    own = texts(read(tenants, developer))
    assert "Nightly" in own and "Deploy" not in own
    assert "Nightly" not in texts(read(tenants, tenants["acme colleague"]))


def test_open_invitations_are_one_line_for_those_who_manage_people(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/invitations"
    tenants.ok("POST", path, owner, {"email": "one@acme.example", "role": "developer"})
    assert "The invitation of one@acme.example is open and ends in 7 days." in texts(read(tenants, owner))
    tenants.ok("POST", path, owner, {"email": "two@acme.example", "role": "developer"})
    page = read(tenants, owner)
    assert "2 invitations are open; that of one@acme.example ends in 7 days." in texts(page)
    assert "invitation" not in texts(read(tenants, tenants["acme developer"]))


def test_limits_of_people_and_of_the_organization_are_named_before_they_are_reached(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tenants["acme owner"]
    body = {"subjects": ["organization"], "amount": "10"}
    path = f"/orgs/{owner.organization_id}/limits/all-of-us"
    tenants.ok("PUT", path, owner, body)
    assert "all-of-us" not in texts(read(tenants, owner))
    found = overview_attention.SpendingLimits.list_limits

    def list_used(limits: Any, organization_id: str) -> list[Any]:
        state = MemberState("", None, 8_100_000_000, 0)
        return [one._replace(members=(state,)) for one in found(limits, organization_id)]

    monkeypatch.setattr(overview_attention.SpendingLimits, "list_limits", list_used)
    line = (f"/console/budgets/{owner.organization_id}/all-of-us", "81 % of the limit of “all-of-us” ($10.00) is used.")
    assert line in needs(read(tenants, owner))
    assert line not in needs(read(tenants, tenants["rival owner"]))


def test_callbacks_and_channels_that_fail_are_named(tenants: Tenants) -> None:
    owner, services = tenants["acme owner"], tenants.services
    database, now = services.store.database, services.clock.now_us()
    assert "delivered" not in texts(read(tenants, owner))
    columns = "id, organization, project, state, endpoint, created_at, completed_at, deadline_at, total, done, failed, "
    columns += "bound_nusd, cost_nusd, input, task, outcome, api_key"
    for ident, state in (("batch_1", "failed"), ("batch_2", "retrying"), ("batch_3", "delivered")):
        values = (ident, owner.organization_id, owner.project_id, "completed", "/v1/responses", now, now, now)
        values = (*values, 1, 1, 0, 0, 0, "", "{}", "{}", owner.key.info.id)
        database.write(
            lambda values=values: database.execute(
                f"INSERT INTO batch_job ({columns}) VALUES ({', '.join('?' * len(values))})", values
            )
        )
        row = (f"evt_{ident}", ident, state, None, "[]")
        database.write(
            lambda row=row: database.execute(
                "INSERT INTO job_callback (id, job, state, due_at, attempts) VALUES (?, ?, ?, ?, ?)", row
            )
        )
    line = "2 callbacks about jobs were not delivered in acme within 7 days."
    assert line in texts(read(tenants, owner)).replace("Acme", "acme")
    assert "callbacks" not in texts(read(tenants, tenants["rival owner"]))

    hook = {"url": "https://alerts.acme.example/in"}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/alerts", owner, hook)
    ident = services.telemetry.hooks.list_hooks(owner.organization_id)[0].id
    services.store.documents.put(TROUBLE, ident, orjson.dumps({"problem": "HTTP 410", "at": now}), TROUBLE_TTL_S)
    assert "Alerts do not reach https://alerts.acme.example/in: HTTP 410" in texts(read(tenants, owner))
    assert "Alerts do not reach" not in texts(read(tenants, tenants["acme developer"]))


def test_an_unusual_day_leads_to_its_key_and_other_alerts_to_their_list(tenants: Tenants) -> None:
    owner, services = tenants["acme owner"], tenants.services
    now = services.clock.now_us()
    history, key = services.telemetry.alert_history, tenants["acme developer"].key.info
    facts = {"organization": owner.organization_id, "key": key.id}
    history.begin(StateChange(EVENT, f"key {key.id}", "key k has spent $90.00 today", facts=facts), now - MINUTE_US)
    others = {"organization": owner.organization_id}
    history.begin(StateChange("credits.low", "credits", "the credits are low", facts=others), now - MINUTE_US)
    lines = needs(read(tenants, owner))
    assert (f"/console/keys/{key.id}", "Key k has spent $90.00 today.") in lines
    assert ("/console/notices", "One alert that you have not seen: The credits are low.") in lines
    assert "spent $90.00" not in texts(read(tenants, tenants["rival owner"]))


def test_what_is_urgent_comes_first_and_the_rest_is_counted() -> None:
    many = [AttentionItem("warn", f"warning {number}", "/") for number in range(9)]
    urgent = [AttentionItem("bad", f"urgent {number}", "/") for number in range(4)]
    shown, more = choose_items([many, urgent, many, many, many])
    assert [one.text for one in shown[:3]] == ["urgent 0", "urgent 1", "urgent 2"]
    assert len(shown) == MAX_NOTICES and len(shown) + more == 40


def test_a_person_of_several_organizations_chooses_one(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    assert 'id="organization"' not in read(tenants, owner)
    services = tenants.services
    email = "both@acme.example"
    for organization_id in (owner.organization_id, rival.organization_id):
        member = add_member(
            services.store.database, services.store.control, organization_id, email, "owner", actor="test"
        )
    token = services.management.sessions.open(member.user_id).token
    both = replace(owner, token=token)
    assert "2 invitations are open" in texts(read(tenants, both))
    chosen = read(tenants, both, f"?organization={rival.organization_id}")
    assert f'<option value="{rival.organization_id}" selected' in chosen
    assert "invitations are open" not in texts(chosen)


def test_a_person_sees_their_own_sessions_alone(tenants: Tenants) -> None:
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    names = {"acme developer": "session-of-developer", "acme owner": "session-of-owner"}
    tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "own sessions")
    for who, name in names.items():
        tenants.ok("POST", "/v1/chat/completions", tenants[who].key.token, body, x_session_id=name)
    tenants.services.store.journal.flush(60)
    for who, name in names.items():
        assert "/console/sessions/own" in read(tenants, tenants[who])
        shown = read(tenants, tenants[who], "/sessions/own")
        assert f"session={name}" in shown and shown.count("/console/sessions/turns?") == 1


def test_the_fullest_of_many_limits_is_found_with_few_statements(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, database = tenants["acme owner"], tenants.services.store.database
    now = tenants.services.clock.now_us()
    many = overview_attention.MAX_LIMITS + 20

    def fill() -> None:
        for number in range(many):
            team = f"team_{number:032x}"
            values = (team, owner.organization_id, f"Team {number}", now)
            database.execute("INSERT INTO team (id, organization_id, name, created_at) VALUES (?, ?, ?, ?)", values)
            used = 9_500_000_000 if number == many - 1 else 0
            database.execute(
                "INSERT INTO budget (id, scope, scope_id, kind, limit_nusd, settled_nusd, leased_nusd, period, "
                "generation) VALUES (?, 'team', ?, 'total', 10000000000, ?, 0, '', 0)",
                (f"{team}:total", team, used),
            )

    database.write(fill)
    asked: list[str] = []
    fetch = type(database).fetch

    visitor = gevent.getcurrent()

    def count(store: Any, sql: str, *values: Any) -> Any:
        if gevent.getcurrent() is visitor:  # not those of the worker's recurring jobs
            asked.append(sql)
        return fetch(store, sql, *values)

    monkeypatch.setattr(type(database), "fetch", count)
    assert f"95 % of the limit of team Team {many - 1} ($10.00) is used." in texts(read(tenants, owner))
    asked.clear()
    read(tenants, owner)
    before = len(asked)
    for number in range(20):
        path = f"/orgs/{owner.organization_id}/limits/shared-{number}"
        tenants.ok("PUT", path, owner, {"subjects": ["organization"], "amount": "10"})
    read(tenants, owner)
    asked.clear()
    read(tenants, owner)
    assert len(asked) <= before + 3, asked
