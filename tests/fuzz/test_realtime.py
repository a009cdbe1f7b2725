"""Events of realtime sessions, from either side and of any shape: they are read, or refused as events."""

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.configuration.settings import load
from gateway.errors import GatewayError
from gateway.neutral.realtime import SessionLock
from gateway.neutral.usage import COUNTS
from gateway.providers.openai.realtime import READERS, SOUNDS, TEXTS, read_event
from gateway.surfaces.openai.realtime_events import BEGINS, OpenAIEvents

SESSION = (
    "session type audio input output transcription input_audio_transcription model voice format turn_detection "
    "create_response max_output_tokens max_response_output_tokens tools instructions prompt tracing"
)
CONTENT = "response item content text image_url event_id id item_id response_id delta transcript conversation"
ENDS = "usage status status_details error code seconds input_tokens output_tokens input_token_details audio_tokens"
NAMES = st.sampled_from(f"{SESSION} {CONTENT} {ENDS} cached_tokens cached_tokens_details".split())
WORDS = st.sampled_from(["", "inf", "realtime", "gpt-realtime", "whisper-1", "function", "failed", "x" * 300])
LEAVES = st.none() | st.booleans() | st.integers(-5, 2**63 - 1) | st.floats(allow_nan=False) | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=20
)
EVENTS = st.dictionaries(NAMES, VALUES, max_size=8)
LOCKS = st.sampled_from(
    [
        SessionLock(),
        SessionLock(model="openai/gpt-realtime", instructions="Be brief.", voice="marin", transcription="whisper-1"),
        SessionLock("transcription", transcription="whisper-1"),
    ]
)
LIMITS = load({}).limits
# Fields of a session or a response that only the gateway or the owner of the provider's account sets.
OURS = {"model", "prompt", "tracing"}
HOLDERS = {"session.update": "session", "transcription_session.update": "session", "response.create": "response"}


@given(st.sampled_from(sorted(BEGINS)), EVENTS, st.sampled_from(["realtime", "transcription"]), LOCKS, st.booleans())
@example("session.update", {"session": {"model": []}}, "realtime", SessionLock(), False)
@example("response.create", {"response": {"model": {}}}, "realtime", SessionLock(), False)
def test_an_event_of_a_caller_is_refused_or_passed_on_in_its_checked_form(kind, wire, of, lock, heard) -> None:
    events = OpenAIEvents(of, frozenset(("gpt-realtime",)), str, lock, LIMITS)
    events.transcription_model = "whisper-1" if heard else ""
    try:
        found = events.read(orjson.dumps(wire | {"type": kind}).decode())
    except GatewayError:
        return
    assert found.text_bytes >= 0 and found.sound_bytes >= 0
    again = orjson.loads(found.text)
    assert (again["type"], again["event_id"]) == (kind, found.id)
    assert not OURS & set(again.get(HOLDERS.get(kind, ""), {}))


@given(st.sampled_from(sorted({*READERS, *SOUNDS, *TEXTS, "response.of_next_year"})), EVENTS)
def test_an_event_of_a_provider_means_something_or_nothing(kind, wire) -> None:
    found = read_event(orjson.dumps(wire | {"type": kind}).decode())
    assert found.usage is None or all(getattr(found.usage, name) >= 0 for name in COUNTS)
