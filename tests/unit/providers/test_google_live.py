"""Sessions with Google's Live API: where they are opened, what is counted, and messages that are none."""

import gevent
import orjson
import pytest
from fakes import google_live_types as published
from fakes.google_live import USAGE
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import GatewayError, InvalidRequest, NotSupported, UpstreamFailed, UpstreamTimeout
from gateway.neutral.realtime import RealtimeInput, request_of
from gateway.neutral.usage import Usage
from gateway.providers.google.live import live_session as sessions
from gateway.providers.google.live.commands import MAX_PENDING_CHARACTERS, MIN_PART_LENGTH, STEPS, LiveCommands
from gateway.providers.google.live.live_session import (
    INBOX_CAPACITY,
    MAX_QUEUED_CHARACTERS,
    MAX_SHORT_CONNECTIONS,
    GoogleRealtime,
    LiveSession,
    address_of,
)
from gateway.providers.google.live.model_output import ModelOutput, read_usage
from gateway.providers.google.live.session_setup import CHANGES, LARGE, LiveSettings
from gateway.providers.google.live.state import LiveState
from gateway.providers.google.live.upstream_connection import LiveConnection, connect, refusal
from gateway.providers.protocol import Credential, Target
from gateway.transport.websocket_channels import HandshakeRefused, SocketClosed

STUDIO = "https://generativelanguage.googleapis.com/v1beta"
VERTEX = "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google"
NAMES = ("serverContent", "toolCall", "toolCallCancellation", "usageMetadata", "goAway", "sessionResumptionUpdate")
INNER = ("modelTurn", "parts", "turnComplete", "interrupted", "inputTranscription", "outputTranscription", "text")
MORE = ("generationComplete", "functionCalls", "ids", "id", "name", "args", "inlineData", "data", "mimeType")
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(INNER + MORE), inner, max_size=3),
    max_leaves=8,
)
SIDE = st.sampled_from(["input", "output", "format", "voice", "speed", "turn_detection", "transcription"])


def at(address: str = STUDIO) -> Target:
    provider = Provider("google", "Google", "google", auth="x-goog-api-key")
    mapping = Mapping("google", "live", "gemini-3.8-live", operations=("realtime",), voices=("Kore",))
    return Target(provider, mapping, Credential("AIza-good"), address)


@pytest.mark.parametrize(
    ("base", "url", "model"),
    [
        (STUDIO, f"{STUDIO[:-7]}/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", ""),
        (
            VERTEX,
            "https://aiplatform.googleapis.com/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent",
            "projects/p/locations/global/publishers/google/",
        ),
    ],
    ids=["studio", "vertex"],
)
def test_a_session_is_opened_where_each_of_the_two_services_has_them(base, url, model) -> None:
    assert address_of(at(base)) == (url, f"{model}models/gemini-3.8-live")
    codec = GoogleRealtime(lambda headers, target: headers.update(secret="s"))
    call = codec.write(request_of("live", RealtimeInput(), 0, 0), at(base))
    assert (call.method, call.url, call.headers) == ("GET", url, {"secret": "s"})
    with pytest.raises(NotSupported):
        codec.write(request_of("live", RealtimeInput("transcription"), 0, 0), at(base))


def test_counts_of_both_services_are_distinguished_by_their_modality() -> None:
    expected = Usage(input=120, input_audio=100, input_image=10, output=30, output_audio=70)
    assert read_usage(USAGE) == expected
    renamed = {name.replace("response", "candidates"): value for name, value in USAGE.items()}
    moving = [
        {**detail, "modality": detail["modality"].replace("IMAGE", "VIDEO")} for detail in USAGE["promptTokensDetails"]
    ]
    assert read_usage({**renamed, "promptTokensDetails": moving}) == expected
    assert read_usage(None) is read_usage({}) is None


def state() -> LiveState:
    return LiveState(LiveSettings(at(), "sess_1"))


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), ODD, max_size=3), max_size=5))
def test_odd_messages_are_never_an_error_of_ours(messages) -> None:
    ours = state()
    answers = ModelOutput(ours)
    for message in messages:
        answers.take(message)
        for turn in ours.turns:
            turn.due = turn.due and 0.0
        answers.end_overdue()
    kinds = [event.kind for event in ours.out if event.kind]
    assert kinds.count("done") <= kinds.count("started")


