"""Guardrails of requests and answers: what is refused in a stream, where texts are searched, and what is bounded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from gevent.monkey import get_original
from support.clock import FakeClock

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.engine import guarding as guarding_module
from gateway.engine.guarded_requests import GuardedRequest
from gateway.engine.guarding import Guarding
from gateway.engine.realtime import session_guard
from gateway.engine.realtime.session_guard import SessionGuard
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.guardrails import guarded_texts
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.guardrails.scanning import Scanner
from gateway.metering.counters import Counters
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.events import BlockDone, Finished, MediaPiece, RefusalDelta, TextDelta, ToolCallDelta
from gateway.neutral.realtime import ClientEvent
from gateway.neutral.request import Requirements
from gateway.runtime.state_changes import StateLog

thread_id: Callable[[], int] = get_original("_thread", "get_ident")
CALLER = Caller("key", "user", "", "org", "proj", "user", "member", "owner", "credits")
BLOCKING = GuardrailRule("guard_1", "No cards", "block", ("payment_card",), places=("answer",))
MASKING = GuardrailRule("guard_2", "Mask", "mask", ("email",))
REQUEST = ChatRequest("m", Requirements(stream=True), lambda: Conversation(()))


class Rows:
    """A journal that keeps what is appended."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def append(self, *rows: Any) -> None:
        self.rows += rows


class Version:
    """A control version that never changes."""

    def check(self) -> int:
        return 1


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def guarding(rows: Rows, tmp_path: Path) -> Guarding:
    vault = Vault(("a key of the installation",))
    parts: tuple[Any, ...] = (
        None,
        Version(),
        rows,
        vault,
        None,
        FakeClock(),
        b"secret",
        Counters(tmp_path),
        None,
        StateLog(),
    )
    return Guarding(*parts)


def context() -> RequestContext:
    CALLER.memo.clear()
    return RequestContext("0" * 32, CALLER, 0, 0.0, 100.0, session="s1")


def set_rules(guarding: Guarding, *rules: GuardrailRule) -> None:
    """Let these rules of the organization be in force."""
    stored = tuple(("organization", "org", rule) for rule in rules)
    guarding._read = lambda organization_id, version: stored  # type: ignore[method-assign]


def make_guard(guarding: Guarding, *rules: GuardrailRule) -> GuardedRequest:
    return GuardedRequest(context(), RuleSet(rules, str), REQUEST, Masks(b"key"), guarding.checks, guarding.record)


def realtime(guarding: Guarding) -> SessionGuard:
    target = SimpleNamespace(mapping=SimpleNamespace(model="m"), provider=SimpleNamespace(id="p"))
    place: Any = SimpleNamespace(target=target, requested_model="m")
    return SessionGuard(guarding, context(), place)


def written(event: Any) -> str:
    return orjson.dumps(event).decode()


def said(text: str) -> ClientEvent:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return ClientEvent(written({"type": "conversation.item.create", "item": item}))


def test_media_after_a_text_in_a_stream_are_refused_by_a_rule_that_blocks(guarding: Guarding) -> None:
    def answer() -> Iterator[Any]:
        yield [TextDelta("Here it is."), BlockDone(0)]
        yield [MediaPiece(b"sound", block=1)]
        yield [Finished("stop", None)]

    guard = make_guard(guarding, BLOCKING)
    sent = [event for batch in guard.stream(answer()) for event in batch]
    assert [type(event) for event in sent if type(event) is not TextDelta] == [BlockDone, RefusalDelta, Finished]
    assert guard.findings.not_checked() == ["answer: media"]


