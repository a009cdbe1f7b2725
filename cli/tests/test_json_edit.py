"""Edits of JSON text: what an edit does not change keeps its order, indentation and comments."""

import json

import pytest

from llmgateway_cli.agents.json_edit import JsonEditor, JsonError, JsonReader

COMMENTED = """\
{
    // who am I
    "theme": "dark", // kept
    "env": {
        "X": "old" // first
        /* the end */
    },
    "numbers": [1.50, 2e3],
}
"""


def merged(text: str, changes: dict[str, object], allow_comments: bool = True) -> str:
    return JsonEditor(text, allow_comments).merge(changes)


def test_comments_and_order_survive_an_edit() -> None:
    text = merged(COMMENTED, {"env": {"X": "new", "Y": "2"}, "last": True})
    assert text == COMMENTED.replace('"old"', '"new",').replace(
        "/* the end */\n", '/* the end */\n        "Y": "2"\n'
    ).replace("2e3],\n", '2e3],\n    "last": true\n')


def test_an_edit_that_changes_nothing_leaves_the_text() -> None:
    assert merged(COMMENTED, {"env": {"X": "old"}, "theme": "dark"}) == COMMENTED


@pytest.mark.parametrize("text", ["", "  \n", "{}", "{ }", "{\n}\n", "{ /* empty */ }"])
def test_an_empty_object_gets_its_first_members(text: str) -> None:
    result = JsonReader(merged(text, {"env": {"A": "1"}, "b": [2]})).read().value
    assert result == {"env": {"A": "1"}, "b": [2]}


def test_an_object_in_one_line_stays_in_one_line() -> None:
    assert merged('{"a": 1}', {"b": {"c": 2}}) == '{"a": 1, "b": {"c": 2}}'


def test_windows_line_ends_are_kept() -> None:
    text = merged('{\r\n\t"a": 1\r\n}\r\n', {"b": {"c": 2}})
    assert text == '{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}\r\n'


def test_a_value_that_is_no_object_is_replaced_by_one() -> None:
    assert json.loads(merged('{"env": null, "x": 1}', {"env": {"A": "1"}})) == {"env": {"A": "1"}, "x": 1}


def test_the_last_of_repeated_members_counts() -> None:
    text = merged('{"a": {"b": 1}, "a": {"b": 2}}', {"a": {"b": 3}})
    assert text == '{"a": {"b": 1}, "a": {"b": 3}}'


def test_a_byte_order_mark_stays_first() -> None:
    assert merged('\ufeff{"a": 1}', {"a": 2}, allow_comments=False) == '\ufeff{"a": 2}'


def test_true_is_not_confused_with_one() -> None:
    assert merged('{"a": 1}', {"a": True}) == '{"a": true}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a" 1}', 1),
        ("[1]", 1),
        ('{\n"a": 1', 2),
        ('{"a": 1}}', 1),
        ("{a: 1}", 1),
        ('{"a": 1\n"b": 2}', 2),
        ('{"a": yes}', 1),
        ("{,}", 1),
        ('{"a": "unfinished}', 1),
        ('{"a": [1 2]}', 1),
        ('{"a": [1', 1),
        ('{"a": #}', 1),
        ('"text"', 1),
    ],
)
def test_damaged_text_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(JsonError) as caught:
        JsonEditor(text, allow_comments=True)
    assert caught.value.line == line


@pytest.mark.parametrize("text", ['{\n// note\n"a": 1}', '{"a": 1,}'])
def test_comments_are_refused_where_the_agent_does_not_read_them(text: str) -> None:
    with pytest.raises(JsonError):
        JsonEditor(text, allow_comments=False)