class Link:
    """A connection on which these messages come, and then nothing, or its end."""

    def __init__(self, *messages: str, ends: bool = True, sends: bool = True) -> None:
        self.code, self.reason, self.closed, self.received_count = 1008, "Model is not found.", False, 0
        self._messages, self._ends, self._sends = list(messages), ends, sends
        self._gone = gevent.event.Event()

    def receive(self) -> str | None:
        if not self._messages and not self._ends:
            self._gone.wait(60)
        return self._messages.pop(0) if self._messages else None

    def send(self, text: str) -> None:
        if not self._sends:
            raise SocketClosed

    def abort(self) -> None:
        self.closed = True
        self._gone.set()


@pytest.mark.parametrize(
    ("link", "error", "status"),
    [
        (Link(), HandshakeRefused, 404),
        (Link(sends=False), HandshakeRefused, 404),
        (Link('{"error": {"message": "You exceeded your current quota."}}'), HandshakeRefused, 429),
        (Link("[]"), GatewayError, 502),
        (Link(ends=False), UpstreamTimeout, 504),
    ],
    ids=["closed", "closed at once", "told", "odd", "silent"],
)
def test_a_refused_setup_is_recorded_and_leaves_no_connection(link, error, status) -> None:
    with pytest.raises(error) as caught:
        connect(lambda seconds: link, {"model": "m"}, 0.05)
    assert caught.value.status == status and link.closed


def test_the_end_of_a_connection_is_judged_like_an_answer() -> None:
    ends = {1007: 400, 1008: 403, 1011: 500, 1013: 503, 1006: 502}
    assert {code: refusal(code, "").status for code in ends} == ends
    assert refusal(1007, "API key not valid. Please pass a valid API key.").status == 401


def test_a_conversation_resumes_after_ends_that_it_did_not_cause() -> None:
    def resumed(code: int) -> list[str | None]:
        """Return the handles that are resumed after a connection is closed with `code`."""
        link, handles = Link('{"sessionResumptionUpdate": {"newHandle": "h-1", "resumable": true}}'), []
        link.code = code

        def connect_again(settings: LiveSettings, handle: str | None) -> LiveConnection:
            handles.append(handle)
            last = Link()
            last.code = 1000
            return LiveConnection(last)

        session = LiveSession(
            LiveSettings(at(), "sess_1"), LiveConnection(link), connect_again, lambda refused: refused
        )
        try:
            while session.receive() is not None:
                pass
        except HandshakeRefused:
            assert not handles
        return handles

    for code in (1000, 1001, 1006, 1011):  # closed, going away, lost, fault of the server
        assert resumed(code) == ["h-1"], code
    for code in (1007, 1008, 1009):  # invalid data, policy, too large
        assert resumed(code) == [], code


EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(STEPS))},
    optional={
        "session": st.dictionaries(st.sampled_from([*CHANGES, "odd"]), ODD | st.dictionaries(SIDE, ODD), max_size=3),
        "response": st.dictionaries(st.sampled_from(["instructions", "audio", "input", "output_modalities"]), ODD),
        "item": ODD | st.dictionaries(st.sampled_from(["id", "type", "role", "content", "call_id", "output"]), ODD),
        **dict.fromkeys(("audio", "item_id", "response_id", "previous_item_id"), ODD),
    },
)


@settings(max_examples=15)
@given(st.lists(EVENTS, max_size=6))
def test_odd_events_are_refused_and_send_nothing_odd(events) -> None:
    ours, sent = state(), []
    commands = LiveCommands(ours, sent.append, lambda settings: None)
    for event in events:
        try:
            commands.take(event)
        except InvalidRequest as error:
            assert error.message
    for message in sent:
        published.ClientMessage.model_validate_json(orjson.dumps(message))


