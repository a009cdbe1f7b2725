import pytest
from support.management import Person, Tenants
from werkzeug.test import Client

from gateway.accounts import audit
from gateway.accounts.projects import ProjectChange, update_project
from gateway.clock import HOUR_US, to_iso


def ask(tenants: Tenants, person: Person, words: str = "Hello", **headers: str) -> str:
    """The log id of a request of the sandbox made with the person's key."""
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": words}]}
    return tenants.ok("POST", "/v1/chat/completions", person.key.token, body, **headers)["metadata"]["log_id"]


@pytest.fixture
def paying(tenants: Tenants) -> Tenants:
    """Both organizations have credits."""
    for name in ("acme owner", "rival owner"):
        tenants.services.billing.ledger.grant(tenants[name].organization_id, 10**9, name)
    return tenants


@pytest.fixture
def retaining(paying: Tenants) -> Tenants:
    """They retain, too."""
    tenants, services = paying, paying.services
    for name in ("acme owner", "rival owner"):
        change = ProjectChange(retention="retain")
        update_project(services.store.database, services.store.control, tenants[name].project_id, change, actor="test")
    return tenants


def listed(tenants: Tenants, who: Person, query: str = "") -> list[str]:
    return [log["id"] for log in tenants.ok("GET", f"/logs{query}", who)["logs"]]


def test_a_log_shows_request_answer_and_cost(retaining: Tenants) -> None:
    ident = ask(retaining, retaining["acme developer"], "What is retained?")
    found = retaining.ok("GET", f"/logs/{ident}", retaining["acme owner"])
    log = found["log"]
    assert '"What is retained?"' in found["request"]["text"] and ident in found["response"]["text"]
    assert found["request"]["encoding"] == "utf-8" and found["request"]["bytes"] == log["requestBytes"]
    assert (log["model"], log["status"], log["streamed"], log["attempts"]) == ("sandbox/sandbox-echo", 200, False, 1)
    fee = (log["inputTokens"] + log["outputTokens"]) * 10
    assert fee > 0 and float(log["dataStorageCost"]) == fee / 10**9 and found["upstream"] == []


def test_upstream_requests_are_shown_when_they_were_recorded(retaining: Tenants) -> None:
    ident = ask(retaining, retaining["acme developer"], x_debug="true")
    [exchange] = retaining.ok("GET", f"/logs/{ident}", retaining["acme developer"])["upstream"]
    assert exchange["method"] == "POST" and exchange["status"] == 200 and "Hello" in exchange["request"]


def test_the_list_is_paged_newest_first(retaining: Tenants) -> None:
    mine = [ask(retaining, retaining["acme developer"], f"number {n}") for n in range(5)]
    owner = retaining["acme owner"]
    first = retaining.ok("GET", "/logs?limit=3", owner)
    second = retaining.ok("GET", f"/logs?limit=3&cursor={first['next']}", owner)
    assert [one["id"] for one in first["logs"] + second["logs"]] == mine[::-1]
    assert second["next"] is None and "text" not in str(first)


def test_logs_are_found_by_project_key_model_and_time(retaining: Tenants) -> None:
    owner, developer, colleague = (retaining[f"acme {role}"] for role in ("owner", "developer", "colleague"))
    one, other = ask(retaining, developer), ask(retaining, colleague)
    assert listed(retaining, owner, f"?projectId={owner.project_id}") == [other, one]
    assert listed(retaining, owner, f"?apiKeyId={developer.key.info.id}") == [one]
    assert listed(retaining, owner, "?model=sandbox/sandbox-echo") == [other, one]
    assert listed(retaining, owner, "?model=other") == []
    [newer] = [log for log in retaining.ok("GET", "/logs", owner)["logs"] if log["id"] == other]
    assert one not in listed(retaining, owner, f"?from={to_iso(retaining.services.clock.now_us() + 10**9)}")
    assert other not in listed(retaining, owner, f"?to={newer['createdAt']}")


