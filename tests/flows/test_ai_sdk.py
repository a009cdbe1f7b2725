"""The AI SDK's surface through the whole gateway: rows as of chat completions, errors, privacy, the model list."""

import json
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from werkzeug.test import Client

from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.keys import Draft, create
from gateway.accounts.members import list_members
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.accounts.rules import add_rule
from gateway.limits.budgets import Limits
from gateway.surfaces import surface_table

MODEL = "openai/gpt-4o-mini"
PREFIXES = {"/v1/ai": 2, "/v3/ai": 3, "/v4/ai": 4}
PARTS = ("message", "type", "param", "code")
# Columns of a usage row that differ between any two requests.
EACH_ITS_OWN = {"request", "at", "posted_at", "duration_ms", "ttft_ms", "operation", "label", "request_id", "decision"}


def prompt(text: str = "Hello") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


class Caller:
    """One who calls a gateway by one of its lanes."""

    def __init__(self, gateway: LocalGateway, lane: str = "express") -> None:
        app = gateway.app
        self._client = Client(app if lane == "express" else app.flask.wsgi_app)
        self._key = gateway.key

    def generate(self, prefix: str = "/v4/ai", model: str = MODEL, stream: bool = False, **more: Any) -> Any:
        """One call of the language model; `headers` and `body` are added to what a client sends."""
        headers = {"ai-language-model-id": model, "ai-language-model-streaming": str(stream).lower()}
        headers = self.identity() | headers | more.pop("headers", {})
        body = {"prompt": prompt(), **more}
        return self._client.post(f"{prefix}/language-model", json=body, headers=headers)

    def chat(self, text: str = "Hello", **more: Any) -> Any:
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}
        return self._client.post("/v1/chat/completions", json=body, headers=self.identity())

    def get(self, path: str, key: str = "", **headers: str) -> Any:
        return self._client.get(path, headers=self.identity(key) | headers)

    def open(self, *arguments: Any, **more: Any) -> Any:
        return self._client.open(*arguments, **more)

    def identity(self, key: str = "") -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self._key}"}


@pytest.fixture(params=["express", "flask"])
def caller(request: pytest.FixtureRequest, gateway: LocalGateway) -> Caller:
    return Caller(gateway, request.param)


@pytest.fixture
def express_caller(gateway: LocalGateway) -> Caller:
    return Caller(gateway)


def parts_of(answer: Any) -> list[dict[str, Any]]:
    lines = answer.get_data(as_text=True).splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


# Equal rows.


def row_of(record: Any) -> dict[str, Any]:
    return {name: value for name, value in record._asdict().items() if name not in EACH_ITS_OWN}


