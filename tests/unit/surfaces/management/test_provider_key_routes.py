import pytest
from fakes.embedding_services import FakeEmbeddingServices
from fakes.image_services import FakeImageServices
from fakes.openai import FakeOpenAI
from fakes.speech_services import FakeSpeechServices
from fakes.structured_services import FakeStructuredServices

SECRET = "sk-very-secret-provider-key-0123456789"


def add(tenants, who, **more) -> dict:
    given = {"organizationId": who.organization_id, "provider": "openai", "token": SECRET, **more}
    return tenants.ok("POST", "/keys/provider", who, given)["providerKey"]


def test_a_provider_key_is_kept_encrypted_and_never_shown(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    made = add(shared_tenants, owner, name="Main", allowedModels=["gpt-4o-mini"], maxSpend="25")
    assert (made["name"], made["maxSpend"], made["allowedModels"]) == ("Main", "25", ["gpt-4o-mini"])
    listed = shared_tenants.ok("GET", "/keys/provider", owner)["providerKeys"]
    assert made in listed and SECRET not in str(listed)
    rows = shared_tenants.services.store.database.read(
        lambda: shared_tenants.services.store.database.execute("SELECT secret FROM provider_key").fetchall()
    )
    assert SECRET not in str(rows)


def test_a_new_provider_key_names_the_projects_that_use_it_and_how_to_switch_the_others(tenants) -> None:
    owner = tenants["acme owner"]
    [spending] = tenants.ok("GET", f"/orgs/{owner.organization_id}/projects", owner)["projects"]
    body = {"organizationId": owner.organization_id, "name": "Own", "mode": "api-keys"}
    own = tenants.ok("POST", "/projects", owner, body)["project"]
    given = {"organizationId": owner.organization_id, "provider": "openai", "token": SECRET, "projects": "unchanged"}
    answer = tenants.ok("POST", "/keys/provider", owner, given)
    assert answer["switched"] == [] and [one["id"] for one in answer["usedBy"]] == [own["id"]]
    [unused] = answer["unusedBy"]
    assert unused["id"] == spending["id"] and unused["switchCommand"].endswith(f"{spending['id']} --mode hybrid")
    assert "1 project spends credits and does not use it" in answer["message"]
    step = unused["switchRequest"]
    tenants.ok(step["method"], step["path"], owner, step["body"])
    answer = tenants.ok("POST", "/keys/provider", owner, given)
    assert answer["unusedBy"] == [] and len(answer["usedBy"]) == 2
    assert answer["message"] == "Every active project of the organization uses it."


def test_every_active_project_uses_a_new_provider_key_at_once(tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/projects"
    [spending] = tenants.ok("GET", path, owner)["projects"]
    body = {"organizationId": owner.organization_id, "name": "Own", "mode": "api-keys"}
    tenants.ok("POST", "/projects", owner, body)
    old = tenants.ok("POST", "/projects", owner, {**body, "name": "Old", "mode": "credits"})["project"]
    tenants.ok("DELETE", f"/projects/{old['id']}", owner)
    given = {"organizationId": owner.organization_id, "provider": "openai", "token": SECRET}
    answer = tenants.ok("POST", "/keys/provider", owner, given)
    assert answer["unusedBy"] == [] and [one["id"] for one in answer["switched"]] == [spending["id"]]
    assert "'mode' of 1 of them is 'hybrid' now" in answer["message"]
    modes = {one["name"]: one["mode"] for one in tenants.ok("GET", f"{path}?includeArchived=true", owner)["projects"]}
    assert modes == {spending["name"]: "hybrid", "Own": "api-keys", "Old": "credits"}
    actions = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]
    assert {"provider_key.create", "project.update"} <= {entry["action"] for entry in actions}


def test_a_service_account_changes_projects_only_within_its_scopes(tenants) -> None:
    owner = tenants["acme owner"]
    given = {"organizationId": owner.organization_id, "provider": "openai", "token": SECRET}
    path = f"/orgs/{owner.organization_id}/service-accounts"

    def add_as(*scopes: str, **more: str) -> tuple[int, dict]:
        made = tenants.ok("POST", path, owner, {"name": "-".join(scopes), "scopes": list(scopes)})
        headers = {"Authorization": f"Bearer {made['serviceAccount']['token']}"}
        answer = tenants.client.post("/keys/provider", headers=headers, json={**given, **more})
        return answer.status_code, answer.json

    status, answer = add_as("providers:write")
    assert status == 201 and answer["switched"] == [] and len(answer["unusedBy"]) == 1
    assert add_as("providers:write", "projects:read", projects="all")[0] == 403
    status, answer = add_as("providers:write", "projects:write", projects="all")
    assert status == 201 and len(answer["switched"]) == 1


def test_the_spending_of_a_bounded_key_is_shown(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    made = add(shared_tenants, owner, maxSpend="5")
    assert made["spent"] == "0"
    database = shared_tenants.services.store.database
    sql = "UPDATE budget SET settled_nusd = 1500000000 WHERE scope_id = ?"
    database.write(lambda: database.execute(sql, (made["id"],)))
    listed = shared_tenants.ok("GET", "/keys/provider", owner)["providerKeys"]
    assert [one["spent"] for one in listed if one["id"] == made["id"]] == ["1.5"]
    changed = shared_tenants.ok("PATCH", f"/keys/provider/{made['id']}", owner, {"maxSpend": "6"})["providerKey"]
    assert (changed["maxSpend"], changed["spent"]) == ("6", "1.5")


def test_a_rotated_key_uses_the_new_secret_at_once(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    made = add(shared_tenants, owner)
    fresh = "sk-another-secret-of-the-provider-98765"
    rotated = shared_tenants.ok("POST", f"/keys/provider/{made['id']}/rotate", owner, {"token": fresh})["providerKey"]
    assert rotated["id"] == made["id"] and rotated["maskedToken"] != made["maskedToken"]
    keys = shared_tenants.services.management.provider_keys.keys_for(owner.organization_id, "openai")
    assert fresh in {key.secret for key in keys}


def test_a_provider_key_is_changed_switched_and_removed(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/keys/provider/{add(shared_tenants, owner, maxSpend='3')['id']}"
    given = {"name": "Other", "region": "eu", "status": "inactive", "maxSpend": None}
    changed = shared_tenants.ok("PATCH", path, owner, given)["providerKey"]
    assert {name: changed[name] for name in given} == given
    shared_tenants.ok("DELETE", path, owner)
    assert shared_tenants.refused("PATCH", path, owner, given) == "404 not_found"


@pytest.mark.parametrize("given", [{"provider": "no-such-provider"}, {"token": " "}, {"baseUrl": "ftp://x"},
                                   {"baseUrl": "https://user:pw@x"}, {"maxSpend": "-1"}, {"provider": "custom:none"},
                                   {"baseUrl": "https://[x"}, {"token": "sk-one\nsk-two"},
                                   {"token": "sk-\u00e4"}], ids=str)  # fmt: skip
def test_an_impossible_provider_key_is_a_400(shared_tenants, given) -> None:
    owner = shared_tenants["acme owner"]
    body = {"organizationId": owner.organization_id, "provider": "openai", "token": SECRET, **given}
    assert shared_tenants.refused("POST", "/keys/provider", owner, body) == "400 invalid_parameters"


def test_the_key_of_a_service_account_may_have_lines(shared_tenants) -> None:
    add(shared_tenants, shared_tenants["acme owner"], token='{\n  "type": "service_account"\n}\n')


def test_trying_a_key_calls_the_provider_with_it(shared_tenants) -> None:
    owner = shared_tenants["rival owner"]
    with FakeOpenAI() as upstream:
        made = add(shared_tenants, owner, baseUrl=upstream.url, allowedModels=["gpt-4o-mini"])
        result = shared_tenants.ok("POST", f"/keys/provider/{made['id']}/test", owner, {"model": "gpt-4o-mini"})
        sent = [call.headers["authorization"] for call in upstream.calls]
    assert result["ok"] is True and result["model"] == "gpt-4o-mini" and result["error"] is None
    assert sent == [f"Bearer {SECRET}"]


@pytest.mark.parametrize(
    ("provider", "kind", "path"),
    [
        ("elevenlabs", FakeSpeechServices, "/eleven/v1"),
        ("voyage", FakeEmbeddingServices, "/voyage/v1"),
        ("jina", FakeEmbeddingServices, "/jina/v1"),
        ("typesafe", FakeStructuredServices, "/v1"),
        ("bytedance", FakeImageServices, "/ark/v3"),
    ],
)
def test_a_key_of_a_provider_without_a_chat_model_is_tried_too(shared_tenants, provider, kind, path) -> None:
    owner = shared_tenants["acme owner"]
    with kind() as upstream:
        made = add(shared_tenants, owner, provider=provider, baseUrl=upstream.address + path)
        result = shared_tenants.ok("POST", f"/keys/provider/{made['id']}/test", owner, {})
        assert result["ok"] is True and len(upstream.calls) == 1, result
        if provider == "elevenlabs":
            upstream.script(401)
            refused = shared_tenants.ok("POST", f"/keys/provider/{made['id']}/test", owner, {})
            assert refused["ok"] is False and refused["error"]["upstreamStatus"] == 401


def test_a_provider_that_does_not_answer_is_reported_without_the_secret(shared_tenants) -> None:
    owner = shared_tenants["rival owner"]
    made = add(shared_tenants, owner, baseUrl="http://127.0.0.1:9/v1")
    result = shared_tenants.ok("POST", f"/keys/provider/{made['id']}/test", owner, {})
    assert result["ok"] is False and result["error"]["code"] == "fetch_failed" and SECRET not in str(result)


def test_trying_keys_is_limited(tenants) -> None:
    owner = tenants["rival owner"]
    made = add(tenants, owner, baseUrl="http://127.0.0.1:9/v1")
    path = f"/keys/provider/{made['id']}/test"
    statuses = [tenants.call("POST", path, owner, {})[0] for _ in range(11)]
    assert statuses == [200] * 10 + [429]


def test_a_custom_provider_with_prices_is_kept_and_tried(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/custom-providers"
    models = [{"id": "gpt-4o-mini", "prices": {"prompt": "0.000001", "completion": "0.000002"}}]
    with FakeOpenAI() as upstream:
        body = {"name": "mine", "baseUrl": upstream.url, "models": models}
        made = shared_tenants.ok("POST", path, owner, body)["customProvider"]
        key = add(shared_tenants, owner, provider=made["providerId"])
        assert shared_tenants.ok("POST", f"/keys/provider/{key['id']}/test", owner, {})["ok"] is True
    changed = shared_tenants.ok("PATCH", f"{path}/mine", owner, {"models": []})["customProvider"]
    assert changed["models"] == [] and changed["baseUrl"] == made["baseUrl"]
    shared_tenants.ok("DELETE", f"{path}/mine", owner)
    assert shared_tenants.ok("GET", path, owner)["customProviders"] == []
    assert shared_tenants.refused("DELETE", f"/keys/provider/{key['id']}", owner) == "404 not_found"


IMPOSSIBLE = [
    *({"id": "m", "prices": {"prompt": "much"}}, {"id": "m", "prices": "x"}, {"id": ""}),
    *({"id": "m", "prices": {"soup": "1"}}, {"id": "m", "unknown": 1}),
]


@pytest.mark.parametrize("model", IMPOSSIBLE, ids=str)
def test_a_custom_model_with_impossible_prices_is_a_400(shared_tenants, model) -> None:
    owner = shared_tenants["acme owner"]
    body = {"name": "bad", "baseUrl": "https://example.com/v1", "models": [model]}
    path = f"/orgs/{owner.organization_id}/custom-providers"
    assert shared_tenants.refused("POST", path, owner, body) == "400 invalid_parameters"