@pytest.mark.parametrize(
    "query",
    [
        "?cursor=x",
        "?cursor=99",
        "?metadata=abc",
        "?status=9",
        "?limit=0",
        "?limit=101",
        "?from=now",
        "?from=2026-02-01&to=2026-01-01",
    ],
)
def test_a_wrong_question_is_refused(shared_tenants: Tenants, query: str) -> None:
    assert shared_tenants.refused("GET", f"/logs{query}", shared_tenants["acme owner"]).startswith("400")


def test_a_range_of_time_ends_now_and_overrides_the_beginning(retaining: Tenants, monkeypatch) -> None:
    owner, clock = retaining["acme owner"], retaining.services.clock
    ident = ask(retaining, retaining["acme developer"])
    assert listed(retaining, owner, "?timeRange=1h&from=2999-01-01") == [ident]
    now_us = clock.now_us()
    monkeypatch.setattr(clock, "now_us", lambda: now_us + 2 * HOUR_US)
    assert listed(retaining, owner, "?timeRange=1h") == []
    assert listed(retaining, owner, "?timeRange=4h") == [ident]


def test_a_developer_sees_the_requests_of_their_own_keys(retaining: Tenants) -> None:
    developer, colleague = retaining["acme developer"], retaining["acme colleague"]
    mine, theirs = ask(retaining, developer), ask(retaining, colleague)
    assert listed(retaining, developer) == [mine]
    assert retaining.refused("GET", f"/logs/{theirs}", developer) == "403 permission_denied"
    assert retaining.refused("DELETE", f"/logs/{theirs}", developer) == "403 permission_denied"
    assert listed(retaining, retaining["acme admin"]) == [theirs, mine]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_another_tenant_learns_nothing(retaining: Tenants, method: str) -> None:
    ident = ask(retaining, retaining["acme developer"])
    stranger = retaining["rival owner"]
    assert retaining.refused(method, f"/logs/{ident}", stranger) == "404 not_found"
    assert retaining.refused(method, f"/logs/{'0' * 32}", stranger) == "404 not_found"
    assert listed(retaining, stranger) == []
    assert retaining.refused("GET", f"/logs?projectId={retaining['acme owner'].project_id}", stranger).startswith("403")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_api_key_reads_no_log(retaining: Tenants, method: str) -> None:
    developer = retaining["acme developer"]
    ident = ask(retaining, developer)
    assert retaining.refused(method, f"/logs/{ident}", developer.key.token) == "401 session_invalid"
    assert retaining.refused("GET", "/logs", developer.key.token) == "401 session_invalid"


def test_a_deleted_log_is_gone_and_its_usage_stays(retaining: Tenants) -> None:
    developer = retaining["acme developer"]
    ident = ask(retaining, developer)
    before = retaining.ok("GET", "/activity", developer)["activity"]
    retaining.ok("DELETE", f"/logs/{ident}", developer)
    left = retaining.ok("GET", f"/logs/{ident}", developer)
    assert left["request"] is None is left["response"] and left["log"]["retained"] is False
    assert retaining.refused("DELETE", f"/logs/{ident}", developer) == "404 not_found"
    assert retaining.ok("GET", "/activity", developer)["activity"] == before and before[0]["dataStorageCost"] > 0
    [entry] = audit.list_entries(retaining.services.store.database, developer.organization_id, limit=1)
    assert (entry.action, entry.subject, entry.actor) == ("request_log.delete", ident, developer.user_id)


def test_setting_back_to_none_keeps_existing_rows(retaining: Tenants) -> None:
    owner, services = retaining["acme owner"], retaining.services
    ident = ask(retaining, owner)
    retaining.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "none"})
    later = ask(retaining, owner)
    assert listed(retaining, owner) == [later, ident] and listed(retaining, owner, "?retained=true") == [ident]
    database = services.store.database
    database.write(lambda: database.execute("UPDATE request_log SET expires_at = 1"))
    assert listed(retaining, owner, "?retained=true") == []
    assert retaining.ok("GET", f"/logs/{ident}", owner)["request"] is None
    assert services.engine.retention.purge() == 1


