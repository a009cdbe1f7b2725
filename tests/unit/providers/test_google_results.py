import pytest
from fakes.google_checks import check_turns

from gateway.neutral.parts import Image, Media, Message, Text, ToolCall, ToolResult
from gateway.providers.google.contents import Contents
from gateway.providers.google.traits import Traits

PIXEL = Image(Media("image/png", data="iVBORw0KGgo="))
OLDER = Traits(generation=2.5, enterprise=False, pro=False, lite=False, open=False)
NEWER = Traits(generation=3.0, enterprise=False, pro=False, lite=False, open=False)
CALLS = Message("assistant", (ToolCall("a", "look", "{}"), ToolCall("b", "hear", "{}")))


def result(ident: str, *parts: Text | Image) -> Message:
    return Message("tool", (ToolResult(ident, parts),))


def write(traits: Traits, *messages: Message) -> list:
    contents = Contents(traits, "https://g.example").write((Message("user", (Text("Go"),)), *messages), [])["contents"]
    check_turns(contents)
    return contents


@pytest.mark.parametrize("traits", [OLDER, NEWER])
def test_results_stand_in_the_order_of_their_calls(traits: Traits) -> None:
    contents = write(traits, CALLS, result("b", Text("a bird")), result("a", Text("a cat")))
    assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["a", "b"]


def test_pictures_of_several_results_follow_all_of_them_where_a_result_holds_none() -> None:
    contents = write(OLDER, CALLS, result("a", PIXEL), result("b", PIXEL), Message("user", (Text("And?"),)))
    assert [sorted(part)[0] for part in contents[2]["parts"]] == ["functionResponse", "functionResponse"]
    assert [next(iter(part)) for part in contents[3]["parts"]] == ["text", "inlineData", "text", "inlineData", "text"]


def test_pictures_of_the_last_results_are_shown_too() -> None:
    contents = write(OLDER, CALLS, result("a", Text("x")), result("b", PIXEL))
    assert contents[-1]["parts"][-1]["inlineData"]["mimeType"] == "image/png"
