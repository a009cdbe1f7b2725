"""The playground: its page, its short-lived keys, and requests that are replayed."""

import re
from datetime import UTC, datetime
from html import unescape

import orjson
from support.console import CSRF, browser_headers, open_page
from support.management import Person, Tenants

from gateway.accounts.keys import list_keys
from gateway.clock import HOUR_US

PATH = "/console/playground"
HOSTILE = "</textarea><script>alert(1)</script>"


def make_key(tenants: Tenants, who: Person, **fields: str):
    csrf = CSRF.findall(open_page(tenants, who, "/console/keys/new"))[0]
    data = {"csrf": csrf, "project": who.project_id, **fields}
    return tenants.client.post(f"{PATH}/key", headers=browser_headers(who), data=data)


def test_the_key_of_the_playground_calls_models_and_nothing_else_and_expires(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    answer = make_key(tenants, developer)
    assert answer.status_code == 200 and "no-store" in answer.headers["Cache-Control"]
    assert set(answer.json) == {"token", "expiresAt"}
    expiry = datetime.fromisoformat(answer.json["expiresAt"])
    assert 0 < (expiry - datetime.now(UTC)).total_seconds() <= 3600
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    tenants.services.billing.ledger.grant(developer.organization_id, 10**9, "test")
    said = tenants.ok("POST", "/v1/chat/completions", answer.json["token"], body)
    assert said["choices"][0]["message"]["content"] == "Hello"
    status, _ = tenants.call("GET", "/v1/key", answer.json["token"])
    assert status == 403


def test_expired_keys_of_the_playground_are_deleted(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    for person in (owner, developer):
        make_key(tenants, person)
    services = tenants.services
    now = services.clock.now_us()
    services.store.database.write(
        lambda: services.store.database.execute(
            "UPDATE api_key SET expires_at = ? WHERE description = 'Playground'", (now - HOUR_US,)
        )
    )
    make_key(tenants, owner)
    for person, state in ((owner, "active"), (developer, "expired")):
        keys = list_keys(services.store.database, project_ids=[owner.project_id], member_id=person.member_id)
        assert [key.state for key in keys if key.description == "Playground"] == [state]


def test_a_key_needs_the_form_of_the_page_and_a_project_of_the_person(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    assert make_key(shared_tenants, owner, csrf="0" * 64).status_code == 403
    foreign = make_key(shared_tenants, shared_tenants["rival owner"], project=owner.project_id)
    assert foreign.status_code == 403 and "not a member" in foreign.json["message"]
    foreign = {"Cookie": browser_headers(owner)["Cookie"], "Origin": "https://evil.example"}
    assert shared_tenants.client.post(f"{PATH}/key", headers=foreign, data={}).status_code == 403
    signed_out = shared_tenants.client.post(f"{PATH}/key", headers={"Origin": "http://localhost"}, data={})
    assert signed_out.status_code == 401 and "Sign in again" in signed_out.json["message"]


def test_the_page_lists_usable_models_and_allows_no_inline_script(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    answer = shared_tenants.client.get(PATH, headers=browser_headers(owner))
    assert '<option value="sandbox-echo">' in answer.text and '<option value="gpt-4o-mini">' not in answer.text
    assert '<option value="sandbox-image">' in answer.text and '<option value="sandbox-speak">' in answer.text
    lists = re.compile(r'<datalist id="models(?:-chat)?">(.*?)</datalist>', re.DOTALL)
    [of_playground] = lists.findall(answer.text)
    [of_setup] = lists.findall(open_page(shared_tenants, owner, "/console/setup"))
    assert of_setup == f'<option value="auto">{of_playground}'
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "media-src blob:" in policy and "unsafe" not in policy


def test_a_retained_request_is_ready_to_be_sent_again(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "test")
    body = {"model": "sandbox-echo", "temperature": 0.5, "messages": [{"role": "user", "content": HOSTILE}]}
    named = body | {"model": "sandbox/sandbox-echo"}
    first = tenants.ok("POST", "/v1/chat/completions", owner.key.token, named)["metadata"]["log_id"]
    only_model = open_page(tenants, owner, f"{PATH}?request={first}")
    assert "was not retained" in only_model and 'list="models-chat" value="sandbox/sandbox-echo"' in only_model
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    kept = tenants.ok("POST", "/v1/chat/completions", owner.key.token, body)["metadata"]["log_id"]
    raw = tenants.client.get(f"{PATH}?request={kept}", headers=browser_headers(owner)).text
    assert HOSTILE not in raw
    [seed] = re.findall(r'<textarea id="seed" hidden>(.*?)</textarea>', raw)
    assert orjson.loads(unescape(seed)) == body
    open_page(tenants, tenants["rival owner"], f"{PATH}?request={kept}", status=404)
    open_page(tenants, tenants["acme developer"], f"{PATH}?request={kept}", status=403)
