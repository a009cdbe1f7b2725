"""Answers in which one member has another type than its vendor documents: at most they cause a provider's error in the
caller's dialect, and never an internal error."""

import copy
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract import cases_ai, cases_chat, cases_messages, cases_responses
from contract.contract_gateway import ContractGateway
from contract.vendors import FURTHER, VENDORS
from fakes.bedrock import encode_frame
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.providers.bedrock.eventstream import FrameReader
from gateway.transport.upstream_responses import Reply

Json = dict[str, Any]
Path = tuple[str | int, ...]
CASES = {
    "chat": cases_chat.CASES,
    "messages": cases_messages.CASES,
    "responses": cases_responses.CASES,
    "ai4": cases_ai.CASES,
}
ODD = [None, 5, "zz", [], {}, [1], {"a": 1}, True, -1, 2.5, ["x"]]
GONE = object()  # in place of a value: the member is left out
# Where each event of a stream begins with its data.
DATA = b"data: "


def take_apart(body: bytes, kind: str) -> list[tuple[Any, Any]]:
    """The JSON values of an answer, each with what stands around it; None for what is none."""
    if "amazon.eventstream" in kind:
        return [(frame, json.loads(frame.payload or b"{}")) for frame in FrameReader().feed(body)]
    if "event-stream" not in kind:
        return [(b"", json.loads(body))]
    parts = []
    for block in body.split(b"\n\n"):
        head, mark, data = block.rpartition(DATA)
        parts.append((head, json.loads(data)) if mark and data != b"[DONE]" else (block, None))
    return parts


def put_together(parts: list[tuple[Any, Any]], kind: str) -> bytes:
    if "amazon.eventstream" in kind:
        return b"".join(encode_frame(frame.name, value) for frame, value in parts)
    if "event-stream" not in kind:
        return json.dumps(parts[0][1]).encode()
    blocks = [head if value is None else head + DATA + json.dumps(value).encode() for head, value in parts]
    return b"\n\n".join(blocks)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in inner:
        yield from places(member, (*path, name))


def spoil(value: Any, path: Path, odd: Any) -> Any:
    value = copy.deepcopy(value)
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    if odd is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = odd
    return value


class Spoiler:
    """Stands between the transport and the protocols. `change` makes another answer of its parts."""

    def __init__(self) -> None:
        self.change: Callable[[list[tuple[Any, Any]]], list[tuple[Any, Any]]] = list
        self.crashes: list[str] = []

    def __call__(self, body: bytes, kind: str) -> bytes:
        return put_together(self.change(take_apart(body, kind)), kind) if body else body


@pytest.fixture(scope="module")
def spoiler(stage: ContractGateway) -> Iterator[Spoiler]:
    new_spoiler, read_all, chunks = Spoiler(), Reply.read_all, Reply.chunks

    def spoilt(self: Reply, *limit: int) -> bytes:
        return new_spoiler(read_all(self, *limit), self.headers.get("content-type", ""))

    def streamed(self: Reply) -> Iterator[bytes]:
        yield new_spoiler(b"".join(chunks(self)), self.headers.get("content-type", ""))

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # Recurring work is another matter: another gateway of this process may have taken the tables over.
            if record.exc_info and record.name != "gateway.worker.recurring_jobs":
                new_spoiler.crashes.append(f"{record.getMessage()}: {record.exc_info[1]!r}")

    listener = Listener()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reply, "read_all", spoilt)
        patch.setattr(Reply, "chunks", streamed)
        logging.getLogger("gateway").addHandler(listener)
        yield new_spoiler
        logging.getLogger("gateway").removeHandler(listener)


def send(stage: ContractGateway, spoiler: Spoiler, surface: str, vendor: str, name: str, streamed: bool) -> bytes:
    """The answer to a case's first turn, whatever it is; but never a fault of ours."""
    case = CASES[surface][name]
    stage.script(vendor, *case.says)
    spoiler.crashes.clear()
    body = case.body | {"model": f"fake-{vendor}/{vendor}-able"} | ({"stream": True} if streamed else {})
    status, answer = stage.send(surface, body, described=False)
    assert status != 500 and not spoiler.crashes
    return answer


