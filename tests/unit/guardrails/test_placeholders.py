"""Placeholders: stable, and found again however a model writes them."""

import json
import random

import pytest
from support.labelled_texts import positives

from gateway.guardrails.placeholders import ALPHABET, ID_LENGTH, OWN, Masks
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.guardrails.windows import RestoredText


@pytest.fixture
def masks() -> Masks:
    return Masks(b"k" * 32)


def test_value_has_the_same_placeholder_in_all_of_a_session_and_another_one_elsewhere(masks: Masks) -> None:
    first = masks.mask("anna@mail.test", "EMAIL")
    assert OWN.fullmatch(first)
    assert Masks(b"k" * 32).mask("anna@mail.test", "EMAIL") == first
    assert Masks(b"j" * 32).mask("anna@mail.test", "EMAIL") != first
    assert masks.mask("ben@mail.test", "EMAIL") != first


@pytest.mark.parametrize(
    "write",
    [
        str,
        str.lower,
        str.title,
        lambda text: text.replace("_", "\\_"),
        lambda text: text.replace("_", "-"),
        lambda text: text.replace("_", " "),
        lambda text: text.partition("_")[2],
        lambda text: text[:-3],
        lambda text: f"[{text}]",
        lambda text: text.replace("0", "O").replace("1", "l"),
    ],
)
def test_placeholder_is_restored_however_it_is_written(masks: Masks, write: object) -> None:
    written = write(masks.mask("anna@mail.test", "EMAIL"))  # type: ignore[operator]
    restored = masks.restore(f"Write to {written}, please.")
    assert restored.replace("[", "").replace("]", "") == "Write to anna@mail.test, please."


def test_value_is_escaped_within_json(masks: Masks) -> None:
    placeholder = masks.mask('a "b"\n', "TERM")
    assert masks.restore(f'{{"x": "{placeholder}"}}', escaped=True) == '{"x": "a \\"b\\"\\n"}'


def test_text_that_is_no_placeholder_of_the_session_stays(masks: Masks) -> None:
    masks.mask("anna@mail.test", "EMAIL")
    for text in ("EMAIL_0000000000", "ID 123456", "the KEY 4711aa", "0123456789", "Token abcdef"):
        assert masks.restore(text) == text


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64])
@pytest.mark.parametrize("change", [str, str.lower])
def test_placeholders_are_restored_in_fragments_of_any_size(size: int, change: object) -> None:
    rng = random.Random(size)
    masks = Masks(b"k" * 32)
    values = [labelled.value for labelled in positives(5, 4)]
    placeholders = [change(masks.mask(value, "SECRET")) for value in values]  # type: ignore[operator]
    words = ["I", "mail", "ID", "secret", "the EMAIL", "token\\", "x" * 20, "7", "Sec"]
    text = "".join(f"{rng.choice(words)} {placeholder}{rng.choice('. ,!)')}" for placeholder in placeholders)
    expected = text
    for value, placeholder in zip(values, placeholders, strict=True):
        expected = expected.replace(placeholder, value)
    stream = RestoredText(masks, escaped=False)
    pieces = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
    assert "".join([*pieces, stream.flush()]) == expected


def test_text_without_a_beginning_of_a_placeholder_is_passed_on_at_once(masks: Masks) -> None:
    masks.mask("anna@mail.test", "EMAIL")
    stream = RestoredText(masks, escaped=False)
    for word in ("Hello", " wor", "ld, how", " are you?\n"):
        assert stream.feed(word) == word
    assert stream.feed("EMAIL_") == ""
    assert len(masks.ident_of("x")) == ID_LENGTH


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("before", ["Hello\n", "\t", '"', "\u0001", "名", "x\\n"])
def test_placeholder_after_an_escape_in_json_is_restored(before: str, size: int) -> None:
    masks = Masks(b"key")
    text = json.dumps({"body": f"{before}{masks.mask('anna@mail.test', 'EMAIL')} and more"})
    restored = RestoredText(masks, escaped=True)
    pieces = [restored.feed(text[start : start + size]) for start in range(0, len(text), size)]
    assert "".join([*pieces, restored.flush()]) == json.dumps({"body": f"{before}anna@mail.test and more"})


def test_text_that_only_looks_like_a_placeholder_is_a_value(masks: Masks) -> None:
    real = masks.mask("anna@mail.test", "EMAIL")
    rules = RuleSet([GuardrailRule("g", "Ids", "mask", patterns=("[A-Z]{2,5}_[0-9A-Z]{10}",))], str)
    forged = [f"EMAIL_{'0' * 8}{first}{second}" for first in "0123" for second in ALPHABET]
    found = rules.find(" ".join([real, *forged]), "prompt", masks)
    assert real not in [match.value_in(" ".join([real, *forged])) for match in found]
    assert len(found) >= len(forged) - 1  # one of 1,024 is guessed
    assert Masks(b"k" * 32).owns(real) and not Masks(b"j" * 32).owns(real)