def test_repeated_requests_before_the_response_are_answered_once() -> None:
    ours, sent = state(), []
    commands = LiveCommands(ours, sent.append, lambda settings: None)
    answers = ModelOutput(ours)
    for kind in ("response.create", "response.cancel", "response.create"):
        commands.take({"type": kind, "event_id": kind})
    answers.take({"serverContent": {"interrupted": True}})
    answers.take({"serverContent": {"turnComplete": True}, "usageMetadata": USAGE})
    answers.take({"serverContent": {"outputTranscription": {"text": "Yes."}}})
    answers.take({"serverContent": {"turnComplete": True}, "usageMetadata": USAGE})
    events = [orjson.loads(event.text) for event in ours.out if event.text]
    assert [event["response"]["status"] for event in events if event["type"] == "response.done"] == [
        "cancelled",
        "completed",
    ]
    (done,) = [event for event in ours.out if event.kind == "done"]
    assert done.usage.input_total == 2 * 230 and not ours.turns


def test_a_turn_whose_counts_are_late_ends_when_the_next_one_speaks() -> None:
    ours = state()
    answers = ModelOutput(ours)
    for said in ("One.", "Two."):
        answers.take({"serverContent": {"outputTranscription": {"text": said}}})
        answers.take({"serverContent": {"turnComplete": True}})
    answers.take({"usageMetadata": USAGE})
    events = [orjson.loads(event.text) for event in ours.out if event.text]
    done = [event["response"]["output"][0]["content"] for event in events if event["type"] == "response.done"]
    assert [content[0]["transcript"] for content in done] == ["One.", "Two."]
    assert [event.usage and event.usage.input_total for event in ours.out if event.kind == "done"] == [None, 230]


def test_large_events_wait_for_each_other_and_not_all_at_once() -> None:
    session = LiveSession(LiveSettings(at(), "sess_1"), LiveConnection(Link(ends=False)), None, None)
    event = orjson.dumps({"type": "odd", "padding": "x" * MAX_QUEUED_CHARACTERS}).decode()
    callers = [gevent.spawn(session.send, event) for _ in range(4)]
    gevent.sleep(0.05)
    assert sum(caller.dead for caller in callers) < 3
    told = [session.receive().kind for _ in range(5)]
    assert told == ["settings", *["refused"] * 4]
    gevent.joinall(callers, timeout=60, raise_error=True)
    session.abort()
    assert session.receive() is None
    with pytest.raises(SocketClosed):
        session.send(event)


@pytest.mark.parametrize("code", [1000, 1008], ids=["at its end", "with an error"])
def test_waiting_senders_are_released_when_the_provider_ends_the_session(monkeypatch, code) -> None:
    monkeypatch.setattr(sessions, "CHECK_INTERVAL_S", 0.01)
    link = Link(ends=False)
    session = LiveSession(
        LiveSettings(at(), "sess_1"), LiveConnection(link), None, lambda refused: UpstreamFailed("No.")
    )
    session.receive()
    link.code = code
    link.abort()
    gevent.sleep(0)  # its end is read first
    callers = [gevent.spawn(session.send, '{"type": "odd"}') for _ in range(INBOX_CAPACITY + 8)]
    gevent.sleep(0)
    try:
        assert session.receive() is None and code == 1000
    except UpstreamFailed:
        assert code == 1008
    gevent.joinall(callers, timeout=60)
    assert all(caller.dead for caller in callers)
    assert sum(isinstance(caller.exception, SocketClosed) for caller in callers) >= 8


