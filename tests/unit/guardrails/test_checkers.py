"""Forms of outside checkers: their settings, how texts are cut and joined for them, and the table of the page."""

import os
from itertools import pairwise

import orjson
import pytest

from gateway.configuration.settings import ROOT
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.guardrails.checked_texts import CheckCollector, CheckedRules, CheckedWindow, Content
from gateway.guardrails.checkers import Checker, FoundValue, checked_kind, checker_forms, read_settings
from gateway.guardrails.rule_sets import GuardrailRule, Match, RuleSet
from gateway.providers.checker_calls import MOST_FOUND, OVERLAP, CheckRequest, cut, place_found
from gateway.providers.checker_forms import FORMS

PAGE = ROOT / "docs/guardrails.md"
BEGIN, END = "<!-- checkers: begin -->\n", "<!-- checkers: end -->\n"
PRESIDIO = Checker("presidio", "http://presidio.test/")
RULE = GuardrailRule("guard_1", "People", "mask", checker=PRESIDIO)


def contents(*texts: str) -> list[Content]:
    return [Content(text, "input", "prompt") for text in texts]


def test_every_form_has_its_calls_and_a_row_of_the_page() -> None:
    assert set(checker_forms()) == {*FORMS, "model"}
    rows = [
        "| Form | Checker | Address | Credential | Finds places | Files | Settings |\n",
        "|---|---|---|---|---|---|---|\n",
    ]
    for form in checker_forms().values():
        settings = [
            f"`{name}`: {one.help}" + (f" (default `{one.default}`)" if one.default else "")
            + (" (required)" if one.required else "")
            for name, one in form.settings.items()
        ]  # fmt: skip
        address = {"": "required", "none": "none"}.get(form.address, f"default `{form.address}`")
        credential = {"none": "none"}.get(form.credential, f"{form.credential}: {form.secret}")
        files = ", ".join(f"`{kind}*`" if kind.endswith("/") else f"`{kind}`" for kind in form.media) or "none"
        cells = (f"`{form.name}`", form.title, address, credential, "yes" if form.places else "no", files)
        rows.append(f"| {' | '.join((*cells, '<br>'.join(settings) or 'none'))} |\n")
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(text[:start] + "".join(rows) + text[end:])
        return
    assert text[start:end] == "".join(rows)


