import types

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.billing.context import HeaderOptions, RequestContext
from gateway.callers.access import Level
from gateway.callers.authentication import Caller
from gateway.callers.compliance import CompliancePolicy
from gateway.configuration.settings import Cache
from gateway.configuration.settings import RedisSettings as RedisSettings
from gateway.engine.cache import (
    AnswerOrigin,
    CachedAnswer,
    DocumentCacheStore,
    RedisCacheStore,
    ResponseCache,
    read_entry,
    write_entry,
)
from gateway.errors import Unavailable
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Options, Requirements, Sampling, VendorTool
from gateway.neutral.parts import Message, Refusal, Text
from gateway.neutral.request import Native
from gateway.neutral.usage import Usage
from gateway.store.documents import Documents
from gateway.store.redis import open_redis

SIZES = Cache(max_bytes=4000, max_entry_bytes=600)
ORIGIN = AnswerOrigin("0" * 32, "p/m", Usage(input=3, output=4), "length", "flex", "m-1", "up_1")
ENTRY = CachedAnswer(ORIGIN, [(0, b'[{"$":"Started"}]'), (250, b'[{"$":"TextDelta","text":"H\xc3\xa9"}]')])
PLAN = types.SimpleNamespace(
    resolution=types.SimpleNamespace(provider="", region=""),
    first=types.SimpleNamespace(candidate=types.SimpleNamespace(model=types.SimpleNamespace(id="m"))),
)


class Dictionary:
    """A shelf in memory that can be away."""

    def __init__(self):
        self.values, self.away = {}, False

    def get(self, key):
        if self.away:
            raise Unavailable()
        return self.values.get(key)

    def put(self, key, value, ttl_s):
        if self.away:
            raise Unavailable()
        self.values[key] = value

    def lock(self, key):
        raise Unavailable()

    unlock = lock


def make_cache(shelf=None, secret=b"secret"):
    return ResponseCache(shelf or Dictionary(), secret, SIZES)


def context(project="proj_1", **more):
    more = {"cache_enabled": True, **more}
    caller = Caller("key", "user", "", "org", project, "user", "member", "owner", "credits", **more)
    return RequestContext("0" * 32, caller, 0, 0.0, 100.0)


def request(text="Hello", options=None, stream=False, **more):
    talk = Conversation((Message("user", (Text(text),)),), **more)
    return ChatRequest("m", Requirements(stream=stream), lambda: talk, options or Options())


def key(cache=None, ctx=None, req=None):
    return (cache or make_cache()).key_of(ctx or context(), req or request(), PLAN)


TEXTS = st.text(min_size=1, max_size=30)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=5 * settings().max_examples
)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_two_projects_never_meet_whatever_they_ask(project, other, text, another):
    cache = make_cache()
    keys = {(p, t): key(cache, context(p), request(t)) for p in (project, other) for t in (text, another)}
    assert len(set(keys.values())) == len(keys)


def test_the_same_request_has_the_same_key_and_another_installation_another():
    assert key() == key() and key() != key(make_cache(secret=b"other"))


@pytest.mark.parametrize(
    "other",
    [
        request("Hello!"),
        request(stream=True),
        request(sampling=Sampling(temperature=0.0)),
        request(sampling=Sampling(max_tokens=5)),
        request(tools=(FunctionTool("add", schema={"type": "object"}),)),
        request(options=Options(service_tier="flex")),
        request(options=Options(prompt_cache_key="k")),
    ],
)
def test_everything_that_shapes_the_answer_is_in_the_key(other):
    assert key(req=other) != key()


def test_parts_of_another_kind_with_the_same_text_are_another_request():
    said = [Conversation((Message("assistant", (kind("x"),)),)) for kind in (Text, Refusal)]
    first, second = (ChatRequest("m", Requirements(), lambda talk=talk: talk) for talk in said)
    assert key(req=first) != key(req=second)


def test_values_that_differ_in_their_kind_alone_are_another_request():
    kinds = [msgspec.defstruct("Kind", ["x"], tag=name) for name in ("a", "b")]
    tools = [(VendorTool("v", "k", {"inner": kind("x")}),) for kind in kinds]
    assert len({key(req=request(tools=tool)) for tool in tools}) == 2


