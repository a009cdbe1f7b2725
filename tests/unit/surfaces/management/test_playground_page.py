"""The playground: its page, its short-lived keys, and requests that are replayed."""

import re
import time
from datetime import UTC, datetime
from html import unescape

import orjson
from support.console import CSRF, browser_headers, open_page
from support.management import Person, Tenants

from gateway.accounts.keys import list_keys
from gateway.clock import HOUR_US
from gateway.surfaces.console.sign_in_pages import SIGN_OUT
from gateway.surfaces.console.visits import make_csrf
from gateway.surfaces.visitors.visitor import visit

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


def test_the_picker_lists_what_the_chosen_key_can_call(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    answer = tenants.client.get(PATH, headers=browser_headers(owner))
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "media-src blob:" in policy and "unsafe" not in policy
    listed = list_models(tenants, owner, owner.project_id)
    chat = [model["id"] for model in listed["chat"]]
    assert chat[:2] == ["auto", "smart"] and "sandbox-echo" in chat and "gpt-4o-mini" not in chat
    for mode, model in (
        ("image", "sandbox-image"),
        ("speech", "sandbox-speak"),
        ("transcription", "sandbox-transcribe"),
        ("video", "sandbox-film"),
    ):
        assert [one["id"] for one in listed[mode]] == [model]
    [of_setup] = re.findall(
        r'<datalist id="models">(.*?)</datalist>', open_page(tenants, owner, "/console/setup"), re.DOTALL
    )
    assert re.findall('value="(.*?)"', of_setup) == ["auto", *(name for name in chat if name not in ("auto", "smart"))]
    rule = {"ruleType": "allow_models", "ruleValue": {"models": ["sandbox-echo"]}}
    tenants.ok("POST", f"/keys/api/{owner.key.info.id}/iam", owner, rule)
    of_key = [model["id"] for model in list_models(tenants, owner, owner.key.info.id)["chat"]]
    assert of_key == ["auto", "smart", "sandbox-echo"]


def list_models(tenants: Tenants, who: Person, choice: str):
    answer = tenants.client.get(f"{PATH}/models?for={choice}", headers=browser_headers(who))
    assert answer.status_code == 200
    return answer.json


def test_a_token_of_an_own_key_pays_as_the_key_and_ends_with_it(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "test")
    answer = make_key(tenants, developer, key=developer.key.info.id)
    token = answer.json["token"]
    assert answer.status_code == 200 and token.startswith("llmgpg_")
    expiry = datetime.fromisoformat(answer.json["expiresAt"])
    assert 0 < (expiry - datetime.now(UTC)).total_seconds() <= 900
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    log_id = tenants.ok("POST", "/v1/chat/completions", token, body)["metadata"]["log_id"]
    assert tenants.ok("GET", f"/logs/{log_id}", owner)["log"]["apiKeyId"] == developer.key.info.id
    assert tenants.call("POST", "/v1/chat/completions", f"{token[:-1]}0", body)[0] == 401
    head, _, rest = token.partition(".")
    assert tenants.call("POST", "/v1/chat/completions", f"{head}.9{rest}", body)[0] == 401
    services = tenants.services
    session = services.management.sessions.find(developer.token).id
    past = services.accounts.authentication.make_page_token(developer.key.info.id, session, services.clock.now_us() - 1)
    assert tenants.call("POST", "/v1/chat/completions", past, body)[0] == 401
    tenants.ok("PATCH", f"/keys/api/{developer.key.info.id}", developer, {"status": "inactive"})
    assert tenants.call("POST", "/v1/chat/completions", token, body)[0] == 401
    assert make_key(tenants, developer, key=developer.key.info.id).status_code == 401


def test_a_token_of_an_own_key_ends_with_the_session(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "test")
    sessions = tenants.services.management.sessions
    elsewhere = sessions.open(developer.user_id)
    token = make_key(tenants, developer, key=developer.key.info.id).json["token"]
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    tenants.ok("POST", "/v1/chat/completions", token, body)
    sessions.close(elsewhere.info.id, actor=developer.user_id)
    time.sleep(1.1)
    tenants.ok("POST", "/v1/chat/completions", token, body)
    form = {"csrf": make_csrf(tenants.services, visit(tenants.services, developer.token), SIGN_OUT)}
    left = tenants.client.post("/console/logout", headers=browser_headers(developer), data=form)
    assert left.status_code == 303
    time.sleep(1.1)
    status, refused = tenants.call("POST", "/v1/chat/completions", token, body)[:2]
    assert status == 401 and "sign in" in str(refused)
    tenants.ok("POST", "/v1/chat/completions", developer.key.token, body)


def test_nobody_gets_a_token_of_a_key_of_another_person(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    colleague = shared_tenants["acme developer"].key.info.id
    refused = make_key(shared_tenants, owner, key=colleague)
    assert refused.status_code == 403 and "another person" in refused.json["message"]
    assert make_key(shared_tenants, shared_tenants["rival owner"], key=colleague).status_code in (403, 404)
    page = open_page(shared_tenants, owner, f"{PATH}?for={colleague}")
    assert f'value="{colleague}"' not in page


def change_presets(tenants: Tenants, who: Person, **fields: str):
    csrf = CSRF.findall(open_page(tenants, who, "/console/keys/new"))[0]
    data = {"csrf": csrf, "project": who.project_id, **fields}
    return tenants.client.post(f"{PATH}/presets", headers=browser_headers(who), data=data)


def test_presets_are_of_a_person_or_a_project_and_sealed(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    content = '{"settings": {"system": "Be secretive"}}'
    assert change_presets(tenants, developer, action="save", name="Mine", content=content).json["presets"][0]["own"]
    change_presets(tenants, owner, action="save", name="Ours", content=content, shared="true")
    again = change_presets(tenants, owner, action="save", name="Ours", content='{"settings": {}}', shared="true")
    assert [(one["name"], one["content"]) for one in again.json["presets"]] == [("Ours", {"settings": {}})]
    seen = tenants.client.get(f"{PATH}/presets?project={owner.project_id}", headers=browser_headers(developer)).json
    assert [(one["name"], one["own"], one["removable"]) for one in seen["presets"]] == [
        ("Mine", True, True),
        ("Ours", False, False),
    ]
    database = tenants.services.store.database
    assert not any("secretive" in row[0] for row in database.query_rows("SELECT content FROM playground_preset", ()))
    ours = seen["presets"][1]["id"]
    assert change_presets(tenants, developer, action="remove", preset=ours).status_code == 403
    rival = tenants["rival owner"]
    foreign = tenants.client.get(f"{PATH}/presets?project={owner.project_id}", headers=browser_headers(rival))
    assert foreign.status_code in (403, 404)
    assert change_presets(tenants, rival, action="remove", preset=ours).status_code == 404
    assert change_presets(tenants, owner, action="remove", preset=ours).json == {"presets": []}
    for wrong in ({"name": ""}, {"name": "x" * 81}, {"content": "{"}, {"content": "[" + "1," * 30_000 + "1]"}):
        fields = {"action": "save", "name": "Wrong", "content": content} | wrong
        assert change_presets(tenants, owner, **fields).status_code == 400


def test_an_organization_without_data_retention_has_no_presets(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    tenants.ok("PUT", f"/orgs/{owner.organization_id}/policy", owner, {"zeroDataRetention": True})
    refused = change_presets(tenants, owner, action="save", name="Mine", content="{}")
    assert refused.status_code == 400 and "zero data retention" in refused.json["message"]
    assert 'data-stores="false"' in open_page(tenants, owner, PATH)


def test_a_retained_request_is_ready_to_be_sent_again(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "test")
    body = {"model": "sandbox-echo", "temperature": 0.5, "messages": [{"role": "user", "content": HOSTILE}]}
    named = body | {"model": "sandbox/sandbox-echo"}
    first = tenants.ok("POST", "/v1/chat/completions", owner.key.token, named)["metadata"]["log_id"]
    only_model = open_page(tenants, owner, f"{PATH}?request={first}")
    assert "was not retained" in only_model and 'data-model="sandbox/sandbox-echo"' in only_model
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    kept = tenants.ok("POST", "/v1/chat/completions", owner.key.token, body)["metadata"]["log_id"]
    raw = tenants.client.get(f"{PATH}?request={kept}", headers=browser_headers(owner)).text
    assert HOSTILE not in raw
    [seed] = re.findall(r'<textarea id="seed" hidden>(.*?)</textarea>', raw)
    assert orjson.loads(unescape(seed)) == body
    open_page(tenants, tenants["rival owner"], f"{PATH}?request={kept}", status=404)
    open_page(tenants, tenants["acme developer"], f"{PATH}?request={kept}", status=403)
