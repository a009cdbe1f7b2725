"""Requests that are large are worked on beside the event loop, in every form that they take on their way."""

import types
from collections.abc import Callable

import orjson
import pytest
from gevent.monkey import get_original

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.configuration import settings as settings_module
from gateway.configuration.settings import Cache, LimitSettings
from gateway.engine import cache as cache_module
from gateway.engine import idempotency
from gateway.engine.cache import ResponseCache
from gateway.engine.fitting import Fitting
from gateway.neutral import json_weight
from gateway.neutral.cache_marks import apply_policy
from gateway.neutral.chat import ChatRequest, Conversation, Options, Requirements, Sampling, WebSearch
from gateway.neutral.json_weight import LARGE, LARGE_WITHOUT_PARTS
from gateway.neutral.parameters import PENALTIES
from gateway.neutral.parts import Message, Text
from gateway.providers.upstream import without_offers
from gateway.surfaces.openai import chat, completions
from gateway.surfaces.web import caps as caps_module

LIMITS = settings_module.load({"GATEWAY_ENV": "test"}).limits
thread_id: Callable[[], int] = get_original("_thread", "get_ident")
TALK = Conversation(
    (Message("user", (Text("a" * 5000),)),), sampling=Sampling(frequency_penalty=1), tools=(WebSearch(),)
)
CALLER = Caller("key", "user", "", "org", "proj", "user", "member", "owner", "credits", cache_enabled=True)
CONTEXT = RequestContext("0" * 32, CALLER, 0, 0.0, 100.0)
PLAN = types.SimpleNamespace(
    resolution=types.SimpleNamespace(provider="", region=""),
    first=types.SimpleNamespace(candidate=types.SimpleNamespace(model=types.SimpleNamespace(id="m"))),
)


def large(decode: Callable[[], Conversation] = lambda: TALK) -> ChatRequest:
    needs = Requirements(web_search=True, search_offered=True, parameters=frozenset((PENALTIES.name,)), messages=3)
    return ChatRequest("m", needs, decode, Options(), large=True)


def fitted(request: ChatRequest) -> ChatRequest:
    candidate = types.SimpleNamespace(ability=None, key="p/m", mapping=types.SimpleNamespace(reasoning_efforts=()))
    return Fitting(candidate, (PENALTIES.name,), "").fit(request)  # type: ignore[arg-type, return-value]


CHANGES: dict[str, Callable[[ChatRequest], ChatRequest]] = {
    "fitted": fitted,
    "marked": lambda request: apply_policy(request, "automatic"),
    "unmarked": lambda request: apply_policy(request, "disabled"),
    "without offers": lambda request: without_offers(request, "p/m"),  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_request_is_as_large_as_before_and_is_read_in_a_thread(name: str) -> None:
    threads: list[int] = []

    def decode() -> Conversation:
        threads.append(thread_id())
        return TALK

    changed = CHANGES[name](large(decode))
    assert changed.large and changed.conversation().messages
    assert threads and thread_id() not in threads


@pytest.mark.parametrize("is_large", [True, False])
def test_the_cache_key_of_a_large_request_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    threads: list[int] = []
    flatten = cache_module.flatten
    monkeypatch.setattr(cache_module, "flatten", lambda value: threads.append(thread_id()) or flatten(value))
    shelf: object = None
    keys = ResponseCache(shelf, b"secret", Cache(max_bytes=4000, max_entry_bytes=600))  # type: ignore[arg-type]
    request = large()
    request.large = is_large
    assert keys.key_of(CONTEXT, request, PLAN)  # type: ignore[arg-type]
    assert (thread_id() in threads) is not is_large


def test_a_large_completion_is_read_in_a_thread_and_stays_large(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    decode = completions.decode
    monkeypatch.setattr(completions, "decode", lambda raw: threads.append(thread_id()) or decode(raw))
    for size in (10, LARGE_WITHOUT_PARTS):
        raw = orjson.dumps({"model": "m", "prompt": "a" * size, "echo": True})
        (request,), (echoed,), _ = caps_module.read_measured(LIMITS, raw, completions._read, raw)
        assert request.large is (size == LARGE_WITHOUT_PARTS) and len(echoed) == size
    assert threads[0] == thread_id() != threads[1]


def test_a_large_request_under_a_key_is_known_as_such() -> None:
    keyed = [
        idempotency.KeyedRequest(CALLER, "k", "POST /v1/x", (b"a" * size, b""), "0" * 32).size >= idempotency.LARGE
        for size in (10, idempotency.LARGE)
    ]
    assert keyed == [False, True]


def read_completion(limits: LimitSettings, raw: bytes) -> object:
    return caps_module.read_measured(limits, raw, completions._read, raw)


@pytest.mark.parametrize("read", [chat.read_body, read_completion])
def test_the_parts_of_a_simple_body_are_counted_once(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[LimitSettings, bytes], object]
) -> None:
    counted: list[int] = []
    count_marks = json_weight.count_marks
    for module in (json_weight, caps_module):
        monkeypatch.setattr(module, "count_marks", lambda raw: counted.append(len(raw)) or count_marks(raw))
    text = "a" * LARGE
    raw = orjson.dumps({"model": "m", "prompt": text, "messages": [{"role": "user", "content": text}]})
    read(LIMITS, raw)
    assert counted == [len(raw)]
