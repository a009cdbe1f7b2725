"""Windows over streams: no part of a value is passed on, and other text is passed on at once."""

import random

import pytest
from support.labelled_texts import positives

from gateway.guardrails.rule_sets import GuardrailRule, Match, RuleSet
from gateway.guardrails.windows import TextWindow


def rules_of(*detectors: str, action: str = "remove", **more: object) -> RuleSet:
    rule = GuardrailRule("r1", "rule", action, detectors=detectors, places=("answer",), **more)  # type: ignore[arg-type]
    return RuleSet([rule], str)


def removed(match: Match, value: str) -> str:
    return "[removed]"


class Blocked(Exception):
    pass


def block(match: Match, value: str) -> str:
    raise Blocked


@pytest.mark.parametrize("size", [1, 2, 7, 30, 1000])
def test_values_are_removed_from_a_stream_as_from_the_whole_text(size: int) -> None:
    rng = random.Random(size)
    for labelled in positives(7, 2):
        rules = rules_of("secrets", "personal", "network")
        text = f"Intro. {labelled.text}\nThat is all, {rng.choice(['fine', 'ok'])}."
        window = TextWindow(rules, removed)
        pieces = [window.feed(text[start : start + size]) for start in range(0, len(text), size)]
        answer = "".join([*pieces, window.flush()])
        whole = TextWindow(rules, removed)
        assert answer == whole.feed(text) + whole.flush()
        assert labelled.value not in answer, labelled.detector
        assert "[removed]" in answer


@pytest.mark.parametrize("size", [1, 3, 40])
def test_blocked_value_never_begins_to_leave(size: int) -> None:
    for labelled in positives(9, 2):
        window = TextWindow(rules_of(labelled.detector, action="block"), block)
        text = f"Before. {labelled.text} After."
        sent = ""
        with pytest.raises(Blocked):
            for start in range(0, len(text), size):
                sent += window.feed(text[start : start + size])
            window.flush()
        assert text.startswith(sent)
        assert len(sent) <= text.index(labelled.value), labelled.detector


def test_text_that_cannot_begin_a_value_is_not_held() -> None:
    window = TextWindow(rules_of("payment_card"), removed)
    for word in ("Hello", " world,", "\nthe price is", " x\n"):
        assert window.feed(word) == word
    assert window.feed("4111 1111") == ""
    assert window.feed(" 1111 1111!") == "[removed]!"


def test_own_pattern_is_held_as_far_as_it_may_reach() -> None:
    window = TextWindow(rules_of(patterns=("project-[0-9]+",)), removed)
    sent = "".join(window.feed(piece) for piece in ("a project", "-1", "2", " is secret"))
    assert sent + window.flush() == "a [removed] is secret"


@pytest.mark.parametrize("text", ["A" * 20_000, "a." * 10_000, "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 15_000])
def test_long_text_without_blanks_in_pieces_of_one_character_takes_linear_work(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = rules_of("secrets", "personal")
    find = rules.find
    read = []

    def counted(given: str, *place: object, **more: object) -> list[Match]:
        read.append(len(given))
        return find(given, *place, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rules, "find", counted)
    window = TextWindow(rules, removed)
    for character in text:
        window.feed(character)
    window.flush()
    assert sum(read) < 30 * len(text)