def test_the_user_and_the_order_of_members_are_not_in_the_key():
    tools = [(FunctionTool("a", schema=schema),) for schema in ({"x": 1, "y": 2}, {"y": 2, "x": 1})]
    first, second = (request(tools=tool) for tool in tools)
    assert key(req=first) == key(req=msgspec.structs.replace(second, user="somebody"))


def test_native_fields_outside_of_the_neutral_form_are_in_the_cache_key():
    def asked(whole=True, **body):
        return key(req=msgspec.structs.replace(request(), native=Native("responses", body, whole=whole)))

    assert asked(top_logprobs=2) != asked(top_logprobs=3) != asked()
    assert asked(truncation="auto", top_logprobs=2) == asked(top_logprobs=2, truncation="auto")
    assert asked(user="a", metadata={"user_id": "1"}) == asked(safety_identifier="b") == asked()
    assert asked(whole=False, top_p=1) == asked(whole=False, top_p=2)  # the neutral form has all of it


def test_a_project_without_cache_an_option_against_it_and_zero_retention_have_no_key():
    level = Level("organization", "org", policy=CompliancePolicy(zero_data_retention=True))
    wish = msgspec.structs.replace(context(), options=HeaderOptions(no_cache=True))
    assert [key(ctx=one) for one in (context(cache_enabled=False), wish, context(rules=(level,)))] == [""] * 3


def test_an_entry_reads_back_as_it_was():
    assert read_entry(write_entry(ENTRY)) == CachedAnswer(ORIGIN, [(0, ENTRY.frames[0][1]), (250, ENTRY.frames[1][1])])


def test_a_store_that_is_away_means_misses_and_never_an_error():
    shelf = Dictionary()
    shelf.away = True
    cache = make_cache(shelf)
    cache.put("k", ENTRY, 60)
    assert cache.get("k") is None and cache.lock("k") is None
    cache.unlock("k")


@pytest.mark.parametrize("damage", [b"not json", b"[1]", b'[99,["a"],[]]', b'[1,["too short"],[]]', b"{}"])
def test_a_damaged_or_foreign_entry_counts_as_absent(damage):
    shelf = Dictionary()
    shelf.values["k"] = damage
    assert make_cache(shelf).get("k") is None


def test_an_entry_above_the_bound_is_not_kept():
    shelf = Dictionary()
    make_cache(shelf).put("k", CachedAnswer(ORIGIN, [(0, b"[" + b" " * 600 + b"]")]), 60)
    assert shelf.values == {}


def test_the_database_stays_within_its_bound(database):
    documents = Documents(database)
    shelf = DocumentCacheStore(documents, database, 4000)
    for number in range(30):
        shelf.put(f"k{number}", b"x" * 400, 60 + number)
        shelf.trim() if number % 2 else None
    kept = [number for number in range(30) if shelf.get(f"k{number}")]
    assert 5 <= len(kept) <= 11 and 29 in kept and 0 not in kept


def test_between_two_measures_a_worker_adds_at_most_a_quarter(sqlite_database):
    shelf = DocumentCacheStore(Documents(sqlite_database), sqlite_database, 4000)
    for number in range(30):
        shelf.put(f"k{number}", b"x" * 400, 60)
    assert sum(shelf.get(f"k{number}") is not None for number in range(30)) == 2


def test_an_entry_ends_with_its_time(sqlite_database, clock):
    shelf = DocumentCacheStore(Documents(sqlite_database), sqlite_database, 4000)
    shelf.put("k", b"x", 10)
    assert shelf.get("k") == b"x"
    clock.advance(11)
    assert shelf.get("k") is None


def test_redis_lets_one_worker_make_an_answer_at_a_time(redis_url, clock):
    client = open_redis(RedisSettings(redis_url, 30.0), clock)
    one, two = (ResponseCache(RedisCacheStore(client), b"s", SIZES) for _ in range(2))
    assert one.lock("cache-lock") and not two.lock("cache-lock")
    one.put("cache-lock", ENTRY, 60)
    assert two.get("cache-lock") == ENTRY
    one.unlock("cache-lock")
    assert two.lock("cache-lock")
    client.close()
