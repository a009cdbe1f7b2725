import pytest

from gateway.neutral.events import (
    BlockDone,
    Event,
    Finished,
    Heartbeat,
    ImageMade,
    MediaPiece,
    NativeChunk,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
    has_content,
)
from gateway.neutral.parts import Image, Media, Source
from gateway.neutral.usage import Usage

PICTURE = Media(media_type="image/png", data="iVBORw0KGgo=")


@pytest.mark.parametrize(
    "event",
    [
        TextDelta("Hi"),
        RefusalDelta("No."),
        ReasoningDelta("Hm"),
        ToolCallDelta(0, id="c", name="f"),
        SourceFound(Source("https://a.org")),
        PartFound(Image(PICTURE)),
        MediaPiece(b"ID3"),
        ImageMade(PICTURE),
        NativeChunk("openai", {}, True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_caller_who_saw_a_part_of_an_answer_stays_with_its_provider(event: Event) -> None:
    assert has_content(event)


@pytest.mark.parametrize(
    "event",
    [
        Started("m"),
        BlockDone(0),
        Notice("top_k was left out."),
        Heartbeat(),
        Progress(Usage(input=1)),
        Finished("stop"),
        NativeChunk("openai", {}, False),
    ],
    ids=lambda event: type(event).__name__,
)
def test_another_provider_may_still_answer_a_caller_who_saw_nothing(event: Event) -> None:
    assert not has_content(event)
