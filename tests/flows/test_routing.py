"""Routing through the whole gateway: failover, keys that take turns, sessions, explanations, custom providers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import httpx
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import GatewayProcess, LocalGateway, free_port, local_gateway
from support.shared import Share
from support.two_providers import write_twins

from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.metering.usage_table import find

HELLO = [{"role": "user", "content": "Hello"}]
SESSION = {"x-session-id": "conversation-1"}


@pytest.fixture
def south(share: Share) -> FakeOpenAI:
    return share.fake(FakeOpenAI, name="other")


@pytest.fixture
def twins(share: Share, upstream: FakeOpenAI, south: FakeOpenAI) -> LocalGateway:
    """`twin` at north (`upstream`) and south (`other`)."""
    keys = {"NORTH_KEYS": "north-1,north-2,north-3"}
    return share.gateway(lambda folder: write_twins(folder / "catalogue", upstream.url, south.url) | keys)


@pytest.fixture
def chat(twins: LocalGateway) -> Callable[..., Any]:
    client = OpenAI(base_url=twins.url, api_key=twins.key, max_retries=0)

    def create(model: str = "twin", messages: list | None = None, session: str = "", **more: Any) -> Any:
        headers = {"x-session-id": session} if session else {}
        return client.chat.completions.create(
            model=model, messages=messages or HELLO, extra_headers=headers | more.pop("headers", {}), **more
        )

    return create


def get(gateway: LocalGateway, path: str, key: str = "") -> httpx.Response:
    with httpx.Client(timeout=60) as http:
        return http.get(gateway.address + path, headers={"Authorization": f"Bearer {key or gateway.key}"})


def post(gateway: LocalGateway, path: str, body: dict, **headers: str) -> httpx.Response:
    with httpx.Client(timeout=60) as http:
        return http.post(
            gateway.address + path, json=body, headers={"Authorization": f"Bearer {gateway.key}", **headers}
        )


def keys_of(fake: FakeOpenAI) -> list[str]:
    return [call.headers["authorization"].removeprefix("Bearer ") for call in fake.calls]


def trail(answer: Any) -> list[tuple[str, int, bool]]:
    return [(one["provider"], one["status_code"], one["succeeded"]) for one in answer.metadata["routing"]]


def set_project(gateway: LocalGateway, **change: Any) -> str:
    services = gateway.services
    stores = services.store.database, services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(**change), actor="test")
    return gateway.organization_id


def test_the_cheapest_healthy_provider_serves(chat, upstream, south):
    answer = chat()
    assert answer.metadata["used_provider"] == "north" and (len(upstream.calls), len(south.calls)) == (1, 0)


def test_a_failing_provider_is_passed_over_and_every_attempt_has_its_row(chat, twins, upstream):
    upstream.script(Answer(status=500))
    answer = chat()
    assert trail(answer) == [("north", 500, False), ("south", 200, True)]
    rows = find(twins.services.store.database, answer.metadata["log_id"])
    assert [(row.provider, row.attempt, row.status, row.cost_nusd > 0) for row in rows] == [
        ("north", 0, 500, False),
        ("south", 1, 200, True),
    ]


def test_a_stream_that_fails_before_its_first_content_is_switched_unseen(chat, upstream):
    upstream.script(Answer("Lost words", cut=0))
    chunks = list(chat(stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "Hello." and chunks[-1].metadata["used_provider"] == "south"


def test_a_stream_that_fails_after_its_first_content_is_never_switched(chat, upstream, south):
    upstream.script(Answer("A long answer that is cut somewhere", piece=2, cut=1500))
    with pytest.raises(openai.APIError):
        list(chat(stream=True))
    assert south.calls == []


def test_without_fallback_no_other_provider_is_called(chat, upstream, south):
    upstream.script(Answer(status=500))
    with pytest.raises(openai.APIStatusError) as caught:
        chat(headers={"x-no-fallback": "true"})
    assert caught.value.status_code == 502 and south.calls == []


def test_a_named_provider_is_not_left_for_one_failure(chat, upstream, south):
    upstream.script(Answer(status=500))
    with pytest.raises(openai.InternalServerError):
        chat(model="north/twin")
    assert south.calls == []


def test_other_providers_serve_for_a_named_one_with_five_faults(chat, upstream, south):
    upstream.script(*[Answer(status=500)] * 5)
    for _ in range(5):
        with pytest.raises(openai.InternalServerError):
            chat(model="north/twin")
    assert south.calls == [] and trail(chat(model="north/twin")) == [("south", 200, True)]


def test_the_keys_of_a_provider_take_turns(chat, upstream):
    for _ in range(6):
        chat()
    assert keys_of(upstream) == ["north-1", "north-2", "north-3"] * 2


def test_a_bad_key_is_passed_over_at_once_and_tried_last_when_it_was_refused_again_and_again(chat, upstream):
    good = Answer("Hello.")
    upstream.script(*[Answer(status=401), good, good, good] * 3)
    answer = chat()
    assert trail(answer) == [("north", 401, False), ("north", 200, True)]
    for _ in range(16):
        chat()
    assert keys_of(upstream).count("north-1") == 3


def test_failures_of_one_organization_do_not_reroute_another(chat, twins, upstream):
    other_client = OpenAI(base_url=twins.url, api_key=twins.add_organization("other"), max_retries=0)
    upstream.script(*[Answer(status=404)] * 9)  # of three keys
    by_price = {"extra_body": {"routing": "price"}}
    for calls in (4, 4, 4, 1):
        assert len(trail(chat(**by_price))) == calls
    answer = other_client.chat.completions.create(model="twin", messages=HELLO, **by_price)
    assert trail(answer) == [("north", 200, True)]


def test_auto_walks_on_to_its_next_model_when_the_providers_of_the_first_fail(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    more = {"LLM_OPENAI_API_KEY": "sk-up", "LLM_OPENAI_BASE_URL": south.url}
    with local_gateway(settings, GATEWAY_CATALOGUE_AUTO_MODELS="gpt-4o-mini,twin", **environment, **more) as gateway:
        upstream.script(Answer(status=500))
        south.script(Answer(status=500), Answer("From the next model."))
        answer = post(gateway, "/v1/chat/completions", {"model": "auto", "messages": HELLO})
    assert answer.json()["metadata"]["used_model"] == "twin"
    assert answer.headers["x-llmgateway-attempts"] == "3"


def test_a_failing_own_key_goes_on_to_the_platforms_in_the_same_request(chat, twins, upstream):
    organization = set_project(twins, mode="hybrid")
    services = twins.services
    draft = ProviderKeyDraft("north", "own-key")
    services.accounts.provider_keys.add(organization, draft, actor="test")
    for status in (401, 403, 429):
        upstream.script(Answer(status=status))
        answer = chat()
        assert trail(answer) == [("north", status, False), ("north", 200, True)]
        assert [one["credentialSource"] for one in answer.metadata["routing"]] == ["byok", "platform"]


def test_own_keys_come_before_the_platforms_keys_of_cheaper_providers(chat, twins, south):
    chat()  # north answered, and is remembered
    organization = set_project(twins, mode="hybrid")
    draft = ProviderKeyDraft("south", "own-key")
    twins.services.accounts.provider_keys.add(organization, draft, actor="test")
    for _ in range(3):
        assert trail(chat()) == [("south", 200, True)]
    assert trail(chat(session="s", stream=False)) == [("south", 200, True)]
    assert keys_of(south) == ["own-key"] * 4
    south.script(Answer(status=500))
    assert trail(chat()) == [("south", 500, False), ("north", 200, True)]
    assert trail(chat(extra_body={"provider": {"order": ["north"]}})) == [("north", 200, True)]


@contextmanager
def moved_north(settings: Callable[..., Any], folder: Path, platform: str, vendor: str) -> Iterator[LocalGateway]:
    """A gateway with `twin` at north alone. The platform key is used at the address `platform`; the organization's own
    key goes to north itself, at `vendor`."""
    environment = write_twins(folder / "catalogue", vendor, vendor) | {"SOUTH_KEYS": ""}
    with local_gateway(settings, LLM_NORTH_BASE_URL=platform, **environment) as gateway:
        organization = set_project(gateway, mode="hybrid")
        gateway.services.accounts.provider_keys.add(organization, ProviderKeyDraft("north", "own-key"), actor="test")
        yield gateway


def sources_of(gateway: LocalGateway, **headers: str) -> list[str]:
    """Which credentials a chat tried, in order; it was answered."""
    answer = post(gateway, "/v1/chat/completions", {"model": "twin", "messages": HELLO}, **headers)
    assert answer.status_code == 200, answer.text
    return [one["credentialSource"] for one in answer.json()["metadata"]["routing"]]


def test_an_own_key_at_a_dead_address_does_not_exclude_the_provider_for_others(settings, tmp_path, upstream):
    dead = f"http://127.0.0.1:{free_port()}/v1"
    with moved_north(settings, tmp_path, upstream.url, dead) as gateway:
        neighbour = {"Authorization": f"Bearer {gateway.add_organization('neighbour')}"}
        assert sources_of(gateway) == ["byok", "platform"]
        assert sources_of(gateway, **neighbour) == ["platform"]
        # The own key is in cooldown, so the platform's serves first.
        assert sources_of(gateway) == ["platform"]


def test_faults_of_an_own_key_at_the_vendor_rest_that_key_alone(settings, tmp_path, upstream, south):
    with moved_north(settings, tmp_path, upstream.url, south.url) as gateway:
        neighbour = {"Authorization": f"Bearer {gateway.add_organization('neighbour')}"}
        south.script(*[Answer(status=500) for _ in range(5)])
        assert [sources_of(gateway) for _ in range(6)] == [["byok", "platform"]] * 5 + [["platform"]]
        explained = post(gateway, "/v1/route/explain", {"model": "twin", "messages": HELLO}, **neighbour).json()
        assert "resting" not in explained
        assert gateway.services.routing.health.view("north/twin").uptime == 100.0


def test_an_own_key_serves_while_nothing_answers_at_the_moved_provider(settings, tmp_path, south):
    dead = f"http://127.0.0.1:{free_port()}/v1"
    with moved_north(settings, tmp_path, dead, south.url) as gateway:
        neighbour = {"Authorization": f"Bearer {gateway.add_organization('neighbour')}"}
        body = {"model": "twin", "messages": HELLO}
        assert post(gateway, "/v1/chat/completions", body, **neighbour).status_code == 502
        assert sources_of(gateway) == ["byok"]
        assert post(gateway, "/v1/chat/completions", body, **neighbour).status_code == 503


def test_the_address_of_a_mapping_wins_over_its_providers(settings, tmp_path, upstream, south):
    address = f'address = "{south.url}"'
    environment = write_twins(tmp_path / "catalogue", upstream.url, upstream.url, address) | {"SOUTH_KEYS": ""}
    with local_gateway(settings, **environment) as gateway:
        assert sources_of(gateway) == ["platform"]
    assert (len(upstream.calls), len(south.calls)) == (0, 1)


def test_a_stream_that_says_nothing_is_given_up_once_for_a_provider_that_waits(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.3", **environment) as gateway:
        # The one that was given up may be slow only: it has its turn again when the other fails, and is waited for.
        upstream.script(Answer("Late.", silence_s=1), Answer("Late.", silence_s=1))
        south.script(Answer(status=500))
        text = post(gateway, "/v1/chat/completions", body).text.replace(" ", "")
        assert '"used_provider":"north"' in text and "Late." in text
        assert len(upstream.calls) == 2
        upstream.script(Answer("Late.", silence_s=30))
        began = time.monotonic()
        assert '"used_provider":"south"' in post(gateway, "/v1/chat/completions", body).text.replace(" ", "")
        assert time.monotonic() - began < 20


def test_a_silent_stream_is_awaited_without_another_provider(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "north/twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.2", **environment) as gateway:
        upstream.script(Answer("Late.", silence_s=1))
        assert "Late." in post(gateway, "/v1/chat/completions", body).text


def test_a_plain_answer_that_does_not_begin_comes_from_a_provider_that_waits(settings, tmp_path, upstream, south):
    """A provider hangs: it is left once, after the time that an answer of that length may take."""
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "max_tokens": 2}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.3", **environment) as gateway:
        upstream.script(Answer("Late.", silence_s=60))
        metadata = post(gateway, "/v1/chat/completions", body).json()["metadata"]
        assert metadata["used_provider"] == "south"
        assert [one["provider"] for one in metadata["routing"]] == ["north", "south"]
        assert sum(gateway.services.background.counters.totals()["calls_left_total"].values()) == 1


def test_a_plain_call_that_was_left_is_made_again_when_the_others_fail(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "max_tokens": 2}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.3", **environment) as gateway:
        upstream.script(Answer("Late.", silence_s=1), Answer("Late.", silence_s=1))
        south.script(Answer(status=500))
        assert post(gateway, "/v1/chat/completions", body).json()["metadata"]["used_provider"] == "north"
        assert (len(upstream.calls), len(south.calls)) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [Answer("Slow.", silence_s=1.5), Answer("Slow, in small pieces.", fragment=7, gap_s=0.05)],
    ids=["late", "in pieces"],
)
def test_a_slow_plain_answer_is_waited_for_and_paid_once(settings, tmp_path, upstream, south, answer):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "max_tokens": 100 if answer.silence_s else 2}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.3", **environment) as gateway:
        upstream.script(answer)
        assert post(gateway, "/v1/chat/completions", body).json()["metadata"]["used_provider"] == "north"
        assert south.calls == [] and "calls_left_total" not in gateway.services.background.counters.totals()


def test_a_plain_answer_is_waited_for_where_no_other_provider_is(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    body = {"model": "twin", "messages": HELLO, "max_tokens": 2}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.2", **environment) as gateway:
        upstream.script(Answer("Late.", silence_s=1))
        answer = post(gateway, "/v1/chat/completions", body, **{"x-no-fallback": "true"})
        assert answer.json()["metadata"]["used_provider"] == "north" and south.calls == []


def test_a_model_that_may_think_in_silence_is_waited_for_longer(settings, tmp_path, upstream, south):
    """The headers arrive with the first event, which has no content."""
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, more="reasoning = true")
    body = {"model": "twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.2", **environment) as gateway:
        upstream.script(Answer("Thought.", gap_s=0.6))
        assert "Thought." in post(gateway, "/v1/chat/completions", body).text
        assert south.calls == []


def test_a_model_that_may_think_is_left_without_headers(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, more="reasoning = true")
    body = {"model": "twin", "messages": HELLO, "stream": True}
    with local_gateway(settings, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.2", **environment) as gateway:
        upstream.script(Answer("Late.", silence_s=60))
        assert "Hello." in post(gateway, "/v1/chat/completions", body).text
        assert (len(upstream.calls), len(south.calls)) == (1, 1)


def test_where_nothing_answers_the_caller_learns_at_once_when_to_come_back(settings, tmp_path, south):
    environment = write_twins(tmp_path / "catalogue", f"http://127.0.0.1:{free_port()}/v1", south.url)
    body = {"model": "north/twin", "messages": HELLO}
    with local_gateway(settings, **environment) as gateway:
        first, second = (post(gateway, "/v1/chat/completions", body, **{"x-no-fallback": "true"}) for _ in range(2))
    assert (first.status_code, first.json()["error"]["code"]) == (502, "all_providers_failed")
    assert (second.status_code, second.json()["error"]["code"]) == (503, "no_available_provider")
    assert (second.headers["retry-after"], second.headers["x-llmgateway-attempts"]) == ("1", "0")


def test_a_session_keeps_its_provider_and_its_key(chat, upstream):
    for _ in range(4):
        chat(session="s")
    assert len(set(keys_of(upstream))) == 1


def test_a_session_whose_provider_fails_is_served_and_moves(chat, upstream):
    assert chat(session="s").metadata["used_provider"] == "north"
    upstream.script(Answer(status=500))
    assert chat(session="s").metadata["used_provider"] == "south"
    assert chat(session="s").metadata["used_provider"] == "south"
    by_price = {"provider": {"sort": "price"}}  # the speeds of the answers do not matter then
    assert chat(session="t", extra_body=by_price).metadata["used_provider"] == "north"


def test_a_session_survives_a_restart(settings, tmp_path, upstream, south):
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    upstream.script(Answer(status=500))
    body = {"model": "twin", "messages": HELLO}
    with local_gateway(settings, **environment) as first:
        assert post(first, "/v1/chat/completions", body, **SESSION).json()["metadata"]["used_provider"] == "south"
    with local_gateway(settings, **environment) as second:
        second.key = first.key
        answer = post(second, "/v1/chat/completions", body, **SESSION).json()
    assert answer["metadata"]["used_provider"] == "south" and len(upstream.calls) == 1


def test_a_request_is_explained_without_an_upstream_call(twins, upstream, south):
    found = post(twins, "/v1/route/explain", {"model": "twin", "messages": HELLO}).json()
    assert found["order"] == ["north/twin", "south/twin"] and found["selectionReason"] == "weighted-score"
    assert [row["providerId"] for row in found["providerScores"]] == ["north", "south"]
    assert upstream.calls == south.calls == []


def test_an_impossible_request_gets_the_error_that_it_would_get(twins):
    body = {"model": "twin", "messages": HELLO, "web_search": True}
    answers = [post(twins, path, body) for path in ("/v1/route/explain", "/v1/chat/completions")]
    assert answers[0].status_code == answers[1].status_code == 400
    assert answers[0].json()["error"]["message"] == answers[1].json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_any_past_decision_can_be_looked_up(chat, twins, upstream, stream):
    upstream.script(Answer(status=503))
    answer = chat(stream=stream)
    log_id = (list(answer)[-1] if stream else answer).metadata["log_id"]
    found = get(twins, f"/v1/route/explain/{log_id}").json()
    assert found["log_id"] == log_id and found["order"] == ["north/twin", "south/twin"]
    assert [(attempt["provider"], attempt["succeeded"]) for attempt in found["attempts"]] == [
        ("north", False),
        ("south", True),
    ]


def test_a_request_that_all_providers_failed_is_explained_too(twins, upstream, south):
    upstream.script(Answer(status=500))
    south.script(Answer(status=500))
    failed = post(twins, "/v1/chat/completions", {"model": "twin", "messages": HELLO})
    assert failed.status_code == 502
    twins.services.store.journal.flush(60)
    execute = twins.services.store.database.execute
    row = twins.services.store.database.read(
        lambda: execute("SELECT request FROM decision ORDER BY request DESC").fetchone()
    )
    found = get(twins, f"/v1/route/explain/{bytes(row[0]).hex()}").json()
    assert [attempt["succeeded"] for attempt in found["attempts"]] == [False, False]


@pytest.mark.parametrize("log_id", ["0" * 32, "nonsense", "0199"])
def test_an_unknown_decision_is_not_found(twins, log_id):
    assert get(twins, f"/v1/route/explain/{log_id}").status_code == 404


def test_another_projects_decision_is_not_found(chat, twins):
    log_id = chat().metadata["log_id"]
    database = twins.services.store.database
    database.write(lambda: database.execute("UPDATE decision SET project = ?", (b"\0" * 16,)))
    assert get(twins, f"/v1/route/explain/{log_id}").status_code == 404


@pytest.fixture
def installation(twins: LocalGateway, south: FakeOpenAI) -> LocalGateway:
    """The organization's own provider `house` at `other`, in a project that uses own keys."""
    organization = set_project(twins, mode="hybrid")
    services = twins.services
    CustomProviders(services.store.database, services.store.control).add(organization, "house", south.url, actor="test")
    draft = ProviderKeyDraft("custom:house", "house-key")
    services.accounts.provider_keys.add(organization, draft, actor="test")
    return twins


