"""The usage page: the spending by key and person, and the permission to see it."""

import re
from html import unescape

import pytest
from support.management import Person, Tenants

from gateway.accounts import keys

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def used(open_tenants) -> Tenants:
    """Tenants in which a developer and their colleague made requests that statistics have summed up."""
    with open_tenants() as tenants:
        tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "pages")
        for who, times in (("acme developer", 2), ("acme colleague", 1)):
            for _ in range(times):
                tenants.ok("POST", "/v1/chat/completions", tenants[who].key.token, BODY)
        tenants.services.store.journal.flush(5)
        tenants.services.billing.rollups.catch_up()
        yield tenants


def cookie(who: Person) -> dict[str, str]:
    return {"Cookie": f"llmgateway.session_token={who.token}"}


def read(tenants: Tenants, who: Person, query: str = "") -> str:
    return unescape(tenants.client.get(f"/connect/usage{query}", headers=cookie(who)).text)


def requests_of(page: str) -> int:
    return int(re.findall(r"<dt>Requests</dt><dd>(\d+),", page)[0])


def test_managers_see_what_all_spent_and_developers_what_their_own_keys_did(used: Tenants) -> None:
    page = read(used, used["acme owner"])
    assert requests_of(page) == 3 and "sandbox/sandbox-echo" in page and "Remaining credits of" in page
    assert "of which 0 failed and 0 came from the cache" in page
    page = read(used, used["acme developer"])
    assert requests_of(page) == 2 and "Remaining credits of" not in page
    page = read(used, used["rival owner"])
    assert requests_of(page) == 0 and "No requests in this period." in page


def test_usage_is_told_by_key_and_person_and_for_a_time_and_project(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    by_key = read(used, owner, f"?groupBy=apiKey&timeRange=24h&projectId={owner.project_id}")
    assert requests_of(by_key) == 3 and developer.key.info.description in by_key
    assert '<option value="24h" selected>' in by_key and f'value="{owner.project_id}" selected' in by_key
    assert '<th scope="col">Hour</th>' in by_key
    by_person = read(used, owner, "?groupBy=user&timeRange=nonsense")
    assert '<option value="7d" selected>' in by_person and '<th scope="col">Person</th>' in by_person
    assert read(used, owner, "?timeRange=30d").count("<td>20") == 30
    assert read(used, owner, "?timeRange=365d").count("<td>20") == 1
    foreign = used.client.get(f"/connect/usage?projectId={owner.project_id}", headers=cookie(used["rival owner"]))
    assert foreign.status_code == 403


def test_keys_of_the_same_name_are_lines_of_their_own(used: Tenants) -> None:
    developer, colleague = used["acme developer"].key, used["acme colleague"].key
    database, control = used.services.store.database, used.services.store.control
    keys.update(database, control, colleague.info.id, keys.Change(description=developer.info.description), actor="test")
    page = read(used, used["acme owner"], "?groupBy=apiKey")
    assert page.count(f"<td>{developer.info.description}</td>") == 2
