import pytest

from gateway.neutral.cache_marks import MIN_CACHED_CHARACTERS, add_marks, apply_policy, strip_marks
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Native, Requirements
from gateway.neutral.parts import CacheMark, File, Image, Media, Message, Part, Reasoning, Text, ToolCall, ToolResult

BIG = "x" * MIN_CACHED_CHARACTERS
MARK = CacheMark()


def talk(*messages: tuple, tools=()) -> Conversation:
    made = [Message(role, tuple(Text(p) if isinstance(p, str) else p for p in parts)) for role, *parts in messages]
    return Conversation(tuple(made), tools)


def marked(conversation: Conversation) -> list[tuple[int, int]]:
    return [
        (row, column)
        for row, message in enumerate(conversation.messages)
        for column, part in enumerate(message.parts)
        if getattr(part, "cache", None) is not None
    ]


def test_short_question_is_not_marked():
    question = talk(("system", "Be kind."), ("user", "Hi."))
    assert add_marks(question) is question


def test_long_instructions_and_texts_are_marked():
    assert marked(add_marks(talk(("system", BIG, "short"), ("user", BIG, "What is it?")))) == [(0, 0), (1, 0)]


def test_end_is_marked_from_three_turns_on_and_instructions_count_as_none():
    two = talk(("system", "S."), ("user", "a"), ("assistant", "b"))
    assert marked(add_marks(two)) == []
    three = talk(*[(m.role, *m.parts) for m in two.messages], ("user", "c", "d"))
    assert marked(add_marks(three)) == [(3, 1)]


def test_never_more_than_four_however_much_is_long():
    turns = [("user", BIG, BIG), ("assistant", BIG), ("user", BIG, BIG, "end")]
    found = marked(add_marks(talk(("system", BIG), ("developer", BIG), *turns)))
    assert found == [(1, 0), (4, 0), (4, 1), (4, 2)]


def test_end_that_bears_no_mark_gives_way_to_the_one_before():
    end = ("assistant", ToolCall("c", "f", "{}"), Reasoning("Hm."), Text(" "))
    assert marked(add_marks(talk(("user", "a"), ("assistant", "b"), ("user", "c"), end))) == [(3, 0)]


@pytest.mark.parametrize(
    "last",
    [
        Text("d"),
        Image(Media(url="https://a.org/b.png")),
        File(Media(url="https://a.org/b.pdf")),
        ToolCall("c", "f", "{}"),
        ToolResult("c", (Text("r"),)),
    ],
    ids=lambda part: type(part).__name__,
)
def test_each_part_that_vendors_mark_is_marked_at_the_end_and_cleared_again(last: Part) -> None:
    marked_talk = add_marks(talk(("user", "a"), ("assistant", "b"), ("user", "c", last)))
    assert marked(marked_talk) == [(2, 1)]
    assert marked(strip_marks(marked_talk)) == []


@pytest.mark.parametrize(
    "own",
    [
        talk(("system", Text("S", MARK)), ("user", BIG)),
        talk(("user", BIG), tools=(FunctionTool("f", cache=MARK),)),
        talk(("user", BIG), ("tool", ToolResult("c", (Text("r", MARK),)))),
    ],
)
def test_callers_own_marks_stay_alone_and_go_when_marks_are_disabled(own):
    assert add_marks(own) is own
    bare = strip_marks(own)
    assert marked(bare) == [] and not any(tool.cache for tool in bare.tools)
    assert strip_marks(bare) is bare


def test_policy_of_the_client_changes_nothing():
    request = ChatRequest("m", Requirements(), lambda: talk(("user", BIG)))
    assert apply_policy(request, "client") is request


def test_the_cache_policy_marks_the_conversation_and_keeps_the_native_body():
    native = Native("x", {})
    request = ChatRequest(
        "m", Requirements(prompt_bytes=MIN_CACHED_CHARACTERS), lambda: talk(("user", BIG)), native=native, user="u"
    )
    changed = apply_policy(request, "automatic")
    assert (changed.native, changed.options.cache_marks, changed.user) == (native, "automatic", "u")
    assert marked(changed.conversation()) == [(0, 0)] and marked(request.conversation()) == []


def test_a_request_that_is_known_to_be_short_is_not_decoded():
    def decode():
        raise AssertionError("decoded")

    short = ChatRequest("m", Requirements(prompt_bytes=MIN_CACHED_CHARACTERS - 1, messages=2), decode)
    assert apply_policy(short, "automatic") is short
    for needs in (Requirements(prompt_bytes=MIN_CACHED_CHARACTERS), Requirements(messages=3)):
        assert apply_policy(ChatRequest("m", needs, decode), "automatic").options.cache_marks == "automatic"
