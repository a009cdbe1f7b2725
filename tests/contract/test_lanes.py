"""A request relayed in its own dialect shows the caller what the same request built anew shows; so do both ways in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract import cases_ai, cases_chat, cases_messages, cases_responses, views
from contract.cases import Case
from contract.contract_gateway import PATHS, ContractGateway
from contract.run_case import play
from msgspec.structs import replace
from support.spending import say_in_headers
from werkzeug.test import Client

from gateway.engine.cache import DocumentCacheStore, ResponseCache
from gateway.engine.chat_engine import ChatEngine
from gateway.engine.coalescing import RequestCoalescing
from gateway.engine.executor import EngineParts
from gateway.providers.protocol import Codec, WireFormat
from gateway.providers.registry import make_protocols, make_upstreams
from gateway.worker.services import Services

CASES = {"chat": cases_chat.CASES, "messages": cases_messages.CASES, "responses": cases_responses.CASES}
HOMES = {"chat": "openai", "messages": "anthropic", "responses": "responses", "ai4": "anthropic"}
# Cases that only the format's own vendor supports: the neutral form cannot express them (a citation's index, say).
OWN = {"chat": (), "messages": ("a maker's own tool", "search result", "search"), "responses": ("a maker's own tool",)}
LANES = [
    pytest.param(surface, name, id=f"{surface}-{name}")
    for surface, cases in CASES.items()
    for name, case in cases.items()
    if name not in OWN[surface] and not case.faulty
]
KEPT_HEADERS = ("content-type", "cache-control", "vary", "x-llmgateway-provider", "x-llmgateway-attempts")


class Stranger:
    """A codec that shares no caller's dialect, so that everything is built anew."""

    dialect = "none"

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)


def estrange(wire: WireFormat) -> WireFormat:
    return replace(wire, dialect="none", codecs={name: Stranger(codec) for name, codec in wire.codecs.items()})


def rebuilding(services: Services) -> ChatEngine:
    """The engine of `services` without a relay lane."""
    settings = services.settings
    protocols = {
        name: estrange(protocol)
        for name, protocol in make_protocols(services.routing.transport, services.clock).items()
    }
    hash_key = services.store.secrets.hash_keys[0]
    shelf = DocumentCacheStore(services.store.documents, services.store.database, settings.cache.max_bytes)
    cache = ResponseCache(shelf, hash_key, settings.cache)
    settlements, decisions = services.billing.settlements, services.routing.decisions
    parts = EngineParts(
        services.routing.planner,
        settlements,
        make_upstreams(protocols, services.routing.transport, services.clock, settings.timeouts),
        services.clock,
        settings,
        decisions,
        RequestCoalescing(cache, settlements, decisions, services.clock, settings.timeouts.heartbeat_s),
        services.engine.reading_on,
        services.engine.guarding,
    )
    return ChatEngine(parts, hash_key, services.engine.chat.routes)


@pytest.fixture
def rebuilt(stage: ContractGateway) -> Iterator[Callable[[], None]]:
    """A switch that takes the relay lane away for the rest of the test."""
    services, engine = stage.gateway.services, stage.gateway.services.engine.chat

    def switch() -> None:
        services.engine.chat = rebuilding(services)

    yield switch
    services.engine.chat = engine


def view_of(stage: ContractGateway, surface: str, case: Case, streamed: bool) -> list[Any]:
    """Return the caller's view of each turn; its usage contains only the output tokens."""
    return views.plain([_shared(view) for view in play(stage, surface, HOMES[surface], case, streamed)])


def _shared(view: dict[str, Any]) -> dict[str, Any]:
    """The fakes count the bytes that they got, and call every item of a broken-off answer completed."""
    usage = view.get("usage") or {}
    output_counts = {name: usage.get(name) for name in ("completion_tokens", "output_tokens")}
    items = [{name: value for name, value in item.items() if name != "status"} for item in view.get("output", ())]
    return view | {"usage": output_counts, "warnings": None, "output": items}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("surface", "name"), LANES)
def test_a_relayed_stream_equals_one_that_is_built(
    stage: ContractGateway, rebuilt: Callable[[], None], surface: str, name: str, streamed: bool
) -> None:
    case = CASES[surface][name]
    relayed = view_of(stage, surface, case, streamed)
    rebuilt()
    assert view_of(stage, surface, case, streamed) == relayed


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["text", "parallel calls", "status 400", "status 500", "unknown fields"])
@pytest.mark.parametrize("surface", list(HOMES))
def test_the_express_lane_answers_what_flask_answers(
    stage: ContractGateway, surface: str, name: str, streamed: bool
) -> None:
    app = stage.gateway.app
    case = (CASES | {"ai4": cases_ai.CASES})[surface][name]
    answers = [_over(stage, lane, surface, case, streamed) for lane in (app, app.flask.wsgi_app)]
    assert answers[0] == answers[1]


def _over(
    stage: ContractGateway, lane: Any, surface: str, case: Case, streamed: bool
) -> tuple[int, dict[str, str], Any]:
    vendor = HOMES[surface]
    stage.script(vendor, *case.says)
    body = case.body | {"model": f"fake-{vendor}/{vendor}-able", "stream": streamed}
    headers = {"Authorization": f"Bearer {stage.gateway.key}", **say_in_headers(PATHS[surface], body)}
    answer = Client(lane).post(PATHS[surface], json=body, headers=headers)
    kept = {name: answer.headers.get(name, "") for name in KEPT_HEADERS}
    return answer.status_code, kept, views.view(surface, answer.status_code, views.fold(surface, answer.data))