WAYS: dict[str, tuple[Answer, dict[str, Any], dict[str, Any]]] = {
    "text": (Answer("Good day."), {}, {}),
    "settings": (
        Answer("Good day.", cached=3, prompt=20),
        {"maxOutputTokens": 50, "temperature": 0.5, "topP": 0.9},
        {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9},
    ),
    "tools": (
        Answer(tools=(("look", "{}"),)),
        {"tools": [{"type": "function", "name": "look", "inputSchema": {"type": "object"}}]},
        {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]},
    ),
    "own options": (
        Answer("Good day.", service_tier="flex"),
        {"providerOptions": {"llmgateway": {"service_tier": "flex", "user": "u-1"}}},
        {"service_tier": "flex", "user": "u-1"},
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_chat_completions(
    gateway: LocalGateway, caller: Caller, upstream: FakeOpenAI, way: str, stream: bool
) -> None:
    answer, options, fields = WAYS[way]
    upstream.script(answer, answer)
    # The upstream counts its input, so both requests report the same usage.
    answers = [caller.generate(stream=stream, **options), caller.chat(stream=stream, **fields)]
    assert [answer.status_code for answer in answers] == [200, 200] and all(answer.get_data() for answer in answers)
    first, second = usage_of(gateway)
    assert row_of(first) == row_of(second) and first.cost_nusd > 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_repeated_question_is_a_cache_hit_as_in_chat(
    gateway: LocalGateway, caller: Caller, upstream: FakeOpenAI, stream: bool
) -> None:
    stores = gateway.services.store
    update_project(
        stores.database,
        stores.control,
        gateway.project_id,
        ProjectChange(cache_enabled=True, cache_ttl_s=60),
        actor="t",
    )
    upstream.script(Answer("Once."), Answer("Once."))
    answers = [one(stream=stream) for one in (caller.generate, caller.generate, caller.chat, caller.chat)]
    bodies = [one.get_data(as_text=True) for one in answers]
    assert [one.headers.get("x-llmgateway-cache", "") for one in answers] == ["", "HIT", "", "HIT"]
    assert len(upstream.calls) == 2 and all("Once." in body for body in bodies)
    rows = usage_of(gateway)
    assert row_of(rows[1]) == row_of(rows[3]) and rows[1].cost_nusd == 0


def test_a_limit_refuses_as_in_chat(gateway: LocalGateway, caller: Caller, upstream: FakeOpenAI) -> None:
    own = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", own.key_id, Limits(total_nusd=0))
    ours, theirs = caller.generate(), caller.chat()
    assert ours.status_code == theirs.status_code == 402 and upstream.calls == []
    assert ours.json["error"]["code"] == theirs.json["error"]["code"] == "key_limit_reached"
    assert ours.json["error"]["type"] == "invalid_request_error"


# Errors: always the envelope.


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("method", "path", "more", "status", "kind"),
    [
        ("POST", "/language-model", {"data": b"{", "type": "application/json"}, 400, "invalid_request_error"),
        ("POST", "/language-model", {"data": b"[]", "type": "application/json"}, 400, "invalid_request_error"),
        ("POST", "/language-model", {"data": b"{}", "type": "text/plain"}, 415, "invalid_request_error"),
        ("GET", "/language-model", {}, 405, "invalid_request_error"),
        ("POST", "/config", {"data": b"{}", "type": "application/json"}, 405, "invalid_request_error"),
        ("POST", "/embedding-model", {"data": b"{}", "type": "application/json"}, 404, "not_found"),
        ("POST", "/image-model", {"data": b"{}", "type": "application/json"}, 404, "not_found"),
        ("GET", "/nothing/here", {}, 404, "not_found"),
    ],
)
def test_every_refusal_below_the_prefixes_is_in_the_envelope(
    caller: Caller, prefix: str, method: str, path: str, more: dict, status: int, kind: str
) -> None:
    headers = caller.identity() | {"ai-language-model-id": MODEL}
    answer = caller.open(
        prefix + path, method=method, headers=headers, data=more.get("data"), content_type=more.get("type")
    )
    assert answer.status_code == status and answer.headers["content-type"] == "application/json"
    error = answer.json["error"]
    assert error["type"] == kind and all(isinstance(error[name], str) for name in PARTS) and error["code"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("path", ["config", "language-model"])
def test_without_a_key_the_envelope_says_so(caller: Caller, prefix: str, path: str) -> None:
    method = "GET" if path == "config" else "POST"
    answer = caller.open(f"{prefix}/{path}", method=method, json=None if method == "GET" else {})
    assert answer.status_code == 401 and answer.json["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("lane", ["express", "flask"])
def test_a_body_that_is_too_large_is_refused_in_the_envelope(share: Share, lane: str) -> None:
    small = share.gateway({"GATEWAY_SERVER_MAX_BODY_MB": "1"})
    answer = Caller(small, lane).generate(prompt=prompt("x" * 1_100_000))
    assert answer.status_code == 413 and answer.json["error"]["type"] == "invalid_request_error"


def test_a_crash_is_in_the_envelope(own_gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(own_gateway.services.engine.chat, "generate", crash)
    for lane in ("express", "flask"):
        answer = Caller(own_gateway, lane).generate()
        assert answer.status_code == 500 and answer.json["error"]["type"] == "internal_server_error"
        assert "a bug" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("model", "status", "kind", "code"),
    [
        ("openai/nothing", 404, "model_not_found", "model_not_found"),
        ("nothing-at-all", 404, "model_not_found", "model_not_found"),
        ("dynamic/none", 404, "model_not_found", "dynamic_route_not_found"),
        ("", 400, "invalid_request_error", "invalid_parameters"),
    ],
)
def test_models_that_cannot_be_called(express_caller: Caller, model: str, status: int, kind: str, code: str) -> None:
    answer = express_caller.generate(model=model)
    assert (answer.status_code, answer.json["error"]["type"], answer.json["error"]["code"]) == (status, kind, code)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "auto"])
