from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace

import orjson
import pytest
from gevent.monkey import get_original
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral import long_json
from gateway.neutral.events import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from gateway.providers import sse
from gateway.providers.openai.responses_stream import ResponsesStreamReader
from gateway.providers.sse import EVENTS_PER_TURN, MAX_EVENTS, THREAD_BYTES, EventReader, read_batches

thread_id: Callable[[], int] = get_original("_thread", "get_ident")

STREAM = (
    b": hello\n\n"
    b'data: {"a":1}\n\n'
    b"event: error\r\ndata: first\r\ndata: second\r\nid: 7\r\n\r\n"
    b"retry: 10\n\n"
    b"data:no space\n\n\n" + "data: größe \U0001f600\n\n".encode() + b"data: [DONE]\n\n"
)
EVENTS = [
    ("", b'{"a":1}'),
    ("error", b"first\nsecond"),
    ("", b"no space"),
    ("", "größe \U0001f600".encode()),
    ("", b"[DONE]"),
]


def read(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def test_stream_is_read_in_one_piece():
    assert read([STREAM]) == EVENTS


def test_stream_is_read_byte_by_byte():
    assert read([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_no_split_changes_the_result(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_every_end_of_a_line_of_the_standard_is_one():
    assert read([STREAM.replace(b"\r\n", b"\n").replace(b"\n", b"\r") + b"x"]) == EVENTS


def test_a_byte_order_mark_in_front_hides_no_event():
    assert read([b"\xef\xbb\xbf" + STREAM.removeprefix(b": hello\n\n")]) == EVENTS


def test_event_that_only_lacks_its_blank_line_is_read_at_the_end():
    reader = EventReader()
    assert reader.feed(b"data: [DONE]\n") == []
    assert reader.finish() == [("", b"[DONE]")]
    assert reader.finish() == []


def test_event_without_end_is_stopped():
    reader = EventReader(limit=100)
    with pytest.raises(UpstreamFailed):
        for _ in range(20):
            reader.feed(b"data: " + b"x" * 10)


def test_whole_events_do_not_count_against_the_limit():
    reader = EventReader(limit=100)
    assert sum(len(reader.feed(b"data: xxxxxxxxxx\n\n" * 9)) for _ in range(20)) == 180


LINES = [b"data: a", b"data: b", b"event: e\ndata: c", b": note", b"data:d", b"data: e\ndata: f", b"", b"\ndata: g"]
LINES += [b"event: h\ndata:  i", b"event: \ndata: ", b"event: j\nid: 1\ndata: k", b"x event: l\ndata: m"]


@given(st.lists(st.sampled_from(LINES)))
def test_events_of_one_line_and_others_are_distinguished_in_any_company(blocks):
    alone = [event for block in blocks for event in EventReader().feed(block + b"\n\n")]
    assert EventReader().feed(b"".join(block + b"\n\n" for block in blocks)) == alone


class Counting(bytearray):
    """Counts the bytes that are copied out of what is held."""

    copied = 0

    def __bytes__(self) -> bytes:
        self.copied += len(self)
        return super().__bytes__() if hasattr(super(), "__bytes__") else bytes(memoryview(self))

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.copied += len(found) if isinstance(found, bytearray) else 0
        return found


def copied(lines: int) -> int:
    """Return the number of bytes copied while one event with this many lines is read, one line at a time."""
    reader = EventReader()
    held = reader._held = Counting()
    for _ in range(lines):
        assert reader.feed(b"data: x\n") == []
    assert len(reader.feed(b"\n")) == 1
    return held.copied


def test_an_event_that_comes_line_by_line_is_copied_once():
    assert copied(2000) <= 2.2 * copied(1000)


def test_an_event_without_end_is_stopped_also_line_by_line():
    reader = EventReader(limit=1000)
    with pytest.raises(UpstreamFailed):
        for _ in range(1000):
            reader.feed(b"data: x\n")


@pytest.mark.parametrize(
    "data", [b"data: x\r\r\n\n", b"data: x\r\r\n\r\ndata: y\n\n", b"data: x\n\r\r\n\r\ndata: y\r\n\r\n"]
)
def test_lone_return_before_a_line_end_reads_alike_however_it_is_cut(data):
    def events(pieces):
        reader = EventReader()
        return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()

    whole = events([data])
    assert events([bytes([byte]) for byte in data]) == whole
    assert all(events([data[:at], data[at:]]) == whole for at in range(1, len(data)))


class Pieces:
    """A reply that comes in pieces."""

    status, headers = 200, {"content-type": "text/event-stream"}

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, len(self._data), self._size):
            yield self._data[start : start + self._size]


class Sizes:
    """A format that notes of each event how long it is, and in which thread it was read."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def expect_long(self) -> None:
        pass

    def take(self, pieces: list[tuple[str, bytes]]) -> tuple[list[int], bool]:
        self.threads += [thread_id() for _ in pieces]
        return [len(data) for _, data in pieces], any(data == b"[DONE]" for _, data in pieces)

    def finish(self, pieces: list[tuple[str, bytes]]) -> list[int]:
        return [-1]

    def fail(self, error: GatewayError) -> list[int]:
        raise error


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""])
def test_a_long_event_is_read_in_a_thread_and_no_other_is_lost_around_it(end: bytes) -> None:
    long = THREAD_BYTES * 3
    data = b"data: ab\n\ndata: abc\n\n" + b"data: " + b"x" * long + b"\n\ndata: abcd\n\n" * 2 + end
    stream = Sizes()
    read = [size for batch in read_batches(Pieces(data, 65536), stream) for size in batch]
    assert read == [2, 3, long, 4, 4, *([6] if end else [-1])]
    assert stream.threads[0] == thread_id() != stream.threads[2]


def test_an_event_of_millions_of_lines_is_the_providers_fault() -> None:
    with pytest.raises(UpstreamFailed, match="lines"):
        EventReader().feed(b"data:\n" * 70_000 + b"\n")


class Many(Sizes):
    """A format in which each event states how many neutral events it produces."""

    def take(self, pieces: list[tuple[str, bytes]]) -> tuple[list[int], bool]:
        return [number for _, data in pieces for number in range(int(data[: data.index(b" ")]))], False


@pytest.mark.parametrize("end", [b"\n\n", b"\n"])
def test_the_content_of_a_long_event_is_forwarded_in_small_batches(end: bytes) -> None:
    def batches(count: int) -> list[list[int]]:
        data = b"data: %d " % count + b"x" * THREAD_BYTES * 2 + end
        stream = Many()
        stream.finish = lambda pieces: [*stream.take(pieces)[0], -1]
        return list(read_batches(Pieces(data, 65536), stream))

    read = batches(1_000)
    assert [number for batch in read for number in batch] == [*range(1_000), -1]
    assert max(map(len, read)) <= EVENTS_PER_TURN
    with pytest.raises(UpstreamFailed, match="texts and calls"):
        batches(MAX_EVENTS + 1)


def test_a_long_piece_of_tiny_events_is_read_in_turns_with_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(sse, "bulk_turn", lambda: read.append(len(seen)))
    seen: list[int] = []
    events = b"data: {}\n\n" * 20_000
    for batch in read_batches(Pieces(events, 65_536), Sizes()):
        seen += batch
    assert seen == [2] * 20_000 + [-1]
    steps = [after - before for before, after in pairwise(read)]
    assert max(steps) <= 65_536 / len(b"data: {}\n\n") / 4


def test_nothing_of_a_long_piece_is_lost_around_a_long_event() -> None:
    long = b"data: " + b"x" * THREAD_BYTES * 2 + b"\n\n"
    whole = b"data: a\n\n" + long + b"data: bb\n\n"
    for size in (65_536, len(whole)):
        seen = [length for batch in read_batches(Pieces(whole, size), Sizes()) for length in batch]
        assert seen == [1, 2 * THREAD_BYTES, 2, -1]


def test_a_long_event_that_is_no_json_is_not_decoded_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [0]

    def note(text: bytes) -> object:
        sizes.append(len(text))
        return orjson.loads(text)

    counted = SimpleNamespace(loads=note, JSONDecodeError=orjson.JSONDecodeError)
    monkeypatch.setattr(sse, "orjson", counted)
    monkeypatch.setattr(long_json, "orjson", counted)
    reader = ResponsesStreamReader(False)
    reader.expect_long()
    _, done = reader.take([("", b'{"type": "' + b"x" * 5_000_000)])
    assert done and max(sizes) < 1_000_000


@pytest.mark.parametrize(
    ("event", "member"),
    [
        (TextDelta("ä" * 200_000, 3, 1, signature="s", vendor="v"), "text"),
        (ReasoningDelta("ä" * 200_000, "s", "e", "v", "i", True, 3, 1), "text"),
        (ToolCallDelta(3, "ä" * 200_000, "c", "f", "s", "v"), "arguments"),
    ],
)
def test_a_long_text_is_passed_on_in_pieces_with_everything_else_once(event: object, member: str) -> None:
    """Written at once, 16 MB silenced the worker for a fifth of a second."""
    end = Finished("stop", None)
    before = TextDelta("Hello")
    batches = list(sse._in_pieces([before, event, end]))  # type: ignore[list-item]
    assert batches[0] == [before] and batches[-1] == [end]
    pieces = [piece for (piece,) in batches[1:-1]]
    assert len(pieces) == 4 and all(len(getattr(piece, member)) <= sse.TEXT_PIECE for piece in pieces)
    names = type(event).__struct_fields__  # type: ignore[attr-defined]
    joined = {name: "".join(getattr(piece, name) for piece in pieces) for name in ("signature", member)}
    assert joined == {name: getattr(event, name) for name in joined}
    for name in names:
        assert getattr(pieces[0], name) == getattr(event, name) or name == member
    for name in ("block", "choice", "vendor"):
        assert {getattr(piece, name) for piece in pieces} == {getattr(event, name)}
