from collections.abc import Callable
from time import process_time

import pytest

from gateway.providers import message_shapes
from gateway.providers.message_shapes import (
    MESSAGE_SHAPES,
    alternating_roles,
    one_instruction_in_front,
    results_behind_calls,
    short_id,
)

CALL = {"id": "call_1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}


def shaped(name: str, *messages: dict) -> list[dict]:
    return MESSAGE_SHAPES[name](list(messages))


def test_members_that_are_not_known_everywhere_go():
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    user = {"role": "user", "name": "ada", "content": [part]}
    past = {"role": "assistant", "content": None, "refusal": "No.", "audio": {"id": "a"}, "reasoning": "Hm."}
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    found = shaped("known_members", user, past, calling)
    assert found[0] == {"role": "user", "content": [{"type": "text", "text": "x"}]}
    assert found[1] == {"role": "assistant", "content": "No."}
    assert found[2]["tool_calls"][0].keys() == {"id", "type", "function"} and found[2]["content"] is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "So", "prefix": True},
        {"role": "tool", "content": "42", "tool_call_id": "call_1", "name": "f"},
    ],
)
def test_each_role_keeps_the_members_of_mistrals_reference(message):
    assert shaped("known_members", message | {"cache_control": {"type": "ephemeral"}}) == [message]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": "https://a.org/b.png"},
        {"type": "thinking", "thinking": [], "signature": "s", "closed": True},
        {"type": "document_url", "document_url": "https://a.org/b.pdf", "document_name": "b"},
        {"type": "input_audio", "input_audio": "AAAA"},
        {"type": "file", "file_id": "f-1"},
    ],
)
def test_each_part_keeps_the_members_of_mistrals_reference(part):
    (found,) = shaped("known_members", {"role": "user", "content": [part | {"cache_control": {"type": "ephemeral"}}]})
    assert found["content"] == [part]


def test_unknown_roles_and_parts_are_left_alone():
    odd = {"role": "critic", "content": [{"type": "novel", "x": 1}], "y": 2}
    assert shaped("known_members", odd) == [odd]


@pytest.mark.parametrize("ident", ["call_1", "", "x" * 80, "toolu_01A09q90qw90lq917835lq9"])
def test_short_id_is_nine_letters_or_digits_and_always_the_same(ident):
    assert message_shapes.SHORT_ID.fullmatch(short_id(ident)) and short_id(ident) == short_id(ident)
    assert short_id(ident) != short_id(ident + "y")


def test_short_id_leaves_those_that_are_short_already():
    assert short_id("aB3dE6gH9") == "aB3dE6gH9"


def test_answer_stands_between_a_result_and_the_users_message_only():
    result, user = {"role": "tool", "content": "42"}, {"role": "user", "content": "x"}
    assert [m["role"] for m in shaped("answer_between", result, user)] == ["tool", "assistant", "user"]
    assert shaped("answer_between", user, user) == [user, user]


def test_prefix_marks_the_last_answer_unless_it_calls():
    answer, calling = {"role": "assistant", "content": "So"}, {"role": "assistant", "tool_calls": [CALL]}
    assert shaped("marked_prefix", answer) == [{**answer, "prefix": True}]
    assert shaped("marked_prefix", calling) == [calling] and shaped("marked_prefix") == []


def test_reasoning_precedes_the_text():
    text = {"type": "text", "text": "42"}
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    for content, rest in (("42", [text]), ([text], [text]), (None, [])):
        message = {"role": "assistant", "reasoning": "Hm.", "content": content}
        assert shaped("thinking_parts", message)[0]["content"] == [thinking, *rest]


def test_files_by_id_keep_their_id():
    part = {"type": "file", "file": {"file_id": "f1"}}
    assert shaped("plain_media", {"role": "user", "content": [part]})[0]["content"] == [
        {"type": "file", "file_id": "f1"}
    ]


@pytest.mark.parametrize("name", MESSAGE_SHAPES)
def test_shapes_change_no_message_in_place(name):
    message = {"role": "assistant", "content": "x", "reasoning": "Hm.", "tool_calls": [CALL], "refusal": None}
    before = repr(message)
    shaped(name, message, {"role": "tool", "tool_call_id": "call_1", "content": "y"}, {"role": "user", "content": []})
    assert repr(message) == before


