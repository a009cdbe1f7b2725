"""Results directly behind their calls, and call ids that occur once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import count_steps

from gateway.neutral.message_order import in_order, take_free
from gateway.neutral.parts import Message, Text, ToolCall, ToolResult

LATE = Message("user", (Text("Hurry."),))


def call(*idents: str) -> Message:
    return Message("assistant", tuple(ToolCall(ident, "f", "{}") for ident in idents))


def result(ident: str, text: str = "x") -> Message:
    return Message("tool", (ToolResult(ident, (Text(text),)),))


def shape(messages: tuple[Message, ...]) -> list[str]:
    return [
        f"{message.role}:" + ",".join(getattr(part, "id", "") or getattr(part, "call_id", "") for part in message.parts)
        for message in messages
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((call("a"), LATE, result("a")), ["assistant:a", "tool:a", "user:"]),
        ((call("a", "b"), result("a"), LATE, result("b")), ["assistant:a,b", "tool:a,b", "user:"]),
        ((call("a"), call("b"), result("a"), result("b")), ["assistant:a,b", "tool:a,b"]),
        ((call("a"), LATE, call("b"), result("a"), result("b")),
         ["assistant:a", "tool:a", "user:", "assistant:b", "tool:b"]),
        ((call("a"), result("a"), LATE, call("a"), result("a")),
         ["assistant:a", "tool:a", "user:", "assistant:a_2", "tool:a_2"]),
        ((call("a", "a"), result("a", "1"), result("a", "2")), ["assistant:a,a_2", "tool:a,a_2"]),
    ],
)  # fmt: skip
def test_results_follow_their_calls_and_ids_are_distinct(messages: tuple[Message, ...], expected: list[str]) -> None:
    assert shape(in_order(messages)) == expected


def test_an_ordered_conversation_stays_the_same_object() -> None:
    plain = (LATE, call("a", "b"), result("a"), result("b"), LATE, call("c"), result("c"))
    assert in_order(plain) is plain
    unanswered = (LATE, call("a"), LATE, result("z"))
    assert in_order(unanswered) is unanswered


def test_calls_of_the_providers_own_tools_stay_where_they_are() -> None:
    own = ToolCall("s", "web_search", "{}", executed="provider")
    answer = Message("assistant", (own, ToolResult("s", (), executed="provider"), Text("Found.")))
    messages = (LATE, answer, LATE, answer, LATE, call("a"), LATE, result("a"))
    assert in_order(messages)[:4] == messages[:4]


STEPS = st.lists(st.sampled_from(["a", "b", "user", "answer a", "answer b"]), max_size=14)


@given(STEPS)
def test_any_session_keeps_its_results_and_has_distinct_ids(steps: list[str]) -> None:
    made = {"user": LATE, "a": call("a"), "b": call("b"), "answer a": result("a"), "answer b": result("b")}
    messages = tuple(made[step] for step in steps)
    ordered = in_order(messages)
    assert in_order(ordered) == ordered
    idents = [part.id for message in ordered for part in message.parts if isinstance(part, ToolCall)]
    assert len(set(idents)) == len(idents) or not any(step.startswith("answer") for step in steps)
    results = [part for message in ordered for part in message.parts if isinstance(part, ToolResult)]
    assert len(results) == sum(step.startswith("answer") for step in steps)


def test_an_id_that_is_repeated_in_each_turn_is_numbered_in_linear_time() -> None:
    class CountingDict(dict[str, int]):
        looked_up = 0

        def __contains__(self, key: object) -> bool:
            self.looked_up += 1
            return super().__contains__(key)

    taken = CountingDict()
    numbered = [take_free("call_1", taken) for _ in range(1_000)]
    assert numbered[:3] == ["call_1", "call_1_2", "call_1_3"] and len(set(numbered)) == 1_000
    assert taken.looked_up <= 2_000


def test_messages_of_the_assistant_behind_a_call_are_joined_in_steps_by_their_number() -> None:
    def steps(count: int) -> int:
        texts = tuple(Text("x") for _ in range(count))
        turn = Message("assistant", (*texts, ToolCall("c", "f", "{}")))
        said = (turn, *(Message("assistant", (Text("x"),)) for _ in range(count)), result("c"))
        return count_steps(lambda: in_order(said))

    assert steps(400) < 6 * steps(100)  # by the square it would be sixteen
