import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.neutral.chat import ResponseFormat
from gateway.neutral.json_extraction import MAX_LENGTH, Healed, heal

OBJECT = ResponseFormat("json_object")
CITY = ResponseFormat(
    "json_schema",
    name="city",
    schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, min_size=1)
CONTAINERS = OBJECTS | st.lists(VALUES, min_size=1)
SYNTAX = ("syntax_fix",)


def healed(text: str, wanted: ResponseFormat = OBJECT) -> object:
    """Return the value that was extracted from `text`."""
    found = heal(text, wanted)
    assert found is not None, text
    return json.loads(found.text)


@settings(deadline=None)
@given(VALUES, st.sampled_from([None, 0, 2]))
def test_valid_json_is_unchanged(value: object, indent: int | None) -> None:
    assert heal(json.dumps(value, indent=indent), OBJECT) is None
    assert heal(f"\n {json.dumps(value, ensure_ascii=False)}\n", OBJECT) is None


@settings(deadline=None)
@given(
    CONTAINERS, st.sampled_from(["```json\n{}\n```", "```\n{}```", "Here it is:\n\n```JSON\n{}\n```\nAnything else?"])
)
def test_json_in_a_fence_comes_out_byte_for_byte(value: object, frame: str) -> None:
    text = json.dumps(value, indent=2)
    assert heal(frame.replace("{}", text, 1), OBJECT) == Healed(text, ("markdown_extraction",))


@settings(deadline=None)
@given(OBJECTS, st.sampled_from(["Sure: {}", "{}\nHope it helps!", "One [sic] moment. {} Done (see [1])."]))
def test_an_object_amid_prose_comes_out_byte_for_byte(value: object, frame: str) -> None:
    text = json.dumps(value)
    assert heal(frame.replace("{}", text, 1), OBJECT) == Healed(text, ("mixed_content_extraction",))


@settings(deadline=None)
@given(CONTAINERS)
def test_a_python_literal_comes_back_equal(value: object) -> None:
    if not _is_json(repr(value)):
        assert healed(repr(value)) == value


@settings(deadline=None)
@given(CONTAINERS, st.integers(0, 4))
def test_trailing_commas_are_removed(value: object, indent: int) -> None:
    assert healed(_with_trailing_commas(value)) == value


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), SCALARS, min_size=1))
def test_bare_keys_are_quoted(value: dict) -> None:
    text = "{" + ", ".join(f"{key}: {json.dumps(inner)}" for key, inner in value.items()) + "}"
    assert healed(text) == value


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text(), min_size=1))
def test_raw_line_breaks_and_tabs_in_strings_are_escaped(value: dict) -> None:
    text = json.dumps(value, ensure_ascii=False).replace("\\n", "\n").replace("\\t", "\t")
    if "\\" not in text and not _is_json(text):
        assert healed(text) == value


@settings(deadline=None)
@given(CONTAINERS, st.sampled_from(["// note\n", "/* it's {one} */", "# note, with a comma\n"]))
def test_comments_are_removed(value: object, comment: str) -> None:
    lines = json.dumps(value, indent=1).split("\n")
    assert healed(f"{lines[0]}{comment}" + "\n".join([*lines[1:-1], f"{comment}{lines[-1]}"])) == value