def test_a_provider_that_takes_nothing_more_ends_the_session_however_much_it_says() -> None:
    link = Link(ends=False, sends=False)
    session = LiveSession(LiveSettings(at(), "sess_1"), LiveConnection(link), None, lambda refused: refused)
    session.receive()
    session.send('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
    with pytest.raises(HandshakeRefused), gevent.Timeout(60):
        session.receive()


RESUMABLE = '{"sessionResumptionUpdate": {"resumable": true, "newHandle": "h"}}'


def test_a_provider_that_always_drops_is_not_connected_to_for_ever() -> None:
    opened = []

    def drops(settings, handle):
        opened.append(Link(RESUMABLE))
        opened[-1].code = 1001
        return LiveConnection(opened[-1])

    session = LiveSession(LiveSettings(at(), "sess_1"), drops(None, None), drops, None)
    session.receive()
    with pytest.raises(UpstreamFailed), gevent.Timeout(60):
        session.receive()
    assert len(opened) == 1 + MAX_SHORT_CONNECTIONS and all(link.closed for link in opened)


def test_a_connection_is_not_replaced_during_push_to_talk() -> None:
    links = [Link(RESUMABLE, '{"goAway": {}}', ends=False), Link(ends=False)]
    left = iter(links[1:])
    given = LiveSettings(at(), "sess_1").changed({"audio": {"input": {"turn_detection": None}}})
    session = LiveSession(given, LiveConnection(links[0]), lambda settings, handle: LiveConnection(next(left)), None)
    session.receive()
    session.send('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
    reader = gevent.spawn(session.receive)
    gevent.sleep(0.02)
    assert not links[0].closed
    session.send('{"type": "response.create"}')
    gevent.sleep(0.02)
    assert reader.dead
    session.abort()


def test_items_without_content_do_not_wait_for_ever_either() -> None:
    ours, sent = state(), []
    commands = LiveCommands(ours, sent.append, lambda settings: None)
    empty = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ""}] * 64}
    for number in range(MAX_PENDING_CHARACTERS // MIN_PART_LENGTH // 64 + 1):
        commands.take({"type": "conversation.item.create", "item": {**empty, "id": f"item_{number % 3}"}})
        assert ours.pending_size <= 3 * 64 * MIN_PART_LENGTH
    for _ in range(MAX_PENDING_CHARACTERS // MIN_PART_LENGTH // 64 + 1):
        commands.take({"type": "conversation.item.create", "item": empty})
    assert len(sent) == 1 and ours.pending_size <= MAX_PENDING_CHARACTERS
    commands.take({"type": "conversation.item.create", "item": {**empty, "id": "mine"}})
    before = ours.pending_size
    commands.take({"type": "conversation.item.delete", "item_id": "mine"})
    assert ours.pending_size == before - 64 * MIN_PART_LENGTH


def test_a_change_of_settings_leaves_those_before_as_they_were() -> None:
    before = LiveSettings(at(), "sess_1")
    after = before.changed({"audio": {"input": {"turn_detection": None}}, "instructions": "Be brief."})
    assert before.detects and before.session["instructions"] == "" and not after.detects
    assert after.differs(before) == {"audio", "instructions"}


def test_modalities_of_answers_change_without_a_message_to_the_provider() -> None:
    ours, sent, renewed = state(), [], []
    commands = LiveCommands(ours, sent.append, renewed.append)
    commands.take({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
    assert (sent, renewed) == ([], [])
    assert ours.settings.session["output_modalities"] == ["text"]


def test_a_response_without_a_conversation_answers_a_text() -> None:
    ours, sent = state(), []
    LiveCommands(ours, sent.append, lambda settings: None).take({"type": "response.create"})
    [turn] = sent[0]["clientContent"]["turns"]
    assert turn["role"] == "user" and all(part["text"] for part in turn["parts"]) and turn["parts"]


def nested(levels: int) -> dict:
    made: dict = {"type": "object"}
    for _ in range(levels // 2):
        made = {"type": "object", "properties": {"a": made}}
    return made


def test_deeply_nested_values_are_refused_or_forwarded_as_text() -> None:
    connection, told = LiveConnection(Link(ends=False)), []
    connection.link.send = told.append
    session = LiveSession(LiveSettings(at(), "sess_1"), connection, None, None)
    session._state.said, session._state.calls = True, {"call_1": "look"}
    tools = [{"type": "function", "name": "look", "parameters": nested(246)}]
    deep = '{"a":' * 400 + "1" + "}" * 400
    result = {"type": "function_call_output", "call_id": "call_1", "output": deep}
    session.send(orjson.dumps({"type": "session.update", "session": {"tools": tools}}).decode())
    session.send(orjson.dumps({"type": "conversation.item.create", "item": result}).decode())
    session.send('{"type": "response.create"}')
    kinds = [session.receive().kind for _ in range(5)]
    assert kinds == ["settings", "refused", "", "", "started"]
    sent = [orjson.loads(text) for text in told]
    assert sent[0]["toolResponse"]["functionResponses"][0]["response"] == {"output": deep}
    session.abort()


def test_large_tools_are_written_like_small_ones() -> None:
    small = {"name": "look", "parameters": nested(4)}
    large = LiveSettings(at(), "sess_1").changed({"tools": [{**small, "description": "x" * LARGE}]})
    few = LiveSettings(at(), "sess_1").changed({"tools": [small]})
    (one,), (other,) = (made.tools()[0]["functionDeclarations"] for made in (large, few))
    assert {**other, "description": "x" * LARGE} == one