def test_a_custom_provider_gets_any_model_with_the_organizations_key_unbilled(installation, chat, south):
    answer = chat(model="house/llama-local", session="s")
    assert south.calls[0].body["model"] == "llama-local" and keys_of(south) == ["house-key"]
    assert answer.usage.cost == 0 and answer.metadata["used_provider"] == "custom:house"
    assert answer.metadata["routing"][0]["credentialSource"] == "byok"


def test_the_served_model_of_a_custom_provider_can_be_requested_again(installation, chat, south):
    first = chat(model="house/llama-local").model
    again = chat(model=first).model
    named = chat(model=f"custom:{first}").model
    assert first == again == named == "house/llama-local"
    assert [call.body["model"] for call in south.calls] == ["llama-local"] * 3


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_custom_provider_is_reached_by_its_base_or_a_pasted_address(installation, chat, south, end):
    services = installation.services
    organization = installation.organization_id
    base = south.url.removesuffix("/v1")
    CustomProviders(services.store.database, services.store.control).update(
        organization, "house", base_url=base + end, actor="test"
    )
    assert chat(model="house/llama-local").choices[0].message.content
    assert south.calls[0].path == "/v1/chat/completions"


def test_a_custom_provider_that_is_the_gateway_itself_is_called_once(share, upstream, south):
    gateway = share.gateway(lambda folder: write_twins(folder / "catalogue", upstream.url, south.url))
    organization = set_project(gateway, mode="hybrid")
    draft = ProviderKeyDraft("custom", gateway.key, base_url=gateway.url)
    gateway.services.accounts.provider_keys.add(organization, draft, actor="test")
    # The key names no model, and therefore the request is the same at every turn of the loop.
    answer = post(gateway, "/v1/chat/completions", {"model": "custom", "messages": HELLO})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request_loop")
    assert "points to the gateway" in answer.json()["error"]["message"]


