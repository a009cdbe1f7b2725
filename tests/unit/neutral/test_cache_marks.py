import pytest

from gateway.neutral.cache_marks import MARK_LIMIT, apply_policy, minimum_bytes, strip_marks
from gateway.neutral.cache_marks import add_marks as mark
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Native, Requirements
from gateway.neutral.parts import CacheMark, File, Image, Media, Message, Part, Reasoning, Text, ToolCall, ToolResult

MINIMUM = minimum_bytes(0)
BIG = "x" * MINIMUM
MARK = CacheMark()
HOUR = CacheMark("1h")


def talk(*messages: tuple, tools=()) -> Conversation:
    made = [Message(role, tuple(Text(p) if isinstance(p, str) else p for p in parts)) for role, *parts in messages]
    return Conversation(tuple(made), tools)


def add_marks(conversation: Conversation, tool_bytes: int = 0, ttl="") -> Conversation:
    size = tool_bytes + sum(
        len(part.text) for message in conversation.messages for part in message.parts if isinstance(part, Text)
    )
    return mark(conversation, size, MINIMUM, ttl)


def marked(conversation: Conversation) -> list[tuple[int, int]]:
    return list(lives(conversation))


def lives(conversation: Conversation) -> dict[tuple[int, int], str]:
    return {
        (row, column): part.cache.ttl
        for row, message in enumerate(conversation.messages)
        for column, part in enumerate(message.parts)
        if getattr(part, "cache", None) is not None
    }


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
    assert found == [(1, 0), (2, 1), (4, 1), (4, 2)]


def test_a_long_conversation_is_marked_where_the_turn_before_ended_too():
    first = [("system", "S."), ("user", BIG), ("assistant", "a"), ("tool", ToolResult("c", (Text("r"),)))]
    steps = [("assistant", "b", ToolCall("d", "f", "{}")), ("tool", ToolResult("d", (Text("r"),))), ("user", "and")]
    before = marked(add_marks(talk(*first)))
    assert before == [(1, 0), (3, 0)]
    assert marked(add_marks(talk(*first, *steps))) == [(1, 0), (3, 0), (6, 0)]


def test_instructions_are_marked_that_are_long_together_with_the_tools():
    question = talk(("system", "S"), ("user", "Hi."), tools=(FunctionTool("f"),))
    assert marked(add_marks(question, MINIMUM - 2)) == [] and marked(add_marks(question, MINIMUM - 1)) == [(0, 0)]


def test_the_minimum_is_that_of_the_model_in_bytes_of_any_script():
    def marks(text: str, tokens: int) -> list:
        needs = Requirements(prompt_bytes=len(text.encode()), messages=1)
        return marked(
            apply_policy(ChatRequest("m", needs, lambda: talk(("user", text))), "automatic", tokens).content()
        )

    assert (marks("x" * 1536, 512), marks("x" * 1536, 1024)) == ([(0, 0)], [])
    assert (marks("x" * 6144, 4096), marks("\u6f22" * 4096, 4096)) == ([], [(0, 0)])


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
    ("own", "places"),
    [
        (talk(("system", Text("S", MARK)), ("user", BIG)), [(0, 0), (1, 0)]),
        (talk(("user", BIG), tools=(FunctionTool("f", cache=MARK),)), [(0, 0)]),
        (talk(("user", BIG), ("tool", ToolResult("c", (Text("r", MARK),)))), [(0, 0)]),
        (talk(("user", BIG), ("assistant", "a"), ("user", Text("b", MARK))), [(0, 0), (2, 0)]),
    ],
)
def test_callers_own_marks_stay_beside_others_and_all_go_when_marks_are_disabled(own, places):
    changed = add_marks(own)
    assert marked(changed) == places and changed.tools == own.tools
    bare = strip_marks(changed)
    assert marked(bare) == [] and not any(tool.cache for tool in bare.tools)
    assert strip_marks(bare) is bare


@pytest.mark.parametrize("count", range(1, 5))
def test_no_mark_is_added_beyond_the_limit(count: int) -> None:
    tools = tuple(FunctionTool(f"f{number}", cache=MARK) for number in range(count - 1))
    result = ToolResult("c", (Text("r", MARK),))
    turns = [("user", BIG), ("assistant", BIG), ("tool", result), ("assistant", BIG), ("user", BIG)]
    changed = add_marks(talk(("system", BIG), *turns, tools=tools))
    assert len(marked(changed)) + count == MARK_LIMIT


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "1h"),
        ({"system": HOUR}, "1h"),
        ({"system": MARK}, ""),
        ({"end": HOUR}, "1h"),
        ({"end": CacheMark("5m")}, ""),
        ({"system": HOUR, "end": MARK}, ""),
    ],
)
def test_a_mark_of_an_hour_never_follows_one_of_five_minutes(own: dict, expected: str) -> None:
    turns = [("user", BIG), ("assistant", "a"), ("user", Text("end", own.get("end")))]
    changed = lives(add_marks(talk(("system", Text("S", own.get("system"))), *turns), ttl="1h"))
    assert changed[1, 0] == expected
    written = [life or "5m" for life in changed.values()]
    assert written == sorted(written)


def test_policy_of_the_client_changes_nothing():
    request = ChatRequest("m", Requirements(), lambda: talk(("user", BIG)))
    assert apply_policy(request, "client") is request


def test_the_cache_policy_marks_the_conversation_and_keeps_the_native_body():
    native = Native("x", {})
    request = ChatRequest("m", Requirements(prompt_bytes=MINIMUM), lambda: talk(("user", BIG)), native=native, user="u")
    changed = apply_policy(request, "automatic")
    assert (changed.native, changed.options.cache_marks, changed.user) == (native, "automatic", "u")
    assert marked(changed.conversation()) == [(0, 0)] and marked(request.conversation()) == []


def test_a_request_that_is_known_to_be_short_is_not_decoded():
    def decode():
        raise AssertionError("decoded")

    short = ChatRequest("m", Requirements(prompt_bytes=MINIMUM - 1, messages=2), decode)
    assert apply_policy(short, "automatic") is short
    for needs in (Requirements(prompt_bytes=MINIMUM), Requirements(messages=3)):
        assert apply_policy(ChatRequest("m", needs, decode), "automatic").options.cache_marks == "automatic"