def test_tested_text_is_searched_in_a_thread_with_the_rules_that_are_known(
    guarding: Guarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[tuple[str, int]] = []
    search, begin = Scanner._find, RuleSet.__init__

    def noted(scanner: Scanner, text: str, data: bytes | None = None) -> Any:
        threads.append(("search", thread_id()))
        return search(scanner, text, data)

    def compiled(rules: RuleSet, *given: Any) -> None:
        threads.append(("compile", thread_id()))
        begin(rules, *given)

    monkeypatch.setattr(Scanner, "_find", noted)
    monkeypatch.setattr(RuleSet, "__init__", compiled)
    text = "Write to anna@mail.test. " * 4000
    for _ in range(2):
        tested = guarding.test("org", (MASKING,), text, "prompt")
        assert len(tested.matches) == 4000 and "anna" not in tested.text
    assert [name for name, _ in threads] == ["compile", "search"]
    assert thread_id() not in [thread for _, thread in threads]


def test_rules_for_some_models_are_kept_for_as_many_sets_as_a_worker_remembers(
    guarding: Guarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding_module, "SETS", 2)
    rules = [GuardrailRule(f"guard_{n}", "A", "log", ("email",), models=(f"model-{n}",)) for n in range(5)]
    whole = guarding.rule_set("org", tuple(rules))
    for number in range(5):
        found = guarding.rules_for(CALLER, whole, [f"model-{number}"])
        assert found is not None and found.rules == (rules[number],)
    assert guarding.rules_for(CALLER, whole, ["other"]) is None
    assert len(guarding._sets) == 2


def test_findings_of_a_request_are_stored_in_a_bounded_number_of_rows_with_the_strongest_first(
    guarding: Guarding, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_texts, "MAX_ROWS", 2)
    rules = [GuardrailRule(f"guard_{action}", "A", action, ("email",)) for action in ("log", "warn", "mask", "block")]
    findings = guarded_texts.Findings()
    for match in RuleSet(rules, str).find("anna@mail.test", "prompt"):
        findings.add(match, "prompt")
    guarding.record(context(), findings)
    assert [values[1] for _, values in rows.rows] == ["guard_block", "guard_mask"]


def test_table_of_a_session_is_written_once_for_a_value(guarding: Guarding, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(guarding.tables, "write", lambda table, values, shared: written.append(len(values)))
    set_rules(guarding, MASKING)
    guard = realtime(guarding)
    for text in ("anna@mail.test", "nothing", "anna@mail.test", "bert@mail.test"):
        guard.request(said(text))
    assert written == [1, 2]


def test_values_of_a_realtime_session_are_bounded(guarding: Guarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_guard, "SESSION_VALUES", 3)
    set_rules(guarding, MASKING)
    guard = realtime(guarding)
    for number in range(10):
        guard.request(said(f"anna{number}@mail.test"))
    assert list(guard._known().values.values()) == ["anna7@mail.test", "anna8@mail.test", "anna9@mail.test"]


def test_texts_that_a_provider_never_ends_are_bounded(guarding: Guarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_guard, "MAX_OPEN", 5)
    set_rules(guarding, MASKING, BLOCKING)
    guard = realtime(guarding)
    for number in range(20):
        guard.answers(written({"type": "response.output_text.delta", "item_id": f"i{number}", "delta": "Hi"}))
        guard.answers(written({"type": "response.output_item.added", "item": {"id": f"i{number}", "name": "mail"}}))
    assert len(guard._streams) == 5 and len(guard._tools) == 5


def test_large_events_of_a_realtime_session_are_searched_in_a_thread(
    guarding: Guarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    search = Scanner._find
    monkeypatch.setattr(
        Scanner,
        "_find",
        lambda *given: threads.append(thread_id()) or search(*given),  # type: ignore[func-returns-value]
    )
    set_rules(guarding, MASKING, BLOCKING)
    guard = realtime(guarding)
    guard.request(said("x " * 50_000))
    guard.answers(written({"type": "response.output_text.done", "text": "x " * 50_000}))
    assert threads and thread_id() not in threads


def test_events_that_are_nested_too_deeply_are_refused(guarding: Guarding) -> None:
    set_rules(guarding, MASKING, BLOCKING)
    guard = realtime(guarding)
    deep = "[" * 900 + '"a"' + "]" * 900
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        guard.request(ClientEvent(f'{{"type":"session.update","session":{deep}}}'))
    with pytest.raises(UpstreamFailed):
        guard.answers(f'{{"type":"response.done","response":{deep}}}')


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_every_choice_of_a_blocked_stream_gets_the_refusal(guarding: Guarding, size: int) -> None:
    text = "My card is 4929 1234 5678 9015."

    def answer() -> Iterator[Any]:
        for start in range(0, len(text), size):
            yield [TextDelta("Hi", choice=1), TextDelta(text[start : start + size], choice=0)]
        yield [BlockDone(0), Finished("stop", None)]

    guard = make_guard(guarding, BLOCKING)
    sent = [event for batch in guard.stream(answer()) for event in batch]
    assert {event.choice for event in sent if type(event) is RefusalDelta} == {0, 1}
    assert type(sent[-1]) is Finished and "4929" not in "".join(str(event) for event in sent)


def test_tool_with_an_unknown_name_gets_no_hidden_values(guarding: Guarding) -> None:
    hiding = GuardrailRule("guard_2", "Mask", "mask", ("email",), hidden_from=("search",))
    guard = make_guard(guarding, hiding)
    placeholder = guard.masks.mask("anna@mail.test", "EMAIL")

    def answer(name: str) -> Iterator[Any]:
        yield [ToolCallDelta(0, id="c1", name=name), ToolCallDelta(0, f'{{"to": "{placeholder}"}}'), BlockDone(0)]
        yield [Finished("tool_calls", None)]

    for name, shown in (("search", placeholder), ("", placeholder), ("mail", "anna@mail.test")):
        sent = [event for batch in guard.stream(answer(name)) for event in batch]
        assert shown in "".join(event.arguments for event in sent if type(event) is ToolCallDelta), name


def test_value_in_the_name_of_a_tool_call_is_blocked(guarding: Guarding) -> None:
    secrets = GuardrailRule("guard_3", "No terms", "block", terms=("falcon",), places=("answer",))
    guard = make_guard(guarding, secrets)

    def answer() -> Iterator[Any]:
        yield [ToolCallDelta(0, id="c1", name="falcon")]

    sent = [event for batch in guard.stream(answer()) for event in batch]
    assert type(sent[0]) is RefusalDelta