def test_models_of_the_generic_custom_key_are_called_by_name(installation, chat, south):
    services = installation.services
    organization = installation.organization_id
    draft = ProviderKeyDraft("custom", "own-key", base_url=south.url.removesuffix("/v1"))
    services.accounts.provider_keys.add(organization, draft, actor="test")
    assert chat(model="custom/llama-local").model == "custom/llama-local"
    assert south.calls[0].body["model"] == "llama-local"


def custom_catalogue(gateway: LocalGateway) -> list[str]:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    return [model.id for model in client.models.list() if model.owned_by == "custom:house"]


def test_a_custom_providers_models_are_listed_to_its_organization_and_a_change_at_once(installation):
    services = installation.services
    organization = installation.organization_id
    assert custom_catalogue(installation) == []
    providers = CustomProviders(services.store.database, services.store.control)
    providers.update(organization, "house", models=[{"id": "big"}], actor="test")
    assert custom_catalogue(installation) == ["house/big"]
    assert get(installation, "/v1/models/house/big").json()["id"] == "house/big"
    with httpx.Client(timeout=60) as http:
        assert "house/big" not in http.get(f"{installation.url}/models").text
    set_project(installation, mode="credits")
    assert custom_catalogue(installation) == []


def test_a_custom_provider_is_refused_in_a_project_that_spends_credits(installation, chat):
    set_project(installation, mode="credits")
    with pytest.raises(openai.BadRequestError) as caught:
        chat(model="house/llama-local")
    assert caught.value.code == "custom_provider_needs_own_keys"


