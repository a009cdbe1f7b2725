"""`/console/system`: operators see the state of the installation and set what others may not."""

import re
from dataclasses import replace
from typing import Any

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants
from support.statement_work import note_statements

from gateway.money import NANO
from gateway.surfaces.console import lists

PATH = "/console/system"
BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def operator(tenants: Tenants) -> Person:
    token = tenants.open_operator()
    return replace(tenants["acme owner"], token=token)


def test_operators_see_workers_jobs_database_and_organizations(tenants: Tenants, operator: Person) -> None:
    page = re.sub(r"<[^>]*>", " ", open_page(tenants, operator, PATH))
    store = tenants.ok("GET", "/installation", operator)["installation"]["store"]
    assert store["databaseBytes"] > 0 and 0 < store["diskFreeBytes"] <= store["diskBytes"]
    assert store["migration"] in page and store["pendingMigrations"] == []
    assert tenants["rival owner"].organization_id in page


def test_credits_are_read_of_the_organizations_of_one_page(
    tenants: Tenants, operator: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PAGE_ROWS", 2)
    ledger = tenants.services.billing.ledger
    ledger.grant(tenants["acme owner"].organization_id, 7 * NANO, "system page")
    read: list[str] = []
    balance = ledger.balance
    monkeypatch.setattr(ledger, "balance", lambda ident: read.append(ident) or balance(ident))
    first = open_page(tenants, operator, PATH)
    assert tenants["acme owner"].organization_id in read
    assert "$7.00" in first
    assert len(read) == 2
    following = open_page(tenants, operator, f"{PATH}?page=2")
    assert len(set(read)) == 3
    assert tenants["rival owner"].organization_id in following


def test_the_list_of_organizations_takes_as_many_statements_for_many_as_for_few(
    tenants: Tenants, operator: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> tuple[int, list[dict[str, Any]]]:
        statements = note_statements(monkeypatch)
        listed = tenants.ok("GET", "/installation/organizations", operator)["organizations"]
        return len(statements), listed

    few, _ = ask()
    for number in range(12):
        _, _, _ = tenants.gateway.settle(f"more-{number}", (number + 1) * NANO)
    tenants.services.billing.ledger.set_unlimited(tenants["rival owner"].organization_id, True)
    many, listed = ask()
    assert many <= few + 1
    assert [one["credits"] for one in listed if one["name"] == "more-3"] == ["4"]
    assert [one["unlimited"] for one in listed if one["name"] == "rival"] == [True]
    one = next(one for one in listed if one["name"] == "rival")
    alone = tenants.ok("GET", f"/installation/organizations/{one['id']}", operator)["organization"]
    assert alone == one


def test_only_operators_open_the_pages(tenants: Tenants, operator: Person) -> None:
    """The first organization's owners operate the installation; other owners and its admins do not."""
    for who in ("acme developer", "acme owner", "rival owner"):
        open_page(tenants, tenants[who], PATH, 403)
        open_page(tenants, tenants[who], f"{PATH}/organizations/{tenants['acme owner'].organization_id}", 403)
        assert PATH not in open_page(tenants, tenants[who], "/console")
        assert press_button(tenants, tenants[who], PATH, "set-rate").status_code == 403
    assert PATH in open_page(tenants, operator, "/console")


def test_credits_of_another_organization_are_granted_once_for_a_reference(tenants: Tenants, operator: Person) -> None:
    rival = tenants["rival owner"]
    place = f"{PATH}/organizations/{rival.organization_id}"
    before = tenants.services.billing.ledger.balance(rival.organization_id).balance_nusd
    for _ in range(2):
        done = press_button(tenants, operator, place, "post", amount="12.5", kind="grant", reference="invoice-1").text
        assert "The credits were posted" in done
    assert tenants.services.billing.ledger.balance(rival.organization_id).balance_nusd == before + 12_500_000_000
    assert "unlimited" in press_button(tenants, operator, place, "unlimited", unlimited="yes").text
    assert tenants.services.billing.ledger.balance(rival.organization_id).unlimited


def test_an_organization_is_blocked_and_let_in_again(tenants: Tenants, operator: Person) -> None:
    rival = tenants["rival owner"]
    place = f"{PATH}/organizations/{rival.organization_id}"
    tenants.services.billing.ledger.grant(rival.organization_id, 10**9, "pages")
    headers = {"Authorization": f"Bearer {rival.key.token}"}
    assert "is blocked" in press_button(tenants, operator, place, "block").text
    assert tenants.client.post("/v1/chat/completions", json=BODY, headers=headers).status_code == 410
    assert "is active" in press_button(tenants, operator, place, "unblock").text
    assert tenants.client.post("/v1/chat/completions", json=BODY, headers=headers).status_code == 200


def test_discounts_caps_and_rate_limits_are_set_and_removed(tenants: Tenants, operator: Person) -> None:
    rival = tenants["rival owner"]
    place = f"{PATH}/organizations/{rival.organization_id}"
    made = press_button(tenants, operator, place, "set-discount", fraction="0.25", provider="openai").text
    [discount] = re.findall(r'name="discount" value="([^"]*)"', made)
    assert discount not in press_button(tenants, operator, place, "remove-discount", discount=discount).text
    capped = press_button(tenants, operator, place, "caps", maxKeys="3", maxKeysPerMember="").text
    assert re.findall(r'name="maxKeys"[^>]*value="([^"]*)"', capped) == ["3"]
    rate = {"scope": "model", "subject": "gpt-4o-mini", "kind": "requests"}
    limited = press_button(tenants, operator, PATH, "set-rate", **rate, amount="120").text
    assert "gpt-4o-mini</strong>: 120 requests" in limited
    assert "gpt-4o-mini</strong>: 120" not in press_button(tenants, operator, PATH, "remove-rate", **rate).text
    assert "whole number" in press_button(tenants, operator, PATH, "set-rate", **rate, amount="many").text
