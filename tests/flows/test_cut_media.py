"""Speech, transcripts and realtime responses that end at random moments, over a real process.

Either side ends them, and the provider reports all of its usage, a part of it, zeros, nothing or nonsense. No row
costs less than what was certainly delivered, and none is more than was reserved. Where an answer was complete and its
usage reported, the row is exact. `test_left_answers.py` does the same over the dialects of chat, and
`unit/billing/test_row_bounds.py` over the settlement alone.
"""

import http.client
import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from socket import SHUT_RDWR
from typing import Any, NamedTuple

import pytest
from fakes.realtime import USAGE, USAGE_NUSD, Conversation, FakeRealtime
from fakes.server import FakeServer
from multipart import MultipartParser, parse_options_header
from support.gateways import GatewayProcess
from support.spending import at_once, query, until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from gateway.metering.models import OVERRUN
from gateway.providers.sandbox import speech

ROWS = "SELECT label, basis, flags, cost_nusd FROM usage"
ESTIMATED = 2  # of metering/models.py
CASES = 24
ENVIRONMENT = {
    "LLM_OPENAI_API_KEY": "sk-upstream",
    "GATEWAY_REALTIME_KEY_SESSIONS": "0",
    "GATEWAY_REALTIME_ORGANIZATION_SESSIONS": "0",
    "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000",
}
REPORTS = ("complete", "complete", "partial", "zero", "none", "absurd")
SECOND = bytes(48_000)  # of sound as PCM
SOUND = speech.make("wav", 3.0)
WORD = "word "


class Case(NamedTuple):
    """The pieces that the provider would send, the number after which it breaks the connection (0: never), the number
    after which the caller leaves (None: it stays), and the usage that the provider reports."""

    report: str
    pieces: int
    cut: int
    leaves_after: int | None

    @property
    def instructions(self) -> str:
        return json.dumps(self._asdict())


def any_case(chance: random.Random) -> Case:
    pieces = chance.randint(1, 8)
    cut = chance.randint(1, pieces) if chance.random() < 0.3 else 0
    return Case(chance.choice(REPORTS), pieces, cut, chance.choice((None, None, 1, chance.randint(1, pieces))))


class Operation(NamedTuple):
    """`run` sends a case and returns the number of pieces that were received; `min_nusd` is the least cost of so many
    pieces, `complete` and `partial` what the provider reports, `exact_nusd` the cost of the former."""

    run: Callable[[GatewayProcess, Case, str], int]
    min_nusd: Callable[[int], int]
    complete: dict[str, Any]
    partial: dict[str, Any]
    exact_nusd: int

    def reported(self, case: Case) -> dict[str, Any]:
        zeros = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
        absurd = {"input_tokens": -7, "output_tokens": "many", "total_tokens": 10**30}
        reports = {"complete": self.complete, "partial": self.partial, "zero": zeros, "absurd": absurd}
        return {"usage": reports[case.report]} if case.report in reports else {}


def call(gateway: GatewayProcess, path: str, body: bytes, kind: str, name: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": kind, "x-request-id": name}
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return answer


def read_events(answer: http.client.HTTPResponse, case: Case, mark: bytes) -> int:
    """Read until the caller leaves or the stream ends; return how many pieces came."""
    read = b""
    with suppress(http.client.HTTPException, OSError):
        while piece := answer.read1(65536):
            read += piece
            if case.leaves_after is not None and read.count(mark) >= case.leaves_after:
                break
    answer.close()
    return read.count(mark)


def speak(gateway: GatewayProcess, case: Case, name: str) -> int:
    request = {"input": case.instructions, "voice": "alloy", "response_format": "pcm", "stream_format": "sse"}
    body = json.dumps({"model": "openai/gpt-4o-mini-tts"} | request).encode()
    answer = call(gateway, "/v1/audio/speech", body, "application/json", name)
    return read_events(answer, case, b'"speech.audio.delta"')


def listen(gateway: GatewayProcess, case: Case, name: str) -> int:
    parts = {"model": b"openai/gpt-4o-transcribe", "stream": b"true", "prompt": case.instructions.encode()}
    form = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (field.encode(), value)
        for field, value in parts.items()
    )
    form += b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n--x--\r\n' % SOUND
    answer = call(gateway, "/v1/audio/transcriptions", form, "multipart/form-data; boundary=x", name)
    return read_events(answer, case, b'"transcript.text.delta"')


def talk_to(gateway: GatewayProcess, case: Case, name: str) -> int:
    address = gateway.address.replace("http", "ws") + "/v1/realtime?model=openai/gpt-realtime"
    headers = {"Authorization": f"Bearer {gateway.key}", "x-request-id": name}
    came = 0
    with suppress(ConnectionClosed), connect(address, additional_headers=headers) as session:
        session.send(json.dumps({"type": "response.create", "response": {"instructions": case.instructions}}))
        while case.leaves_after is None or came < case.leaves_after:
            kind = json.loads(session.recv(timeout=60))["type"]
            came += kind == "response.output_text.delta"
            if kind in ("response.done", "error"):
                break
    return came