def test_a_custom_providers_own_list_of_models_binds_and_prices(installation, chat, south):
    services = installation.services
    models = [{"id": "big", "prices": {"prompt": "0.00001", "completion": "0.00001"}}]
    organization = installation.organization_id
    providers = CustomProviders(services.store.database, services.store.control)
    providers.remove(organization, "house", actor="test")
    providers.add(organization, "house", south.url, models, actor="test")
    draft = ProviderKeyDraft("custom:house", "house-key")
    services.accounts.provider_keys.add(organization, draft, actor="test")
    south.script(Answer("Hi", prompt=100, completion=10))
    assert chat(model="house/big").usage.cost_details["total_cost"] == pytest.approx(110 * 0.00001)
    with pytest.raises(openai.BadRequestError, match="house/big"):
        chat(model="house/small")


def test_auto_sends_the_least_effort_where_the_model_reasons(settings, tmp_path, upstream, south):
    more = 'reasoning = true\nreasoning_efforts = ["minimal", "low", "high"]'
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, more)
    with local_gateway(settings, GATEWAY_CATALOGUE_AUTO_MODELS="twin", **environment) as gateway:
        for model in ("auto", "twin"):
            post(gateway, "/v1/chat/completions", {"model": model, "messages": HELLO})
    assert [call.body.get("reasoning_effort") for call in upstream.calls] == ["minimal", None]


