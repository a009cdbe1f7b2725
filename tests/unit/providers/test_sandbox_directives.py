"""Directives are read as written, and the page that lists them lists all of them."""

import tomllib
from pathlib import Path

import pytest

from gateway.errors import InvalidRequest
from gateway.providers.sandbox.directives import PERSONAS, READERS, Directives, apply, read_brackets, strip

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "sandbox.md").read_text()
MAPPINGS = tomllib.loads((ROOT / "config/catalogue/providers/sandbox.toml").read_text())["mappings"]
# The page lists models by the name that callers use, without its prefix.
NAMES = {mapping["external_id"]: mapping["model"].removeprefix("sandbox-") for mapping in MAPPINGS}


def directives(text, base=None, model="echo", **attempts):
    return apply(base or Directives(), read_brackets(text), model, attempts)


def test_bare_names_take_their_documented_value():
    read = directives("[[sandbox: no_done parallel timeout malformed]]")
    assert (read.no_done, read.parallel, read.timeout, read.malformed) == (True, 2, 0.0, 1)


def test_later_brackets_win_over_earlier_ones_and_the_model():
    read = directives("[[sandbox: status=429 pace=5]] x [[sandbox: status=500]]", Directives(status=401, chunk=3))
    assert (read.status, read.pace, read.chunk) == (500, 5.0, 3)


def test_an_answer_may_have_each_end_no_usage_and_a_length():
    for finish in ("stop", "length", "tool_calls", "content_filter"):
        assert directives(f"[[sandbox: finish={finish}]]").finish == finish
    read = directives("[[sandbox: no_usage takes=2]]")
    assert (read.no_usage, read.takes) == (True, 2.0)


def test_false_switches_a_models_own_fault_off():
    assert directives("[[sandbox: empty=false]]", Directives(empty=True)).empty is False


def test_spent_attempts_leave_the_bracket_out():
    text = "[[sandbox: status=500 attempt=2 key=a]]"
    assert directives(text, a=2).status == 500
    assert directives(text, a=3).status == 0


def test_pace_wins_over_rate():
    assert directives("[[sandbox: pace=10 rate=1]]").pace_s == 0.01
    assert directives("[[sandbox: rate=50 chunk=5]]").pace_s == 0.1


def test_stripping_leaves_other_brackets_alone():
    assert strip(" a [[sandbox: pace=1]] b [[1]] ") == "a  b [[1]]"


def test_huge_number_is_refused_not_shortened():
    with pytest.raises(InvalidRequest):
        read_brackets("[[sandbox: tokens=0000000001" + "0" * 5000 + "]]")


@pytest.mark.parametrize("name", READERS)
def test_every_directive_is_documented(name):
    assert f"`{name}" in PAGE or f" {name}=" in PAGE


@pytest.mark.parametrize("model", PERSONAS)
def test_every_model_is_documented(model):
    assert f"| `{NAMES.get(model, model)}` |" in PAGE
