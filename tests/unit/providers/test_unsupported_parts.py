from gateway.neutral.chat import ReasoningOptions
from gateway.neutral.parts import File, Media, Message, Text, ToolResult
from gateway.providers.unsupported_parts import NO_CITATIONS, NO_NAMES, spell_out, warn_of_mode, warn_of_names

PAPER = File(Media("application/pdf", data="JVBERi0="), title="A paper", context="Written in 1905.")


def test_a_files_context_is_said_ahead_of_it() -> None:
    (message,) = spell_out((Message("user", (PAPER, Text("Sum it up."))),), [])
    assert message.parts == (Text("A paper\nWritten in 1905."), PAPER, Text("Sum it up."))


def test_a_files_context_within_a_tools_result_is_said_too() -> None:
    (message,) = spell_out((Message("tool", (ToolResult("c1", (PAPER,), name="read"),)),), [])
    assert message.parts == (ToolResult("c1", (Text("A paper\nWritten in 1905."), PAPER), name="read"),)


def test_messages_without_a_context_are_not_copied() -> None:
    messages = (Message("user", (Text("Hello"), File(Media(data="JVBERi0=")))),)
    assert spell_out(messages, []) is messages


def test_unsupported_citations_are_reported_once() -> None:
    warnings: list[str] = []
    spell_out(
        (Message("user", (File(Media(data="x"), citations=True), File(Media(data="y"), citations=True))),), warnings
    )
    assert warnings == [NO_CITATIONS]


def test_names_are_reported_once_and_their_absence_never() -> None:
    warnings: list[str] = []
    warn_of_names((Message("user", (Text("Hello"),)),), warnings)
    assert warnings == []
    warn_of_names((Message("user", (Text("Hello"),), "ann"), Message("assistant", (), "bo")), warnings)
    assert warnings == [NO_NAMES]


def test_only_an_unusual_mode_is_reported() -> None:
    warnings: list[str] = []
    warn_of_mode(ReasoningOptions(mode="standard"), warnings)
    assert warnings == []
    warn_of_mode(ReasoningOptions(mode="pro"), warnings)
    assert "pro" in warnings[0]