@pytest.mark.parametrize(
    ("form", "given", "message"),
    [
        ("presidio", ["lang=en"], "no setting 'lang'"),
        ("presidio", ["language=english"], "language of the texts"),
        ("bedrock_guardrail", ["guardrail=abc"], "needs the setting region"),
        ("bedrock_guardrail", ["guardrail=abc", "region=evil.test/"], "region of the guardrail"),
        ("azure_content_safety", ["severity=9"], "least severity"),
        ("webhook", ["x=1"], "it has: none"),
    ],
)
def test_settings_that_a_form_does_not_have_are_refused(form: str, given: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_settings(checker_forms()[form], given)


def test_settings_have_defaults() -> None:
    settings = read_settings(checker_forms()["presidio"], ["entities=PERSON,LOCATION"])
    checker = Checker("presidio", settings=settings)
    assert (checker.setting("entities"), checker.setting("score")) == ("PERSON,LOCATION", "0.5")


def test_long_texts_are_cut_with_an_overlap_and_findings_keep_their_places() -> None:
    form = checker_forms()["azure_content_safety"]
    text = "".join(f"{number:09} " for number in range(5_000))
    pieces = cut(form, contents(text))
    assert all(len(piece.text) <= form.longest for piece in pieces)
    for first, second in pairwise(pieces):
        assert first.text[-OVERLAP:] == second.text[:OVERLAP]
    for piece in pieces:
        ((number, found),) = place_found(piece, [FoundValue("x", 10, 20)])
        assert number == 0 and text[found.start : found.end] == piece.text[10:20]
    assert pieces[-1].text.endswith(text[-10:])


def test_short_texts_are_joined_and_findings_are_those_of_their_own_text() -> None:
    texts = [f"text number {number}" for number in range(50)]
    pieces = cut(checker_forms()["presidio"], contents(*texts))
    assert len(pieces) == 1
    for number, text in enumerate(texts):
        start = pieces[0].text.index(f"{text}\n" if number < 49 else text)
        assert place_found(pieces[0], [FoundValue("x", start + 5, start + 11)]) == [(number, FoundValue("x", 5, 11))]
    across = FoundValue("x", len(texts[0]) - 3, len(texts[0]) + 5)
    assert [number for number, _ in place_found(pieces[0], [across])] == [0, 1]


def test_texts_of_different_roles_are_never_joined() -> None:
    mixed = [Content("a", "input", "prompt"), Content("b", "tool", "tool_results"), Content("c", "answer", "answer")]
    assert len(cut(checker_forms()["presidio"], mixed)) == 3


@pytest.mark.parametrize(
    "answer", [{}, [], {"findings": [{"content": 1, "kind": "x"}]}, {"findings": [{"content": 0}]}, 7]
)
def test_answer_in_another_form_is_a_failure(answer: object) -> None:
    pieces = cut(checker_forms()["webhook"], contents("a"))
    (call,) = FORMS["webhook"](CheckRequest(Checker("webhook", "http://hook.test"), "secret", pieces, "id", 0))
    with pytest.raises(UpstreamFailed):
        call.verdicts(orjson.dumps(answer))


def test_names_of_kinds_are_short_and_plain() -> None:
    assert checked_kind("EMAIL_ADDRESS") == "email_address"
    assert checked_kind("a|b`c\n" + "x" * 100) == "a_b_c_" + "x" * 34
    assert checked_kind("über") == checked_kind("") == "finding"


def test_exception_is_no_finding_of_a_checker() -> None:
    rules = RuleSet([GuardrailRule("g", "P", "mask", exceptions=frozenset(["Anna"]), checker=PRESIDIO)], str)
    found = {(PRESIDIO, "input", "Anna and Bert"): (FoundValue("person", 0, 4), FoundValue("person", 9, 13))}
    matches = CheckedRules(rules.request_checks, rules, found).find("Anna and Bert", "prompt")
    assert [(match.start, match.end) for match in matches] == [(9, 13)]


def test_finding_without_a_place_blocks_where_a_rule_would_mask() -> None:
    rules = RuleSet([RULE], str)
    found = {(PRESIDIO, "input", "text"): (FoundValue("harm"),)}
    (match,) = CheckedRules(rules.request_checks, rules, found).find("text", "prompt")
    assert (match.rule.acts, match.start, match.end) == ("block", 0, 4)


def test_contents_are_collected_once_for_each_checker() -> None:
    collector = CheckCollector([RULE, GuardrailRule("guard_2", "Again", "log", checker=PRESIDIO)])
    for _ in range(3):
        collector.text("a", "prompt")
        collector.text("a", "history")
        collector.text(" ", "prompt")
        collector.text("a", "answer")
    assert list(collector.contents) == [PRESIDIO] and len(collector.contents[PRESIDIO]) == 1


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
def test_window_lets_no_character_out_that_was_not_checked(size: int) -> None:
    text = "".join(f"line {number} of a long answer. " for number in range(400))
    checked: list[str] = []

    def check(part: str) -> list[Match]:
        checked.append(part)
        return []

    window = CheckedWindow(check, lambda match, value: value)
    out = ""
    for start in range(0, len(text), size):
        out += window.feed(text[start : start + size])
        assert not out or any(out.endswith(part[-20:]) or out[-20:] in part for part in checked)
    assert out + window.flush() == text
    assert len(checked) < 20


@pytest.mark.parametrize("form", checker_forms())
def test_every_setting_accepts_its_default_and_one_example(form: str) -> None:
    examples = {
        "guardrail": "arn:aws:bedrock:eu-west-1:123456789012:guardrail/abc123",
        "region": "us-gov-west-1",
        "model": "openai/omni-moderation-latest",
        "policy": "advice about medicines,\nor about law: " + "x" * 2000,
        "entities": "PERSON,US_SSN",
        "blocklists": "a,b",
        "project": "project-1",
    }
    known = checker_forms()[form].settings
    given = [f"{name}={setting.default or examples[name]}" for name, setting in known.items()]
    assert len(read_settings(checker_forms()[form], given)) == len(known)


def test_findings_of_an_answer_are_bounded_and_the_rest_has_no_place() -> None:
    checker = Checker(
        "bedrock_guardrail", "http://bedrock.test", (("guardrail", "abc"), ("region", "eu-west-1")), sealed="x"
    )
    kind = checker_forms()["bedrock_guardrail"]
    [piece] = cut(kind, contents("a" * 20_000))
    [call] = FORMS["bedrock_guardrail"](CheckRequest(checker, "key", [piece], "r", 0))
    entities = [{"action": "BLOCKED", "type": f"kind{number}", "match": "a"} for number in range(50)]
    body = {
        "action": "GUARDRAIL_INTERVENED",
        "assessments": [{"sensitiveInformationPolicy": {"piiEntities": entities}}],
    }
    [found] = call.verdicts(orjson.dumps(body))
    assert len(found) == MOST_FOUND + 1 and found[-1].end == 0


def test_findings_that_span_many_short_texts_are_placed_in_a_bounded_number_of_them() -> None:
    pieces = cut(PRESIDIO.kind, contents(*["a"] * 1_000))
    [piece] = pieces
    found = [FoundValue("person", 0, len(piece.text))] * 1_000
    assert len(place_found(piece, found)) < 10_000
    assert place_found(piece, found[:1])[-1] == (999, FoundValue("person", 0, 1))