def test_every_request_is_listed_whatever_its_project_retains(paying: Tenants) -> None:
    tenants, developer = paying, paying["acme developer"]
    ident = ask(tenants, developer, x_request_id="build-77", x_source="shop.example")
    found = tenants.ok("GET", "/logs/build-77", developer)
    log, [attempt] = found["log"], found["attempts"]
    assert (log["id"], log["requestId"], log["source"], log["retained"]) == (ident, "build-77", "shop.example", False)
    assert (log["served"], log["error"], log["cost"]) == ("sandbox/sandbox-echo", None, attempt["cost"])
    assert attempt["provider"] == "sandbox" and set(attempt["costs"]) == {
        "inputCost", "outputCost", "cachedInputCost", "cacheWriteInputCost",
    }  # fmt: skip
    assert found["routing"]["selectionReason"] and found["request"] is None and found["upstream"] == []
    assert listed(tenants, developer, "?requestId=build-77&source=shop.example&provider=sandbox&status=200") == [ident]
    assert listed(tenants, developer, "?source=unknown") == [] == listed(tenants, developer, "?errorCode=timeout")


def test_one_id_of_two_tenants_leads_each_to_their_own_request(paying: Tenants) -> None:
    tenants = paying
    mine, theirs = (ask(tenants, tenants[f"{name} owner"], x_request_id="same") for name in ("acme", "rival"))
    for name, ident in (("acme", mine), ("rival", theirs)):
        assert tenants.ok("GET", "/logs/same", tenants[f"{name} owner"])["log"]["id"] == ident
    assert tenants.refused("GET", "/logs/same", tenants["acme colleague"]) == "404 not_found"


def test_the_key_of_another_person_is_like_an_unknown_one(paying: Tenants) -> None:
    tenants = paying
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    ident = ask(tenants, owner)
    for who, shown in ((owner, [ident]), (developer, []), (tenants["rival owner"], [])):
        answer = tenants.ok("GET", f"/logs?apiKeyId={owner.key.info.id}&limit=1", who)
        assert [log["id"] for log in answer["logs"]] == shown and answer["next"] is None
    tenants.ok("DELETE", f"/keys/api/{owner.key.info.id}", owner)
    assert listed(tenants, owner, f"?apiKeyId={owner.key.info.id}") == [ident]
    assert listed(tenants, owner, "?apiKeyId=nothing") == []


CHAT = "/v1/chat/completions"
BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


def settle(tenants: Tenants) -> None:
    tenants.services.telemetry.request_log.flush()
    tenants.services.store.journal.flush(60)


def test_a_request_that_was_refused_is_in_the_log_with_its_code(tenants: Tenants) -> None:
    developer, key = tenants["acme developer"], tenants["acme developer"].key.token
    sent = [
        (402, BODY, {"x_request_id": "one", "x_source": "shop.example"}),  # there are no credits
        (400, BODY | {"messages": 7}, {"x_request_id": "two"}),
        (400, BODY | {"model": "no-such-model"}, {"x_request_id": "three"}),
        (415, None, {"x_request_id": "four"}),
    ]
    for status, body, headers in sent:
        assert tenants.call("POST", CHAT, key, body, **headers)[0] == status
    assert tenants.call("POST", CHAT, "llmgtwy_" + "0" * 40, BODY)[0] == 401
    settle(tenants)
    found = tenants.ok("GET", "/logs", developer)["logs"]
    assert [(one["requestId"], one["status"], one["error"]) for one in found] == [
        ("four", 415, "unsupported_media_type"), ("three", 400, "model_not_found"),
        ("two", 400, "invalid_parameters"), ("one", 402, "insufficient_credits"),
    ]  # fmt: skip
    assert [one["model"] for one in found[1:]] == ["no-such-model", "sandbox/sandbox-echo", "sandbox/sandbox-echo"]
    assert all(one["attempts"] == 0 and one["served"] is None and one["path"] == CHAT for one in found)
    assert listed(tenants, developer, "?errorCode=insufficient_credits&status=402&source=shop.example") == [
        found[3]["id"]
    ]
    assert tenants.ok("GET", "/logs/one", tenants["acme owner"])["attempts"] == []
    assert listed(tenants, tenants["acme colleague"]) == [] == listed(tenants, tenants["rival owner"])