def test_bare_ids_and_auto_are_called_and_not_listed(express_caller: Caller, upstream: FakeOpenAI, model: str) -> None:
    assert express_caller.generate(model=model).status_code == 200
    assert model not in {entry["id"] for entry in express_caller.get("/v4/ai/config").json["models"]}


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"maxOutputTokens": 0}, "maxOutputTokens"),
        ({"topP": 2}, "topP"),
        ({"reasoning": "enormous"}, "reasoning"),
        ({"tools": [{"type": "function", "name": "", "inputSchema": {}}]}, "tools.0.name"),
        ({"tools": [{"type": "function", "name": "x", "inputSchema": []}]}, "tools.0.inputSchema"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [{"role": "robot", "content": []}]}, "prompt.0.role"),
        ({"prompt": [{"role": "user", "content": [{"type": "smell"}]}]}, "prompt.0.content.0.type"),
        ({"providerOptions": {"llmgateway": "all"}}, "providerOptions.llmgateway"),
        ({"providerOptions": {"llmgateway": {"temperature": 3}}}, "temperature"),
        ({"providerOptions": {"llmgateway": {"max_tokens": 0}}}, "max_tokens"),
        ({"providerOptions": {"llmgateway": {"service_tier": "gold"}}}, "service_tier"),
        ({"providerOptions": {"llmgateway": {"plugins": 1}}}, "plugins"),
    ],
)
def test_a_wrong_option_is_named_as_the_caller_wrote_it(
    express_caller: Caller, upstream: FakeOpenAI, options: dict, param: str
) -> None:
    answer = express_caller.generate(**options)
    assert answer.status_code == 400 and answer.json["error"]["param"] == param and upstream.calls == []


def test_our_own_options_win_and_cannot_change_the_request(express_caller: Caller, upstream: FakeOpenAI) -> None:
    own = {
        "temperature": 0.9,
        "reasoning": {"effort": "low"},
        "model": "x",
        "messages": [],
        "stream": True,
        "stop": "x",
    }
    answer = express_caller.generate(
        temperature=0.1, reasoning="high", providerOptions={"llmgateway": own, "openai": {"x": [1]}, "y": 3}
    )
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    (call,) = upstream.calls
    assert call.body["temperature"] == 0.9 and call.body["messages"] == [{"role": "user", "content": "Hello"}]


# Versions.


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("header", ["", "2", "3", "4", "9"])
def test_the_header_shows_the_version_and_else_the_prefix(
    express_caller: Caller, upstream: FakeOpenAI, prefix: str, header: str
) -> None:
    upstream.script(Answer("Good day."))
    headers = {"ai-language-model-specification-version": header} if header else {}
    body = express_caller.generate(prefix, headers=headers).json
    version = int(header) if header in ("2", "3", "4") else PREFIXES[prefix]
    assert isinstance(body["finishReason"], str) is (version == 2)
    assert ("inputTokens" in body["usage"]) and isinstance(body["usage"]["inputTokens"], int) is (version == 2)


def test_cost_and_trail_are_reported_in_usage_and_metadata(express_caller: Caller, upstream: FakeOpenAI) -> None:
    body = express_caller.generate(headers={"x-request-id": "mine"}).json
    raw, own = body["usage"]["raw"], body["providerMetadata"]["llmgateway"]
    assert raw["cost"] == own["cost"] > 0 and raw["cost_details"]["total_cost"] == raw["cost"]
    assert own["request_id"] == "mine" and own["used_provider"] == "openai" and len(own["routing"]) == 1
    assert body["response"]["modelId"] == MODEL


