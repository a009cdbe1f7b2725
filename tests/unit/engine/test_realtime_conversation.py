"""How long the conversation of a realtime session may be: the provider's counts stand for what was said before them."""

from gateway.engine.realtime.session_turns import ConversationLength
from gateway.neutral.realtime import OVERHEAD_TOKENS, ClientEvent
from gateway.neutral.usage import Usage

LIMIT = 100_000
SECOND = 48_000  # bytes of sound, at most 60 tokens


def said(seconds: int = 0, text: int = 0, apart: bool = False) -> ClientEvent:
    return ClientEvent("", text_bytes=text, sound_bytes=seconds * SECOND, apart=apart)


def test_reported_usage_replaces_the_estimate_of_earlier_items() -> None:
    talk = ConversationLength(LIMIT)
    talk.add(said(seconds=100))
    assert talk.most_tokens == OVERHEAD_TOKENS + 6_000
    place = talk.place
    talk.add(said(seconds=10))  # while the response is made
    talk.answered(Usage(input_audio=1_000, output_audio=50), place)
    assert talk.most_tokens == OVERHEAD_TOKENS + 1_000 + 50 + 600


def test_usage_of_an_earlier_answer_only_adds_its_output() -> None:
    talk = ConversationLength(LIMIT)
    first = talk.place
    talk.add(said(text=500))
    second = talk.place
    talk.answered(Usage(input=400, output=10), second)
    assert talk.most_tokens == OVERHEAD_TOKENS + 400 + 10
    talk.answered(Usage(input=100, output=20), first)
    assert talk.most_tokens == OVERHEAD_TOKENS + 400 + 10 + 20


def test_responses_that_read_something_else_lower_nothing() -> None:
    for apart, place in ((True, True), (False, None)):
        talk = ConversationLength(LIMIT)
        talk.add(said(text=5_000, apart=apart))
        talk.answered(Usage(input=10, output=5), talk.place if place else None)
        assert talk.most_tokens == OVERHEAD_TOKENS + 5_000 + 5


def test_a_count_above_the_estimate_is_accepted_up_to_the_models_context() -> None:
    talk = ConversationLength(LIMIT)
    talk.answered(Usage(input=50_000, output=5), None)
    assert talk.most_tokens == OVERHEAD_TOKENS + 50_005
    talk.add(said(text=LIMIT))
    assert talk.most_tokens == LIMIT
