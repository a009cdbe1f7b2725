"""Texts of neutral values: each is edited with its place, and content without text is reported."""

import base64

import pytest

from gateway.guardrails.guarded_texts import Findings, RequestEditor
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.guardrails.texts import TextWalk
from gateway.neutral.chat import Conversation, FunctionTool
from gateway.neutral.embeddings import EmbeddingsInput
from gateway.neutral.parts import File, Image, Media, Message, Reasoning, Text, ToolCall, ToolResult, VendorPart


class Editor:
    """Writes texts in capitals; of signed texts it does not know the values."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.unreadable: list[str] = []

    def text(self, text: str, place: str) -> str:
        self.seen.append((text, place))
        return text if text.isupper() else text.upper()

    def signed(self, text: str, place: str) -> str | None:
        return None if "unknown" in text else text

    def across(self, texts: list[str], place: str) -> list[str]:
        return texts

    def media(self, value: Media, place: str) -> None:
        self.unread("media")

    def unread(self, kind: str) -> None:
        self.unreadable.append(kind)


@pytest.fixture
def editor() -> Editor:
    return Editor()


def test_parts_of_a_conversation_have_their_places(editor: Editor) -> None:
    conversation = Conversation(
        messages=(
            Message("system", (Text("rules"),)),
            Message("user", (Text("first"),)),
            Message(
                "assistant",
                (
                    Reasoning("known", signature="s"),
                    Reasoning("unknown", signature="s"),
                    ToolCall("c", "mail", '{"to": "anna", "n": 12345678}'),
                ),
            ),
            Message("tool", (ToolResult("c", (Text("sent"),)),)),
            Message("user", (Text("last"), VendorPart("v", "k", {"deep": [{"er": "inside"}]}))),
        ),
        tools=(FunctionTool("mail", "sends", {"properties": {"to": {"default": "ben"}}}),),
    )
    edited = TextWalk(editor).edit(conversation, "prompt")
    places = dict(editor.seen)
    expected = {
        **{"rules": "system", "first": "history", "anna": "tool_arguments", "12345678": "tool_arguments"},
        **{"sent": "tool_results", "last": "prompt", "inside": "prompt", "sends": "system", "ben": "system"},
    }
    assert {text: places[text] for text in expected} == expected
    assert edited.messages[4].parts[1].body == {"DEEP": [{"ER": "INSIDE"}]}
    # A reasoning with other values than the provider wrote is left out; its signature would not fit.
    assert [type(part) for part in edited.messages[2].parts] == [Reasoning, ToolCall]
    assert edited.messages[2].parts[0] == Reasoning("known", signature="s")


def test_files_of_text_are_read_and_other_media_reported(editor: Editor) -> None:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    walk = TextWalk(editor)
    edited = walk.edit(File(Media("text/plain", data=data("anna"))), "prompt")
    assert base64.b64decode(edited.media.data) == b"ANNA"
    assert editor.unreadable == []
    for media in (
        Media("application/pdf", data=data("x")),
        Media("text/plain", data="%"),
        Media(url="https://a.example"),
    ):
        walk.edit(Image(media), "prompt")
    assert len(editor.unreadable) == 3


def test_token_ids_are_reported_as_unreadable(editor: Editor) -> None:
    TextWalk(editor).edit(EmbeddingsInput(((1, 2, 3),)), "prompt")
    assert editor.unreadable == ["token ids"]


def test_repeated_member_of_json_is_read_or_left_out(editor: Editor) -> None:
    assert "hidden" not in TextWalk(editor).edit_json('{"a": "hidden", "a": "shown"}', "tool_arguments")
    TextWalk(editor).edit_json('{"A": "hidden", "A": "SHOWN"}', "tool_arguments")
    assert any("hidden" in text for text, _ in editor.seen)


CARD = "4111 1111 1111 1111"


def message_of(*texts: str) -> Message:
    return Message("user", tuple(map(Text, texts)))


@pytest.mark.parametrize(
    "texts",
    [
        ("Pay with 4111 1111 ", "1111 1111 today"),
        ("4", "111 1111 1111 1111"),
        ("Pay with ", *CARD, " today"),
        ("x" * 5000 + " 4111", " 1111 1111", " 1111 and " + "y" * 5000),
    ],
)
@pytest.mark.parametrize("action", ["mask", "remove", "block"])
def test_value_that_is_cut_into_several_texts_of_a_message_is_found(texts: tuple[str, ...], action: str) -> None:
    rule = GuardrailRule("g", "Cards", action, ("payment_card",))  # type: ignore[arg-type]
    masks = Masks(b"k" * 32)
    editor = RequestEditor(RuleSet([rule], str), masks, Findings())
    edited = TextWalk(editor).edit(message_of(*texts), "prompt")
    sent = "".join(part.text for part in edited.parts)
    if action == "block":
        assert editor.error is not None
        return
    assert CARD not in sent and all(part.text for part in edited.parts)
    assert (masks.restore(sent) if action == "mask" else sent.replace("[removed]", CARD)) == "".join(texts)


def test_texts_without_a_value_at_their_ends_stay_as_they_are() -> None:
    rule = GuardrailRule("g", "Cards", "mask", ("payment_card",))
    editor = RequestEditor(RuleSet([rule], str), Masks(b"k" * 32), Findings())
    message = message_of("one ", "two ", "three")
    assert TextWalk(editor).edit(message, "prompt") is message
    whole = message_of(f"Pay with {CARD}.", "And with nothing.")
    edited = TextWalk(editor).edit(whole, "prompt")
    assert edited.parts[1] is whole.parts[1] and "CARD_" in edited.parts[0].text


def test_value_at_the_end_of_a_text_is_no_part_of_one_that_the_next_text_would_make() -> None:
    rule = GuardrailRule("g", "Mail", "mask", ("email",))
    editor = RequestEditor(RuleSet([rule], str), Masks(b"k" * 32), Findings())
    edited = TextWalk(editor).edit(message_of("anna@mail.test", "bert@mail.test", "carl"), "prompt")
    assert [part.text[:6] for part in edited.parts] == ["EMAIL_", "EMAIL_", "carl"]
