"""The request line, whole and letter by letter: which facts, by which names, in which order, in both forms."""

import dataclasses
import json
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.billing.context import Attempt, Outcome, RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.compliance import CompliancePolicy
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import Charge
from gateway.errors import Unauthenticated, UpstreamFailed, UpstreamRefused
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.telemetry import request_line
from gateway.telemetry.request_line import (
    CACHE_SIZE,
    LARGE_BODY_BYTES,
    MAX_FRAGMENT_LENGTH,
    MAX_LINES,
    PLAIN_VALUE,
    ReadableLine,
    RequestLines,
)
from gateway.telemetry.request_observers import FinishedRequest

AT_US = 1_768_465_800_042_999  # 2026-01-15T08:30:00.042999Z
OPERATION = "POST /v1/chat/completions"
OWNER = "key=key_1 project=proj_1 organization=org_1"
CALLER = Caller("key_1", "plain", "", "org_1", "proj_1", "user_1", "member_1", "owner", "credits")


def attempt_at(provider: str, region: str = "", **more: Any) -> Attempt:
    mapping = Mapping(provider=provider, model="small", external_id="small", region=region)
    entry = SimpleNamespace(id=provider, protocol="openai-chat", quirks=())
    target = Target(entry, mapping, SimpleNamespace(ident=f"own-{provider}"), "http://upstream")
    usual = {"started": 10.0, "ended": 10.25, "status": 200, "usage": Usage(input=20, cache_read=3, output=17)}
    return Attempt(**{"number": 1, "target": target, "at_us": 0, "charge": Charge(total=13_650)} | usual | more)


def ended(
    *attempts: Attempt, model: str = "small", cached: bool = False, source: str = "", **more: Any
) -> FinishedRequest:
    asked = SimpleNamespace(requested_model=model)
    context = RequestContext("f" * 32, CALLER, 0, 9.9, 99.0, source=source, request=asked, own_s=0.00041)
    if attempts:
        context.outcome = Outcome(asked, attempts=list(attempts), cached=cached)
    usual = {"operation": OPERATION, "status": 200, "at_us": AT_US, "took_s": 0.25449, "request_id": "f" * 32}
    usual |= {"shown_id": "f" * 32, "peer": "203.0.113.9", "caller": CALLER, "context": context}
    return FinishedRequest(**usual | more)


def refused() -> FinishedRequest:
    error = Unauthenticated("its member was deactivated")
    error.caller_ids = ("key_1", "proj_1", "org_1", "member_1")
    return ended(error=error, status=401, caller=None, context=None, shown_id="a label", peer="")


def failed() -> FinishedRequest:
    error = UpstreamFailed("said words", code="all_providers_failed", upstream_status=500)
    tried = [attempt_at(one, error=error, status=500, usage=None, charge=Charge()) for one in ("north", "south")]
    return ended(*tried, error=error, status=502)


MOMENT, ID = "2026-01-15T08:30:00.042Z", "f" * 32
NORTH = "model=small provider=north served=north/small attempts=1 cost_usd=0.00001365 provider_ms=250.0 gateway_ms=0.41"
REMEDY = "the caller's token is wrong or its key is over: ./manage keys list tells the state of each"
# A request, and its readable line from `duration_ms` on; what stands before is alike.
TOLD = {
    "served": (
        ended(attempt_at("north", finish="stop")),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} {NORTH} input_tokens=23 output_tokens=17 finish=stop",
    ),
    "streamed": (
        ended(attempt_at("north", first_at=10.0123, finish="stop"), source="example.org", took_s=2.0),
        f"duration_ms=2000.0 ip=203.0.113.9 {OWNER} {NORTH.replace(' ', ' source=example.org ', 1)} input_tokens=23 "
        "output_tokens=17 first_token_ms=112.3 finish=stop",
    ),
    "from the cache": (
        ended(attempt_at("north", "eu", charge=Charge(), ended=10.0), cached=True),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} model=small provider=north served=north/small:eu attempts=1 "
        "cost_usd=0 provider_ms=0.0 gateway_ms=0.41 input_tokens=23 output_tokens=17 cached=True",
    ),
    "at the second": (
        ended(
            attempt_at("north", usage=None, started=9.75, ended=10.0),
            attempt_at("south", charge=Charge(total=2_000_000_000)),
        ),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} model=small provider=south served=south/small attempts=2 "
        "cost_usd=2.00001365 provider_ms=500.0 gateway_ms=0.41 input_tokens=23 output_tokens=17",
    ),
    "at the same time": (
        ended(attempt_at("north", usage=None, ended=10.125), attempt_at("south", started=10.0625)),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} model=small provider=south served=south/small attempts=2 "
        "cost_usd=0.0000273 provider_ms=250.0 gateway_ms=0.41 input_tokens=23 output_tokens=17",
    ),
    "in a trace": (
        ended(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", replayed=True, context=None),
        f"duration_ms=254.5 ip=203.0.113.9 trace_id=0af7651916cd43dd8448eb211c80319c {OWNER} replayed=True",
    ),
    "in a broken trace": (
        ended(traceparent="00-0af7", replayed=True, context=None),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} replayed=True",
    ),
    "given again": (
        ended(replayed=True, context=None),
        f"duration_ms=254.5 ip=203.0.113.9 {OWNER} replayed=True",
    ),
    "chosen to mislead": (
        ended(model='a\nb key=stolen "é"'),
        f'duration_ms=254.5 ip=203.0.113.9 {OWNER} model="a\\nb key=stolen \\"é\\""',
    ),
    "of a key that is over": (
        refused(),
        f'duration_ms=254.5 ip="" label="a label" {OWNER} code=invalid_api_key remedy="{REMEDY}"',
    ),
}


