"""Limits of the metadata that a request may store."""

from types import SimpleNamespace
from typing import Any

from gateway.surfaces.web import attribution as attribution_module


def record(user: str | None, metadata: Any, headers: dict[str, str] | None = None, rules: tuple = ()) -> dict[str, str]:
    caller = SimpleNamespace(rules=rules)
    context: Any = SimpleNamespace(metadata=headers or {}, caller=caller, attribute=lambda: None, end_user="")
    attribution_module.add_body(context, user, metadata)
    return context.metadata


def test_pairs_names_values_and_all_together_are_bounded() -> None:
    assert len(record("u", {f"n{n}": "v" for n in range(1000)})) == attribution_module.MAX_PAIRS
    assert record(None, {"n" * 65: "v", "": "v", "short": "v" * 10_000}) == {"short": "v" * 256}
    large = record(None, {f"n{n}": "v" * 256 for n in range(16)})
    assert sum(len(name) + len(value) for name, value in large.items()) <= attribution_module.MAX_CHARACTERS


def test_headers_with_a_meaning_of_their_own_are_no_metadata() -> None:
    options = ("models", "provider", "session", "session-budget", "run-budget")
    headers = {f"x-llmgateway-{name}": "1" for name in (*options, "team", "session-color")}
    assert attribution_module.read_headers({**headers, "x-other": "1"}) == {"team": "1", "session-color": "1"}


def test_headers_win_and_are_never_displaced() -> None:
    headers = {f"h{n}": "v" for n in range(16)}
    assert record("u", {"h0": "other", "more": "x"}, headers) == headers


def test_numbers_become_text_and_other_values_are_left_out() -> None:
    assert record(None, {"tier": 3, "share": 0.5, "none": None, "list": [1]}) == {"tier": "3", "share": "0.5"}


def test_text_that_no_store_takes_is_replaced() -> None:
    assert record("\ud800", None) == {"user": "?"}


def test_nothing_of_a_body_is_kept_under_zero_data_retention() -> None:
    rules = (SimpleNamespace(policy=SimpleNamespace(zero_data_retention=True)),)
    assert record("u", {"team": "search"}, {"team": "header"}, rules) == {"team": "header"}


def name_user(
    user_id: str = "", headers: dict[str, str] | None = None, rules: tuple = ()
) -> tuple[str, dict[str, str]]:
    context: Any = SimpleNamespace(
        metadata={}, caller=SimpleNamespace(rules=rules), attribute=lambda: None, end_user="", session=""
    )
    if headers is not None:
        attribution_module.read_session(context, headers)
    else:
        attribution_module.add_user_id(context, user_id)
    return context.end_user, context.metadata


def test_the_end_user_of_an_application_is_a_tag_at_every_door() -> None:
    assert name_user("ann") == ("ann", {"user": "ann"})
    assert name_user(headers={"x-openwebui-user-id": "ann"}) == ("ann", {"user": "ann"})
    assert record(None, {"user_id": "ann"}) == {"user": "ann", "user_id": "ann"}


def test_the_installation_of_an_agent_is_no_tag_and_zero_data_retention_keeps_no_end_user() -> None:
    session = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    assert name_user(f"user_abc_account__session_{session}")[1] == {}
    rules = (SimpleNamespace(policy=SimpleNamespace(zero_data_retention=True)),)
    assert name_user("ann", rules=rules)[1] == {}