# Privacy.


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_headers_within_the_body_are_kept_nowhere(
    gateway: LocalGateway, caller: Caller, upstream: FakeOpenAI, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    services = gateway.services
    change = ProjectChange(retention="retain", retention_days=3)
    update_project(services.store.database, services.store.control, gateway.project_id, change, actor="t")
    secret = "sk-of-the-caller-0123456789"
    answer = caller.generate(stream=stream, seed=123456789012345678901234567890, headers={}, **{"maxOutputTokens": 9})
    assert answer.status_code == 200 and answer.get_data()
    body = {"prompt": prompt("Keep me"), "headers": {"authorization": secret}}
    headers = caller.identity() | {"ai-language-model-id": MODEL, "ai-language-model-streaming": str(stream)}
    answer = caller.open("/v4/ai/language-model", method="POST", json=body, headers=headers)
    assert answer.status_code == 200 and answer.get_data()
    services.store.journal.flush(5)
    kept = services.store.database.read(
        lambda: services.store.database.execute("SELECT request FROM request_log ORDER BY at").fetchall()
    )
    logs = [services.engine.retention.find(bytes(row[0]).hex()) for row in kept]
    sent = [services.engine.retention.read(log).sent for log in logs if log.project.hex() in gateway.project_id]
    assert len(sent) == 2 and b"123456789012345678901234567890" in sent[0]
    assert json.loads(sent[1]) == {"prompt": prompt("Keep me")}
    assert secret not in caplog.text and secret not in json.dumps([call.body for call in upstream.calls])


# Idempotency.


def test_the_headers_that_choose_are_part_of_an_idempotent_request(
    express_caller: Caller, upstream: FakeOpenAI
) -> None:
    keyed = {"idempotency-key": "one"}
    first = express_caller.generate(headers=keyed | {"ai-o11y-request-id": "a"})
    again = express_caller.generate(headers=keyed | {"ai-o11y-request-id": "b"})
    assert again.headers["idempotent-replayed"] == "true" and again.get_data() == first.get_data()
    for change in ({"model": "openai/gpt-4o"}, {"stream": True}):
        answer = express_caller.generate(headers=keyed, **change)
        assert answer.status_code == 422 and answer.json["error"]["code"] == "idempotency_key_reused"
    assert len(upstream.calls) == 1


def test_a_stream_is_replayed_byte_for_byte(express_caller: Caller, upstream: FakeOpenAI) -> None:
    first, again = (
        express_caller.generate(stream=True, headers={"idempotency-key": "two"}).get_data() for _ in range(2)
    )
    assert first == again and b'"type":"finish"' in first and len(upstream.calls) == 1


# The list.

ROUTES = {"smart", "claude-smart"}


def test_the_list_has_the_version_of_its_prefix_and_plain_prices(express_caller: Caller) -> None:
    for prefix, version in PREFIXES.items():
        entries = express_caller.get(f"{prefix}/config").json["models"]
        assert {entry["specification"]["specificationVersion"] for entry in entries} == {f"v{version}"}
        assert all(entry["specification"]["modelId"] == entry["id"] for entry in entries)
        assert {entry["id"] for entry in entries if "/" not in entry["id"]} == ROUTES
        known = {entry["id"]: entry for entry in entries}
        assert known[MODEL]["pricing"]["input"] == "0.00000015" and known[MODEL]["modelType"] == "language"
        prices = [value for entry in entries if entry["pricing"] for value in entry["pricing"].values()]
        assert not any("e" in value.lower() for value in prices) and len(known) == len(entries)


def test_the_list_begins_with_models_that_the_key_can_call(express_caller: Caller) -> None:
    everything = [entry["id"] for entry in express_caller.get("/v4/ai/config").json["models"]]
    usable = [entry["id"] for entry in express_caller.get("/v4/ai/config?available=true").json["models"]]
    assert MODEL in usable and len(usable) < len(everything) == len(set(everything))
    assert everything[: len(usable)] == usable


def test_the_list_is_shared_and_named_by_a_tag(express_caller: Caller, gateway: LocalGateway) -> None:
    first = express_caller.get("/v4/ai/config")
    tag = first.headers["etag"]
    assert express_caller.get("/v4/ai/config", **{"If-None-Match": tag}).status_code == 304
    other_answer = express_caller.get("/v4/ai/config", key=gateway.add_organization("another-of-the-list"))
    assert other_answer.headers["etag"] == tag and other_answer.get_data() == first.get_data()
    assert express_caller.get("/v3/ai/config").headers["etag"] != tag
    packed = express_caller.get("/v4/ai/config", **{"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip" and len(packed.get_data()) < len(first.get_data()) / 4


def test_only_models_that_make_text_are_listed(express_caller: Caller, gateway: LocalGateway) -> None:
    listed = {entry["id"] for entry in express_caller.get("/v4/ai/config").json["models"]}
    catalogue = gateway.services.routing.catalogue.current()
    for model in catalogue.models.values():
        for mapping in model.mappings:
            if "chat" not in mapping.operations or "text" not in model.output_modalities:
                assert mapping.key not in listed


def test_rules_narrow_the_list(express_caller: Caller, gateway: LocalGateway) -> None:
    stores = gateway.services.store
    value = {"providers": ["openai"]}
    add_rule(
        stores.database, stores.control, "organization", gateway.organization_id, "allow_providers", value, actor="t"
    )
    listed = {entry["id"] for entry in express_caller.get("/v4/ai/config").json["models"]}
    assert MODEL in listed and {ident.partition("/")[0] for ident in listed - ROUTES} == {"openai"}
    elsewhere = express_caller.get("/v4/ai/config", key=gateway.add_organization("without-rules")).json["models"]
    assert {entry["id"] for entry in elsewhere} > listed


def test_an_organizations_own_models_are_listed_for_its_own_keys_alone(
    express_caller: Caller, gateway: LocalGateway
) -> None:
    services = gateway.services
    stores = services.store
    models = [{"id": "private-1"}]
    CustomProviders(stores.database, stores.control).add(
        gateway.organization_id, "house", "https://house.example/v1", models, actor="t"
    )
    services.accounts.provider_keys.add(
        gateway.organization_id, ProviderKeyDraft("custom:house", "house-key"), actor="t"
    )
    update_project(stores.database, stores.control, gateway.project_id, ProjectChange(mode="api-keys"), actor="t")
    member = next(
        member for member in list_members(stores.database) if member.organization_id == gateway.organization_id
    )
    draft = Draft(gateway.project_id, member.id, "a customer's", "customer")
    customer = create(stores.database, stores.control, stores.secrets.hash_keys, draft, actor="t").token
    lists = {
        who: {entry["id"] for entry in express_caller.get("/v4/ai/config", key=key).json["models"]}
        for who, key in {"own": "", "customer": customer, "other": gateway.add_organization("a-stranger")}.items()
    }
    assert lists["own"] - lists["customer"] == {"house/private-1"} and lists["customer"] == lists["other"]
    assert express_caller.get("/v1/credits", key=customer).status_code == 403
    # Clients know the kind of an error by its type alone.
    assert express_caller.get("/v1/credits", key=customer).json["error"]["type"] == "forbidden"
    assert express_caller.get("/v1/credits", key="llmgtwy_unknown").json["error"]["type"] == "authentication_error"


@pytest.mark.parametrize(
    "operation",
    [operation for operation in surface_table.operations() if "/ai/" in operation.path],
    ids=lambda operation: operation.path,
)
def test_generating_is_paid_and_hot_and_the_list_is_neither(operation: Any) -> None:
    asks = operation.path.endswith("language-model")
    assert operation.paid is asks and operation.hot is asks and operation.about is not None


@pytest.mark.parametrize("strategy", ["price", "fastest"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_strategy_is_left_out_for_a_listed_id(caller: Caller, strategy: str, stream: bool) -> None:
    """Every id that this surface lists names its provider."""
    answer = caller.generate(stream=stream, providerOptions={"llmgateway": {"routing": strategy}})
    assert answer.status_code == 200
    assert f"routing was left out: {MODEL} names its provider." in answer.headers["x-llmgateway-warnings"]
    written = parts_of(answer)[0]["warnings"] if stream else answer.json["warnings"]
    assert stream or [one["message"].split()[0] for one in written] == ["routing"]
    refused = caller.generate(model="gpt-4o-mini", providerOptions={"llmgateway": {"routing": "fastest"}})
    assert (refused.status_code, refused.json["error"]["param"]) == (400, "routing")