@pytest.mark.parametrize("finished, told", TOLD.values(), ids=TOLD)
def test_a_readable_line_is_known_letter_by_letter(finished: FinishedRequest, told: str) -> None:
    start = f"{MOMENT} INFO request {OPERATION} {finished.status} request_id={ID} "
    assert written("text", finished) == f"{start}{told}\n"


@pytest.mark.parametrize("finished", [*(one for one, _ in TOLD.values()), failed()], ids=[*TOLD, "failed"])
def test_both_forms_show_the_same_by_the_same_names_in_the_same_order(finished: FinishedRequest) -> None:
    facts = json.loads(written("json", finished))
    assert list(facts)[:6] == ["at", "level", "event", "request_id", "operation", "status"]
    head = [str(facts.pop(name)) for name in ("at", "level", "event", "operation", "status")]
    head[1] = head[1].upper()
    rest = [f"{name}={value if simple(value) else dumped(value)}" for name, value in facts.items()]
    assert written("text", finished) == " ".join([*head, *rest]) + "\n"


def test_a_failure_names_what_was_tried_and_is_a_warning() -> None:
    facts = json.loads(written("json", failed()))
    assert (facts["level"], facts["status"], facts["code"]) == ("warning", 502, "all_providers_failed")
    said = {"status": 500, "error": "server_error", "code": "all_providers_failed"}
    assert facts["tried"] == [{"provider": one, **said, "key": f"own-{one}"} for one in ("north", "south")]
    assert "said words" not in written("json", failed()) + written("text", failed())


def refused_upstream() -> FinishedRequest:
    error = UpstreamRefused("refused", upstream_status=401)
    error.upstream_text = "Incorrect API key provided:\n[hidden]. " + "See the documentation. " * 100
    refusal = attempt_at("north", error=error, status=401, usage=None, charge=Charge())
    return ended(refusal, attempt_at("south", finish="stop"))


def test_a_failed_attempt_has_the_providers_own_text_also_where_another_provider_served() -> None:
    facts = json.loads(written("json", refused_upstream()))
    [tried] = facts["tried"]
    assert tried["upstream_error"].startswith("Incorrect API key provided: [hidden]. See the")
    assert len(tried["upstream_error"]) == 501 and facts["status"] == 200 and "code" not in facts
    assert "Incorrect API key provided" in written("text", refused_upstream())


@pytest.mark.parametrize("policy", ["zero_data_retention", "block_prompt_logging"])
def test_a_policy_against_logging_keeps_the_providers_text_out_of_the_line(policy: str) -> None:
    finished = refused_upstream()
    rules = (SimpleNamespace(policy=CompliancePolicy(**{policy: True})),)
    finished.context.caller = dataclasses.replace(CALLER, rules=rules)
    assert "Incorrect API key" not in written("json", finished) + written("text", finished)


def test_the_id_of_an_unknown_path_is_the_callers_and_quoted() -> None:
    chosen = 'x" status=200 key=stolen'
    unknown = ended(operation="unmatched", status=404, context=None, caller=None, request_id=chosen, shown_id=chosen)
    assert written("text", unknown).count(' request_id="x\\" status=200 key=stolen" ') == 1
    assert json.loads(written("json", unknown))["request_id"] == chosen


@pytest.mark.parametrize(
    "path", ["/livez", "/healthz", "/health/liveliness", "/readyz", "/health/readiness", "/metrics"]
)
def test_a_probe_has_a_line_only_when_it_fails(path: str) -> None:
    assert written("json", ended(operation=f"GET {path}")) == ""
    assert f"GET {path}" in written("json", ended(operation=f"GET {path}", status=503))


def test_callers_cannot_fill_the_memory_with_names_of_models() -> None:
    lines = ReadableLine()
    for number in range(CACHE_SIZE + 10):
        lines.line_of(ended(model=f"model-{number}"))
    lines.line_of(ended(model="m" * MAX_FRAGMENT_LENGTH))
    assert len(lines.models) == 10 and "m" * MAX_FRAGMENT_LENGTH not in lines.models


def test_json_is_compact_and_its_letters_are_as_they_were_written() -> None:
    line = written("json", TOLD["chosen to mislead"][0])
    assert line.startswith(f'{{"at":"{MOMENT}","level":"info","event":"request","request_id":"{ID}","operation":')
    assert line.endswith('"model":"a\\nb key=stolen \\"é\\""}\n')


def test_lines_are_written_up_to_a_limit_and_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[Any] = []
    monkeypatch.setattr(request_line, "later", lambda seconds, work: due.append(work))
    told: list[str] = []
    put, one = RequestLines("json", told.append), TOLD["served"][0]
    for _ in range(2 * MAX_LINES + 1):
        put(one)
    assert [text.count("\n") for text in told] == [MAX_LINES, MAX_LINES] and len(due) == 1
    due.pop()()
    assert told[2].count("\n") == 1
    put(one)
    assert len(due) == 1


@pytest.mark.parametrize(
    "held", [ended(body=b"x" * (LARGE_BODY_BYTES + 1)), failed(), refused()], ids=["large", "failed", "refused"]
)
def test_a_line_waits_in_memory_instead_of_the_request_where_that_holds_much(
    held: FinishedRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_line, "later", lambda seconds, work: None)
    told: list[str] = []
    put, ours = RequestLines("json", told.append), msgspec.structs.replace(held)
    known = sys.getrefcount(ours)
    put(ours)
    assert sys.getrefcount(ours) == known and not told
    put.flush()
    assert len(told) == 1


def written(form: Any, *finished: FinishedRequest) -> str:
    told: list[str] = []
    put = RequestLines(form, told.append)
    for one in finished:
        put(one)
    put.flush()
    return "".join(told)


def simple(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and bool(PLAIN_VALUE.fullmatch(value)))


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