def at(place: int, path: Path, odd: Any) -> Callable[[list[tuple[Any, Any]]], list[tuple[Any, Any]]]:
    """A change of one member of the part at `place`."""

    def change(parts: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        head, value = parts[place]
        return [*parts[:place], (head, spoil(value, path, odd)), *parts[place + 1 :]]

    return change


def first(path: Path, odd: Any) -> Callable[[list[tuple[Any, Any]]], list[tuple[Any, Any]]]:
    """A change of the first member at this path."""
    return lambda parts: at(next(n for n, (_, value) in enumerate(parts) if path in places(value)), path, odd)(parts)


WHOLE, STREAM = False, True
THINKING, CALLING = "reasoning then text", "parallel calls"


@pytest.mark.parametrize(
    ("surface", "vendor", "name", "streamed", "path", "odd"),
    [
        ("messages", "anthropic", THINKING, WHOLE, ("usage",), 5),
        ("messages", "anthropic", THINKING, STREAM, ("usage",), True),
        ("responses", "anthropic", CALLING, WHOLE, ("content", 0, "name"), ["x"]),
        ("responses", "anthropic", CALLING, STREAM, ("content_block", "name"), ["x"]),
        ("responses", "anthropic", CALLING, STREAM, ("index",), {}),
        ("chat", "anthropic", CALLING, STREAM, ("index",), {"a": 1}),
        ("messages", "bedrock", THINKING, STREAM, ("delta", "reasoningContent", "signature"), ["x"]),
        ("chat", "openai", CALLING, STREAM, ("choices", 0, "finish_reason"), {}),
        ("chat", "openai", CALLING, STREAM, ("choices", 0, "index"), []),
        ("responses", "responses", CALLING, STREAM, ("type",), {}),
        ("responses", "responses", CALLING, STREAM, ("type",), GONE),
        ("responses", "responses", CALLING, STREAM, ("item", "type"), {"a": 1}),
        ("responses", "openai", CALLING, STREAM, ("choices", 0, "delta", "tool_calls"), [{"id": [1], "function": 5}]),
    ],
)
def test_an_odd_member_of_an_answer_is_never_our_fault(
    stage: ContractGateway,
    spoiler: Spoiler,
    surface: str,
    vendor: str,
    name: str,
    streamed: bool,
    path: Path,
    odd: Any,
) -> None:
    spoiler.change = first(path, odd)
    send(stage, spoiler, surface, vendor, name, streamed)


WAYS = [
    (surface, vendor, name, streamed)
    for surface, cases in CASES.items()
    for vendor in (VENDORS if surface == "ai4" else (*VENDORS, *FURTHER))
    for name, case in cases.items()
    for streamed in ((WHOLE, STREAM) if case.streams else (WHOLE,))
    if not case.faulty
]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_odd_member_of_any_answer_is_never_our_fault(
    stage: ContractGateway, spoiler: Spoiler, data: st.DataObject
) -> None:
    surface, vendor, name, streamed = data.draw(st.sampled_from(WAYS))

    def change(parts: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        found = [(index, path) for index, (_, value) in enumerate(parts) for path in places(value)]
        if not found:
            return parts
        place, path = data.draw(st.sampled_from(found))
        return at(place, path, data.draw(st.sampled_from([*ODD, GONE])))(parts)

    spoiler.change = change
    send(stage, spoiler, surface, vendor, name, streamed)


def test_a_finish_reason_without_a_word_ends_nothing(stage: ContractGateway, spoiler: Spoiler) -> None:
    """Some servers write "" where others write null: a client would take the first piece for the last."""

    def change(parts: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        for _, value in parts:
            for choice in (value or {}).get("choices", ()):
                choice["finish_reason"] = choice["finish_reason"] or ""
        return parts

    spoiler.change = change
    answer = send(stage, spoiler, "chat", "openai", "text", STREAM)
    chunks = [json.loads(line[len(DATA) :]) for line in answer.splitlines() if line.startswith(DATA + b"{")]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [reason for reason in reasons if reason] == ["stop"] and len(reasons) > 2


def deepen(parts: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """A member that JSON can be read with and not written again, in each object that holds another."""
    for _, value in parts:
        for path in [*places(value), ("",)] if value else ():
            holder = value
            for step in path[:-1]:
                holder = holder[step]
            if isinstance(holder, dict):
                holder["extra"] = nested(300)
    return parts


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("streamed", [WHOLE, STREAM])
@pytest.mark.parametrize(
    ("surface", "vendor"), [("chat", "openai"), ("messages", "anthropic"), ("responses", "responses")]
)
def test_an_answer_nested_deeper_than_can_be_written_is_the_providers_fault(
    stage: ContractGateway, spoiler: Spoiler, surface: str, vendor: str, streamed: bool
) -> None:
    spoiler.change = deepen
    answer = send(stage, spoiler, surface, vendor, "text", streamed)
    assert b"nested deeper" in answer and b"internal_error" not in answer