class CutServices(FakeServer):
    """Speech and transcripts in pieces; the case stands in the text or the prompt."""

    base = "/v1"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        raw = environ["wsgi.input"].read()
        start("200 OK", [("Content-Type", "text/event-stream")])
        if environ["PATH_INFO"].endswith("/speech"):
            case = Case(**json.loads(json.loads(raw)["input"]))
            piece: dict[str, Any] = {"type": "speech.audio.delta", "audio": b64encode(SECOND).decode()}
            end: dict[str, Any] = {"type": "speech.audio.done"} | SPEECH.reported(case)
        else:
            boundary = parse_options_header(environ["CONTENT_TYPE"])[1]["boundary"]
            fields = {part.name: part.raw for part in MultipartParser(BytesIO(raw), boundary, len(raw), strict=True)}
            case = Case(**json.loads(fields["prompt"]))
            piece = {"type": "transcript.text.delta", "delta": WORD}
            end = {"type": "transcript.text.done", "text": WORD * case.pieces} | TRANSCRIPT.reported(case)
        for number in range(case.pieces):
            yield b"data: %b\n\n" % json.dumps(piece).encode()
            if number + 1 == case.cut:
                environ["fake.socket"].shutdown(SHUT_RDWR)
                return
        yield b"data: %b\n\n" % json.dumps(end).encode()


def play(talk: Conversation) -> None:
    """Answer the first response of a session by its instructions."""
    event = talk.hear("response.create")
    case = Case(**json.loads(event["response"]["instructions"]))
    ident = f"resp_{id(talk)}"
    talk.send("response.created", response={"id": ident, "status": "in_progress", "output": []})
    about = {"response_id": ident, "item_id": "item", "output_index": 0, "content_index": 0}
    for number in range(case.pieces):
        talk.send("response.output_text.delta", **about, delta=WORD)
        if number + 1 == case.cut:
            talk._connection.socket.shutdown(SHUT_RDWR)
            raise ConnectionClosed(None, None)
    ended = {"id": ident, "status": "completed", "output": []}
    talk.send("response.done", response=ended | RESPONSE.reported(case))


# Prices in n$: speech 600 for a token of text and 12,000 for one of sound, of which a second has twenty; transcripts
# 6,000 for a token of sound, of which a second has ten; sessions 16,000 for a token of text written.
SPEECH = Operation(
    speak,
    lambda pieces: pieces * 20 * 12_000,
    {"input_tokens": 12, "output_tokens": 250, "total_tokens": 262},
    {"input_tokens": 12, "total_tokens": 12},
    12 * 600 + 250 * 12_000,
)
TRANSCRIPT = Operation(
    listen,
    lambda pieces: 3 * 10 * 6_000,
    {
        "type": "tokens",
        "input_tokens": 34,
        "input_token_details": {"text_tokens": 4, "audio_tokens": 30},
        "output_tokens": 7,
        "total_tokens": 41,
    },
    {"type": "tokens", "input_tokens": 34, "total_tokens": 34},
    4 * 2_500 + 30 * 6_000 + 7 * 10_000,
)
RESPONSE = Operation(
    talk_to,
    lambda pieces: pieces * len(WORD) // 4 * 16_000,
    USAGE,
    {"input_tokens": 230, "input_token_details": {"text_tokens": 230}},
    USAGE_NUSD,
)


@pytest.fixture
def services() -> Iterator[CutServices]:
    with CutServices() as fake:
        yield fake


@pytest.fixture
def sessions() -> Iterator[FakeRealtime]:
    with FakeRealtime() as fake:
        fake.plays = [play] * CASES
        yield fake


def check_rows(gateway: GatewayProcess, operation: Operation, seed: int) -> None:
    chance = random.Random(seed)
    cases = {f"case-{number}": any_case(chance) for number in range(CASES)}
    names = list(cases)
    came = at_once(len(names), lambda number: operation.run(gateway, cases[names[number]], names[number]))
    assert until(lambda: len(query(gateway, ROWS)) == CASES), query(gateway, ROWS)
    rows = {row[0]: row[1:] for row in query(gateway, ROWS)}
    for name, pieces in zip(names, came, strict=True):
        case, (basis, flags, cost_nusd) = cases[name], rows[name]
        context = (case, pieces, rows[name])
        assert not flags & OVERRUN, context
        assert cost_nusd >= (operation.min_nusd(pieces) if basis == ESTIMATED else operation.exact_nusd), context
        if case.report == "complete" and not case.cut and case.leaves_after is None:
            assert basis != ESTIMATED and cost_nusd == operation.exact_nusd, context
    assert "The books agree." in gateway.manage("doctor")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("operation", [SPEECH, TRANSCRIPT], ids=["speech", "transcripts"])
def test_sound_costs_the_delivered_or_reported_usage(process, services, operation, seed) -> None:
    gateway = process(LLM_OPENAI_BASE_URL=services.url, **ENVIRONMENT)
    check_rows(gateway, operation, seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_response_of_a_session_costs_the_delivered_or_reported_usage(process, sessions, seed) -> None:
    gateway = process(LLM_OPENAI_BASE_URL=sessions.url, **ENVIRONMENT)
    check_rows(gateway, RESPONSE, seed)