def test_requests_refused_by_a_closed_project_are_in_the_log(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    path = f"/projects/{owner.project_id}"
    tenants.ok("DELETE", path, owner)
    assert tenants.call("POST", CHAT, developer.key.token, BODY, x_request_id="gone")[0] == 410
    tenants.ok("PATCH", path, owner, {"status": "active"})
    settle(tenants)
    for who in (owner, developer):
        [found] = tenants.ok("GET", "/logs?status=410", who)["logs"]
        assert (found["requestId"], found["error"], found["apiKeyId"]) == (
            "gone",
            "project_archived",
            developer.key.info.id,
        )
    assert listed(tenants, tenants["acme colleague"]) == [] == listed(tenants, tenants["rival owner"])


def test_a_flood_of_refusals_is_one_line_of_the_list(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    for _ in range(40):
        assert tenants.call("POST", CHAT, developer.key.token, BODY)[0] == 402
    settle(tenants)
    found = tenants.ok("GET", "/logs?limit=100", developer)["logs"]
    assert sum(one["requestCount"] for one in found) == 40 and len(found) < 40


def test_metadata_of_a_request_is_stored_and_can_be_searched(paying: Tenants) -> None:
    tenants, developer = paying, paying["acme developer"]
    tags = {"x_llmgateway_team": "search", "x_llmgateway_customer": "Müller".encode().decode("latin-1")}
    mine = ask(tenants, developer, x_llmgateway_empty="", **tags)
    streamed = tenants.client.post(
        CHAT, json=BODY | {"stream": True},
        headers={"Authorization": f"Bearer {developer.key.token}", "X-LLMGateway-Team": "search"},
    )  # fmt: skip
    assert streamed.data.endswith(b"[DONE]\n\n")
    streamed.close()  # as a server does
    ask(tenants, developer, x_llmgateway_team="other")
    assert (
        tenants.call("POST", CHAT, developer.key.token, BODY | {"model": "none"}, x_llmgateway_team="search")[0] == 400
    )
    settle(tenants)
    found = tenants.ok("GET", "/logs?metadata=team:search", developer)["logs"]
    assert [(one["status"], one["streamed"]) for one in found] == [(400, False), (200, True), (200, False)]
    assert found[2]["id"] == mine and found[2]["metadata"] == {"team": "search", "customer": "Müller"}
    assert listed(tenants, developer, "?metadata=Team:search&metadata=customer:M%C3%BCller") == [mine]
    assert listed(tenants, developer, "?metadata=team:search&metadata=customer:other") == []
    assert listed(tenants, tenants["acme colleague"], "?metadata=team:search") == []


def test_a_caller_cannot_fill_the_disk_with_metadata(paying: Tenants) -> None:
    tenants, developer = paying, paying["acme developer"]
    many = {f"x_llmgateway_n{number:02d}": "v" * 1000 for number in range(40)} | {"x_llmgateway_" + "n" * 65: "long"}
    ident = ask(tenants, developer, **many)
    settle(tenants)
    kept = tenants.ok("GET", f"/logs/{ident}", developer)["log"]["metadata"]
    assert 0 < len(kept) <= 16 and sum(len(name) + len(value) for name, value in kept.items()) <= 2048
    assert max(map(len, kept.values())) == 256


def test_a_request_whose_body_was_not_read_is_in_the_log(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    headers = {"Authorization": f"Bearer {developer.key.token}", "Content-Encoding": "unheard-of"}
    client = Client(tenants.gateway.app, use_cookies=False)
    answer = client.post(CHAT, data=b"x", headers=headers | {"Content-Type": "application/json"})
    settle(tenants)
    [one] = tenants.ok("GET", "/logs", developer)["logs"]
    assert answer.status_code == one["status"] == 415 and one["path"] == CHAT
    assert answer.headers["x-request-id"] == one["id"]


WISHES = (
    "", "projectId={project}", "apiKeyId={key}", "model=sandbox/sandbox-echo", "model=no-such-model",
    "provider=sandbox", "status=200", "status=400", "errorCode=model_not_found", "source=shop.example",
    "source=unknown", "requestId=theirs",
    "metadata=team:search", "retained=true", "retained=true&metadata=team:search", "from=2020-01-01", "to=2999-01-01",
    "apiKeyId={key}&projectId={project}&requestId=theirs&errorCode=model_not_found", "cursor={after}", "limit=1",
)  # fmt: skip


@pytest.mark.slow
def test_no_parameter_shows_a_developer_the_requests_of_another_key(retaining: Tenants) -> None:
    owner, developer, stranger = (retaining[name] for name in ("acme owner", "acme developer", "rival owner"))
    said = {"x_llmgateway_team": "search", "x_source": "shop.example", "x_request_id": "theirs"}
    theirs = ask(retaining, owner, **said)
    retaining.call("POST", CHAT, owner.key.token, BODY | {"model": "no-such-model"}, **said)
    settle(retaining)
    names = {"project": owner.project_id, "key": owner.key.info.id, "after": "f" * 32}
    assert len(listed(retaining, owner)) == 2
    for wish in WISHES:
        query = wish.format(**names)
        for path in ("/logs", "/logs/export", "/activity/export"):
            for who in (developer, stranger):
                status, answer = retaining.call("GET", f"{path}?format=jsonl&{query}", who)
                assert status in (200, 403, 400), (path, query, answer)
                assert theirs not in str(answer) and owner.key.info.id not in str(answer), (path, query)
                if path == "/logs" and status == 200:
                    assert answer == {"logs": [], "next": None}, query


def fail(tenants: Tenants, person: Person, model: str) -> dict:
    """The logged attempt of a request that the sandbox refused."""
    body = {"model": f"sandbox/{model}", "messages": [{"role": "user", "content": "Hello"}]}
    status, _ = tenants.call("POST", "/v1/chat/completions", person.key.token, body, x_request_id=model)
    assert status >= 400
    tenants.services.store.journal.flush(60)
    return tenants.ok("GET", f"/logs/{model}", person)["attempts"][0]


def test_an_attempt_shows_the_providers_own_error_text(paying: Tenants) -> None:
    attempt = fail(paying, paying["acme owner"], "sandbox-fail-500")
    assert attempt["status"] == 500 and "had an error" in attempt["upstreamError"]


@pytest.mark.parametrize("status", [401, 403])
def test_the_refusal_of_the_platforms_credential_is_shown_to_the_operator_alone(paying: Tenants, status: int) -> None:
    attempt = fail(paying, paying["acme owner"], f"sandbox-fail-{status}")
    assert (attempt["status"], attempt["upstreamError"]) == (status, None)
    database = paying.services.store.database
    rows = database.read(lambda: database.execute(f"SELECT extra FROM usage WHERE status = {status}").fetchall())
    assert "upstream_error" in rows[0][0]


def test_no_providers_text_is_kept_under_a_policy_against_logging(paying: Tenants) -> None:
    owner = paying["acme owner"]
    paying.ok("PUT", f"/orgs/{owner.organization_id}/policy", owner, {"blockPromptLogging": True})
    assert fail(paying, owner, "sandbox-fail-500")["upstreamError"] is None