def test_a_forced_tool_choice_that_no_provider_supports_is_refused_by_name(settings, tmp_path, upstream, south):
    more = 'supported_tool_choices = ["auto", "none"]'
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, more)
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    body = {"model": "twin", "messages": HELLO, "tools": [tool], "tool_choice": "required"}
    with local_gateway(settings, **environment) as gateway:
        error = post(gateway, "/v1/chat/completions", body).json()["error"]
    assert (error["code"], error["param"]) == ("model_not_supported", "tool_choice") and upstream.calls == []


@pytest.mark.extended
def test_a_provider_that_dies_is_avoided_by_all_four_workers_within_two_seconds(process, tmp_path, south):
    port = free_port()
    environment = write_twins(tmp_path / "catalogue", f"http://127.0.0.1:{port}/v1", south.url)
    gateway: GatewayProcess = process(workers=4, **environment)
    body, failed = {"model": "twin", "messages": HELLO}, []
    began = time.monotonic()
    while time.monotonic() < began + 6:
        status, answer = gateway.post("/v1/chat/completions", body)
        assert status == 200 and answer["metadata"]["used_provider"] == "south"
        failed += [time.monotonic() - began] * (len(answer["metadata"]["routing"]) - 1)
        gevent.sleep(0.02)
    # Afterwards only probes meet it, each after a longer rest.
    assert failed and len([at for at in failed if at > 2]) <= 6


@pytest.mark.extended
def test_four_workers_together_try_about_once_a_second_where_nothing_answers(process, tmp_path):
    environment = write_twins(tmp_path / "catalogue", f"http://127.0.0.1:{free_port()}/v1", "http://127.0.0.1:9/v1")
    gateway: GatewayProcess = process(workers=4, **environment | {"SOUTH_KEYS": ""})
    body, statuses = {"model": "twin", "messages": HELLO}, []
    began = time.monotonic()
    while time.monotonic() < began + 5:
        statuses.append(gateway.post("/v1/chat/completions", body)[0])
        gevent.sleep(0.01)
    # Each worker meets the failure once; afterwards the workers inform each other, within their exchange of 0.5 s.
    assert set(statuses) == {502, 503} and statuses.count(502) <= 4 + 2 * 5 < len(statuses)