def test_reasoning_goes_back_as_details_and_own_details_as_they_came():
    own = [{"type": "reasoning.text", "text": "Own.", "id": "r1"}]
    found = shaped(
        "reasoning_as_details",
        {"role": "assistant", "content": "x", "reasoning_content": "Hm."},
        {"role": "assistant", "content": "x", "reasoning": "Own.", "reasoning_details": own},
        {"role": "user", "content": "y"},
    )
    assert found[0]["reasoning_details"][0]["text"] == "Hm." and "reasoning_content" not in found[0]
    assert found[1]["reasoning_details"] == own and found[2] == {"role": "user", "content": "y"}


def test_instructions_behind_the_beginning_are_said_by_the_user():
    roles = ("system", "system", "user", "system", "assistant", "system")
    found = shaped("late_instructions_as_user", *[{"role": role, "content": "x"} for role in roles])
    assert [message["role"] for message in found] == ["system", "system", "user", "user", "assistant", "user"]


def test_the_last_of_instructions_alone_is_what_the_user_asks():
    found = shaped("late_instructions_as_user", *[{"role": "system", "content": text} for text in "ab"])
    assert found == [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]


def say(role: str, content: object, **more: object) -> dict:
    return {"role": role, "content": content, **more}


PICTURE = {"type": "image_url", "image_url": {"url": "https://media.example/a.png"}}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([say("user", "A"), say("user", "B")], [say("user", "A\n\nB")]),
        (
            [say("user", "A"), say("user", [PICTURE]), say("user", "")],
            [say("user", [{"type": "text", "text": "A"}, PICTURE])],
        ),
        (
            [say("system", "S"), say("assistant", "Hi"), say("assistant", "there"), say("user", "A")],
            [say("system", "S"), say("user", "Begin."), say("assistant", "Hi\n\nthere"), say("user", "A")],
        ),
        (
            [say("user", "A"), say("assistant", "So")],
            [say("user", "A"), say("assistant", "So"), say("user", "Continue.")],
        ),
        (
            [say("user", "A"), say("assistant", "B"), say("system", "R"), say("user", "C")],
            [say("user", "A"), say("assistant", "B"), say("user", "<system-reminder>\nR\n</system-reminder>\n\nC")],
        ),
        (
            [say("user", "A"), say("assistant", "", tool_calls=[CALL]), say("tool", "1", tool_call_id="call_1")] * 2,
            [
                *[say("user", "A"), say("assistant", "", tool_calls=[CALL]), say("tool", "1", tool_call_id="call_1")],
                say("assistant", "I have the results."),
                *[say("user", "A"), say("assistant", "", tool_calls=[CALL]), say("tool", "1", tool_call_id="call_1")],
            ],
        ),
    ],
)
def test_the_user_and_the_assistant_take_turns_where_a_server_wants_that(messages: list, expected: list) -> None:
    assert shaped("alternating_roles", *messages) == expected


@pytest.mark.parametrize(("shape", "role"), [(alternating_roles, "user"), (one_instruction_in_front, "system")])
def test_many_messages_of_one_role_are_joined_by_one_copy_of_their_texts(shape: Callable, role: str) -> None:
    count, text = 8_000, "x" * 4_000
    begun = process_time()
    joined, *rest = shape([*({"role": role, "content": text} for _ in range(count)), {"role": "user", "content": "Hi"}])
    assert process_time() - begun < 4  # a copy for each message would be one of 16 MB on average, 8,000 times
    assert len(joined["content"]) >= count * (len(text) + 2) - 2 and len(rest) == (role == "system")


def test_one_instruction_stands_in_front_and_the_user_says_later_ones() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Hurry."},
    ]
    front, user, later = one_instruction_in_front(messages)
    assert [part["text"] for part in front["content"]] == ["Be brief.", "Be kind."]
    assert (user, later["role"]) == (messages[2], "user") and "Hurry." in later["content"]


def test_each_result_moves_behind_its_call_and_repeated_ids_keep_their_order() -> None:
    def turn(*idents: str) -> dict:
        return {"role": "assistant", "tool_calls": [{"id": ident} for ident in idents]}

    def result(ident: str, text: str) -> dict:
        return {"role": "tool", "tool_call_id": ident, "content": text}

    late = {"role": "user", "content": "Hurry."}
    lost = result("c", "of no call")
    given = [turn("a", "b"), late, result("b", "2"), lost, result("a", "1"), turn("a"), result("a", "3")]
    expected = [turn("a", "b"), result("a", "1"), result("b", "2"), late, lost, turn("a"), result("a", "3")]
    assert results_behind_calls(given) == expected


def test_an_answer_is_changed_only_where_it_is_odd() -> None:
    fine = say("assistant", "Hi", tool_calls=[CALL], reasoning_content="Hm.")
    assert message_shapes.plain_answers([fine, say("user", "A")]) == [fine, say("user", "A")]