@settings(deadline=None)
@given(CONTAINERS, st.data())
def test_whatever_is_left_of_cut_json_stays_in_its_place(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    found = heal(cut, OBJECT)
    if found is not None:
        assert found.strategies == ("truncation_completion",)
        assert _begins(json.loads(found.text), value)


@settings(deadline=None)
@given(CONTAINERS)
def test_truncated_json_keeps_all_values_but_the_last(value: object) -> None:
    assert healed(json.dumps(value)[:-1]) == value


SLIPS = [
    ("{'it': 'it's fine'}", {"it": "it's fine"}),
    ('{“a”: “said "no"”}', {"a": 'said "no"'}),
    ('{"path": "C:\\dir", "re": "\\d+"}', {"path": "C:\\dir", "re": "\\d+"}),
    ("[NaN, nan, Infinity, -Infinity, undefined, None, True]", [None, None, None, None, None, None, True]),
    ('\ufeff{"a": 1}', {"a": 1}),
    ('{"a":\u00a01}', {"a": 1}),
    ("{'a': '\\x41\\U0001f600'}", {"a": "A\U0001f600"}),
    (r"""{"of Python and C": "it\'s \0 \a \v"}""", {"of Python and C": "it's \0 \a \v"}),
    ('["a line \\\n of a script"]', ["a line \n of a script"]),
]


@pytest.mark.parametrize(("text", "value"), SLIPS)
def test_slips_of_other_languages_are_put_right(text: str, value: object) -> None:
    assert healed(text) == value
    assert heal(text, OBJECT).strategies == SYNTAX


def test_numbers_keep_every_digit() -> None:
    assert heal('{"a": 12345678901234567890.10, "b": 1e400,}', OBJECT).text == '{"a":12345678901234567890.10,"b":1e400}'


def test_several_strategies_are_all_named() -> None:
    found = heal("Of course!\n```json\n{'a': [1, 2", OBJECT)
    assert found.text == '{"a":[1,2]}'
    assert found.strategies == ("markdown_extraction", "syntax_fix", "truncation_completion", "combined_strategies")


@pytest.mark.parametrize("rest", ["", "\\", "\\u", "\\ude0"])
def test_half_of_a_surrogate_pair_is_not_kept(rest: str) -> None:
    assert healed('{"a": "x\\ud83d' + rest) == {"a": "x"}


REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I cannot fill in {name} or {id: number}.",
    "No. An empty object such as {} would not be honest.",
    "See [1] and [2, 3].",
    "null and void",
    "",
    "```\nno JSON here\n```",
    "{",
    '{"a"',
    '{"a": nothing}',
    '{"a" 1}',
    "{{{{",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_never_becomes_json(text: str) -> None:
    assert heal(text, OBJECT) is None


def test_with_a_schema_only_conforming_values_are_accepted() -> None:
    assert healed('{"city": "Oslo"} no: {"name": "Oslo"}', CITY) == {"name": "Oslo"}
    assert heal("{'city': 'Oslo'}", CITY) is None
    assert heal('{"people": 7, "na', CITY) is None


def test_the_largest_of_several_objects_is_extracted() -> None:
    assert healed('E.g. {"a": 1}. So: {"a": 1, "b": [2]}.') == {"a": 1, "b": [2]}


def test_plain_text_is_never_healed() -> None:
    assert heal("```json\n{}\n```", ResponseFormat("text")) is None


HOSTILE = [
    "[" * 250_000,
    '{"a":' * 50_000,
    "{a:[" * 60_000,
    '{"' * 125_000,
    "[" * 19 + "1," * 125_000 + "!",
    "```json [" * 19 + "1," * 125_000 + "!",
    "```" + " " * 200_000,
    "```" + "\n" * 200_000 + "x",
    ("```" + "a" * 60 + " " * 60) * 2_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_does_not_hold_up_the_process(text: str) -> None:
    started = time.process_time()
    assert len(text) < MAX_LENGTH
    assert heal(text, OBJECT) is None
    assert time.process_time() - started < 2


@pytest.mark.parametrize("text", ["{'a': '" + "'" * 200_000, "{'a': '" + ("'" + " " * 90) * 2_000, "{" + "/*" * 99_000])
def test_hostile_text_that_can_be_read_is_read_once(text: str) -> None:
    started = time.process_time()
    heal(text, OBJECT)
    assert time.process_time() - started < 2


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_trailing_commas(value: object) -> str:
    if isinstance(value, dict) and value:
        return "{" + "".join(f"{json.dumps(key)}: {_with_trailing_commas(v)}, " for key, v in value.items()) + "\n}"
    if isinstance(value, list) and value:
        return "[" + "".join(f"{_with_trailing_commas(v)} ,\n" for v in value) + "]"
    return json.dumps(value)


def _begins(part: object, whole: object) -> bool:
    """Return whether `part` is `whole` with something missing at its end."""
    if isinstance(part, dict) and isinstance(whole, dict):
        known = list(whole)[: len(part)] == list(part)
        return known and all(_begins(part[key], whole[key]) for key in part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(_begins(a, b) for a, b in zip(part, whole, strict=False))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return part == whole or isinstance(whole, int | float)  # a number that was cut is another number
