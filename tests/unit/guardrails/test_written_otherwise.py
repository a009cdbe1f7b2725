"""Values that are written with escapes, look-alikes or as numbers are found, and their text is put back in place."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from gateway.guardrails.guarded_texts import Findings, RequestEditor
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.guardrails.scanning import PlainText
from gateway.guardrails.texts import TextWalk

CARD = "4929123456789015"
EMAIL = "anna@mail.test"


def masked(value: Any, as_json: bool = False) -> tuple[Any, Masks, Findings]:
    masks = Masks(b"key")
    findings = Findings()
    rules = RuleSet([GuardrailRule("r1", "rule", "mask", detectors=("personal", "secrets"))], str)
    walk = TextWalk(RequestEditor(rules, masks, findings))
    return (walk.edit_json(value, "prompt") if as_json else walk.edit(value, "prompt")), masks, findings


@pytest.mark.parametrize(
    ("text", "before", "value", "after"),
    [
        (f"卡号{CARD}请", "卡号", CARD, "请"),
        (json.dumps({"a": f"Card:\n{CARD}\t"}), '{"a": "Card:\\n', CARD, '\\t"}'),
        (json.dumps({"a": f"to:\n{EMAIL}"}), '{"a": "to:\\n', EMAIL, '"}'),
        (json.dumps({"a": json.dumps({"b": f"x\n{CARD}"})}), '{"a": "{\\"b\\": \\"x\\\\n', CARD, '\\"}"}'),
        (r'{"to":"anna\u0040mail.test",}', '{"to":"', EMAIL, '",}'),
        (r'{"to":"anna\\u0040mail.test"}', '{"to":"', EMAIL, '"}'),
        (f"?to={quote(EMAIL)}&x=1", "?to=", EMAIL, "&x=1"),
        ("anna&#64;mail.test, anna", "", EMAIL, ", anna"),
        ("I am anna\u200b@mail.te\u00adst!", "I am ", EMAIL, "!"),
        ("4929\u200b1234\u200b5678\u200b9015", "", CARD, ""),
        ("No. 4929\u00a01234\u20095678\u202f9015", "No. ", "4929 1234 5678 9015", ""),
        ("No. 4929\u20111234\u20105678\u22129015.", "No. ", "4929-1234-5678-9015", "."),
        ("番号４９２９１２３４５６７８９０１５。", "番号", CARD, "。"),
    ],
)
def test_value_is_masked_where_it_is_written(text: str, before: str, value: str, after: str) -> None:
    edited, masks, _ = masked(text)
    assert list(masks.values.values()) == [value]
    assert edited == f"{before}{masks.mask(value, 'EMAIL' if '@' in value else 'CARD')}{after}"
    assert masks.restore(edited) == f"{before}{value}{after}"


def test_password_in_json_within_json_is_masked() -> None:
    text = json.dumps({"text": json.dumps({"password": "aB3dE6gH9jK2mN5pQ8"})})
    edited, masks, _ = masked(text)
    assert list(masks.values.values()) == ["aB3dE6gH9jK2mN5pQ8"]
    assert json.loads(json.loads(edited)["text"])["password"].startswith("SECRET_")


@pytest.mark.parametrize("value", [[1, int(CARD)], ["x", int(CARD)], {"a": float(CARD)}, {"a": [[-1], [int(CARD)]]}])
def test_numbers_of_json_are_read_wherever_they_are(value: Any) -> None:
    edited, masks, findings = masked(json.dumps(value), as_json=True)
    assert list(masks.values.values()) == [CARD]
    assert CARD not in edited
    assert findings.unread == {}


def test_lists_of_numbers_are_token_ids_only_outside_of_json() -> None:
    assert masked({"rows": [1, 2, 3]})[2].unread == {}
    assert masked('{"rows": [1, 2, 3], "page": 1.5}', as_json=True)[0] == '{"rows": [1, 2, 3], "page": 1.5}'
    assert masked("[1, 2, 3]", as_json=True)[2].unread == {}
    assert masked(([1, 2, 3], [4, 5]))[2].unread == {"request": {"token ids"}}


def test_plain_text_of_many_escapes_takes_linear_work() -> None:
    assert PlainText.of("no escapes at all") is None
    assert PlainText.of("\\" * 1_000_000) is None
    plain = PlainText.of('\\"' * 500_000)
    assert plain is not None
    assert plain.text == '"' * 500_000


def test_thousands_of_terms_of_an_organization_are_all_found() -> None:
    terms = [f"{number:05} " + "long term " * 15 for number in range(4000)]
    rules = [
        GuardrailRule(str(first), "r", "log", terms=tuple(terms[first : first + 500])) for first in range(0, 4000, 500)
    ]
    found = RuleSet(rules, str).find(f"before {terms[0]} between {terms[-1]} after", "prompt")
    assert [match.rule.id for match in found] == ["0", "3500"]
