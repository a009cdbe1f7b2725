"""Finding pages, keys, people, views and requests: each person finds what they may open."""

import re

import pytest
from support.console import open_page
from support.management import Person, Tenants

from gateway.accounts import keys, saved_views
from gateway.accounts.keys import Change
from gateway.surfaces.console.find_pages import MOST

FOUND = re.compile(r'<li><a href="http://localhost([^"]*)">([^<]*)</a> <span class="note">(\w[^<·]*)')
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def used(tenants: Tenants) -> Tenants:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "find")
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    tenants.ok("POST", "/v1/chat/completions", developer.key.token, body, x_request_id="order-4711")
    tenants.services.store.journal.flush(60)
    saved_views.add(tenants.services.store.database, owner.organization_id, owner.user_id, "Weekly spend", "", False)
    return tenants


def find(tenants: Tenants, who: Person, text: str) -> list[tuple[str, str]]:
    """Return kind and name of what is found; each address opens."""
    page = open_page(tenants, who, f"/console/find?q={text}").partition('id="found"')[2]
    found = FOUND.findall(page)
    for path, _, _ in found:
        assert tenants.client.get(path, headers={"Cookie": f"llmgateway.session_token={who.token}"}).status_code == 200
    return [(kind.strip(), name) for _, name, kind in found]


def test_pages_are_found_by_their_names_as_far_as_a_person_may_open_them(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    assert ("Page", "Audit log") in find(used, owner, "audit") and ("Page", "Audit log") not in find(
        used, developer, "audit"
    )
    assert find(used, owner, "eXpl") == [("Page", "Explore")]
    assert len(find(used, owner, "")) > len(find(used, developer, "")) > 5
    assert find(used, owner, "nothing+of+this+name") == []


def test_the_oldest_of_many_keys_is_found(used: Tenants) -> None:
    owner, store = used["acme owner"], used.services.store
    by = {"actor": owner.user_id}
    for number in range(210):
        draft = keys.Draft(owner.project_id, owner.member_id, f"100% of_{number}")
        keys.create(store.database, store.control, store.secrets.hash_keys, draft, **by)
    assert ("API key", owner.key.info.description) in find(used, owner, owner.key.info.id)
    assert find(used, owner, "100%25+of_0") == [("API key", "100% of_0")]
    assert find(used, owner, "100%25+of_209") == [("API key", "100% of_209")]


def test_keys_and_people_are_found_by_words_of_their_names(used: Tenants) -> None:
    owner, developer, colleague = (used[name] for name in ("acme owner", "acme developer", "acme colleague"))
    assert ("Person", "developer@acme.example") in find(used, owner, "developer+acme")
    assert all(kind != "Person" for kind, _ in find(used, developer, "acme"))
    key = colleague.key.info
    assert ("API key", key.description) in find(used, owner, key.id)
    assert find(used, developer, key.id) == [] and find(used, used["rival owner"], key.id) == []
    store = used.services.store
    keys.update(store.database, store.control, key.id, Change(description=HOSTILE), actor="test")
    page = used.client.get(
        "/console/find?q=onerror", headers={"Cookie": f"llmgateway.session_token={owner.token}"}
    ).text
    assert "&lt;img src=x" in page and HOSTILE not in page
    strange = used.client.get(
        "/console/find?q=%22%3E%3Cscript%3Ealert(1)", headers={"Cookie": f"llmgateway.session_token={owner.token}"}
    ).text
    assert "<script>alert" not in strange


def test_a_request_is_found_by_its_id_and_by_the_one_that_its_caller_sent(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    ident = used.ok("GET", "/logs", owner)["logs"][0]["id"]
    for text in (ident, "order-4711"):
        assert ("Request", ident) in find(used, owner, text)
        assert ("Request", ident) in find(used, developer, text)
        for who in ("acme colleague", "rival owner"):
            assert find(used, used[who], text) == []
    assert find(used, owner, "f" * 32) == []


def test_views_are_found_and_results_are_few(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    assert ("View", "Weekly spend") in find(used, owner, "weekly") and find(used, developer, "weekly") == []
    for number in range(MOST + 3):
        saved_views.add(used.services.store.database, owner.organization_id, owner.user_id, f"Many {number}", "", False)
    assert len(find(used, owner, "many")) == MOST
