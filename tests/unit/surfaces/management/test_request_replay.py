"""A logged request that is sent to another model: its price before, who pays, who may, and the audit log."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from support.console import browser_headers, open_page
from support.management import Person, Tenants

from gateway.accounts import audit
from gateway.money import NANO
from gateway.surfaces.console.request_replay import write_difference

CHAT = "/v1/chat/completions"
PROMPT = "Which </textarea><script>alert(1)</script> is it?"
BODY = {"model": "sandbox-echo", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0.5}


@pytest.fixture(scope="module")
def sent(open_tenants: Callable[[], Tenants]) -> Iterator[tuple[Tenants, str]]:
    """Tenants in which a developer made a retained request, and its id."""
    with open_tenants() as tenants:
        developer, owner = tenants["acme developer"], tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, NANO, "replay")
        tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
        tenants.ok("POST", CHAT, developer.key.token, {**BODY, "stream": False}, x_request_id="first")
        tenants.services.store.journal.flush(60)
        yield tenants, tenants.ok("GET", "/logs/first", developer)["log"]["id"]


def post_body(tenants: Tenants, who: Person, ident: str, model: str, csrf: str = "") -> tuple[int, Any]:
    csrf = csrf or re.findall(r'name="csrf" value="([^"]*)"', open_page(tenants, who, "/console/logs"))[0]
    path = f"/console/logs/{ident}/replay/body"
    answer = tenants.client.post(path, headers=browser_headers(who), data={"csrf": csrf, "model": model})
    return answer.status_code, orjson.loads(answer.data)


def test_the_price_is_shown_before_a_request_is_sent(sent: tuple[Tenants, str]) -> None:
    tenants, ident = sent
    developer = tenants["acme developer"]
    assert f"/console/logs/{ident}/replay" in open_page(tenants, developer, f"/console/logs/{ident}")
    page = open_page(tenants, developer, f"/console/logs/{ident}/replay")
    assert "The same use elsewhere" in page and "sandbox-tools" in page and 'id="replay"' not in page
    page = open_page(tenants, developer, f"/console/logs/{ident}/replay?model=sandbox-tools")
    assert "Likely at sandbox-tools" in page and "At most" in page and 'id="replay"' in page
    assert developer.key.info.description in page and f'data-project="{developer.project_id}" data-key=""' in page
    own = open_page(tenants, developer, f"/console/logs/{ident}/replay?model=sandbox-tools&for={developer.key.info.id}")
    assert f'data-key="{developer.key.info.id}"' in own
    wrong = open_page(tenants, developer, f"/console/logs/{ident}/replay?model=<b>none</b>")
    assert "There is no model" in wrong and 'id="replay"' not in wrong


def test_the_body_has_the_other_model_and_each_time_is_audited(sent: tuple[Tenants, str]) -> None:
    tenants, ident = sent
    developer = tenants["acme developer"]
    status, answer = post_body(tenants, developer, ident, "sandbox-tools")
    assert status == 200 and answer["path"] == CHAT
    assert answer["body"] == {"model": "sandbox-tools", "messages": BODY["messages"], "temperature": 0.5}
    entry = audit.list_entries(tenants.services.store.database, developer.organization_id)[0]
    assert (entry.action, entry.subject, entry.actor) == ("request.replay", ident, developer.user_id)
    assert '"sandbox-tools"' in entry.detail and PROMPT not in str(entry.detail)
    # The script sends it with the visitor's own key, and opens the comparison of both.
    tenants.ok("POST", answer["path"], developer.key.token, answer["body"], x_request_id="second")
    tenants.services.store.journal.flush(60)
    page = open_page(tenants, developer, f"/console/logs/compare?request={ident}&request=second")
    assert '<th scope="row">model</th><td>sandbox-echo</td><td>sandbox-tools</td>' in page
    assert "Both prompts are the same." in page


def test_only_people_who_see_a_request_replay_it_from_pages_of_this_site(sent: tuple[Tenants, str]) -> None:
    tenants, ident = sent
    for name, status in (("acme colleague", 403), ("rival owner", 404)):
        open_page(tenants, tenants[name], f"/console/logs/{ident}/replay?model=sandbox-tools", status)
        assert post_body(tenants, tenants[name], ident, "sandbox-tools")[0] == status
    assert post_body(tenants, tenants["acme developer"], ident, "sandbox-tools", csrf="x")[0] == 403
    assert post_body(tenants, tenants["acme developer"], ident, "")[0] == 400


def test_a_key_of_another_person_is_not_offered(sent: tuple[Tenants, str]) -> None:
    tenants, ident = sent
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    page = open_page(tenants, owner, f"/console/logs/{ident}/replay?model=sandbox-tools&for={developer.key.info.id}")
    assert f'value="{developer.key.info.id}"' not in page and f'data-key="{developer.key.info.id}"' not in page


def test_a_request_without_its_payload_has_a_price_and_cannot_be_sent(sent: tuple[Tenants, str]) -> None:
    tenants, _ = sent
    owner = tenants["acme owner"]
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "none"})
    tenants.ok("POST", CHAT, owner.key.token, BODY, x_request_id="unkept")
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    tenants.services.store.journal.flush(60)
    page = open_page(tenants, owner, "/console/logs/unkept/replay?model=sandbox-tools")
    assert "The payload of this request was not retained" in page and 'id="replay"' not in page
    assert "The same use elsewhere" in page
    assert post_body(tenants, owner, "unkept", "sandbox-tools")[0] == 400


def test_the_difference_is_written_as_people_read_it() -> None:
    assert write_difference(5, 5) == "the same"
    assert write_difference(3 * NANO, 2 * NANO) == "$1.00 more (50 %)"
    assert write_difference(NANO, 2 * NANO) == "$1.00 less (50 %)"
    assert write_difference(NANO, 0) == "$1.00 more"
