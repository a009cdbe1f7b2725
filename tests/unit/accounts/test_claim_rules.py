"""Conditions on claims: names and pointers, lists, patterns, and what is refused."""

from typing import Any

import pytest

from gateway.accounts.workload_identities import MAX_CLAIMS, matches, read_claims
from gateway.errors import InvalidRequest

CLAIMS = {
    "sub": "repo:acme/app:ref:refs/heads/main",
    "groups": ["developers", "llm-users", 7],
    "run_attempt": 2,
    "protected": True,
    "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "web"}},
    "https://acme.example/team": "search",
    "nothing": None,
}


@pytest.mark.parametrize(
    ("required", "fits"),
    [
        ({"sub": "repo:acme/app:ref:refs/heads/main"}, True),
        ({"sub": "repo:acme/app"}, False),
        ({"sub": "repo:acme/*"}, True),
        ({"sub": "*:refs/heads/main"}, True),
        ({"sub": "repo:*:ref:*/main"}, True),
        ({"sub": "repo:*:ref:*/next"}, False),
        ({"sub": "REPO:acme/*"}, False),
        ({"sub": ["other", "repo:acme/*"]}, True),
        ({"groups": "llm-users"}, True),
        ({"groups": "llm"}, False),
        ({"groups": "7"}, True),
        ({"run_attempt": "2"}, True),
        ({"protected": "true"}, True),
        ({"/kubernetes.io/namespace": "shop"}, True),
        ({"/kubernetes.io/serviceaccount/name": "web"}, True),
        ({"/kubernetes.io/serviceaccount": "web"}, False),
        ({"/kubernetes.io/pod/name": "*b"}, False),
        ({"https://acme.example/team": "search"}, True),
        ({"/https:~1~1acme.example~1team": "search"}, True),
        ({"nothing": "*e"}, False),
        ({"missing": "x"}, False),
        ({"sub": "repo:acme/*", "groups": "admins"}, False),
    ],
)
def test_every_condition_must_be_met(required: dict[str, Any], fits: bool) -> None:
    assert matches(read_claims(required), CLAIMS) is fits


def test_the_parts_of_a_pattern_do_not_overlap() -> None:
    assert not matches({"a": ["ab*ba"]}, {"a": "aba"})
    assert matches({"a": ["ab*ba"]}, {"a": "abba"})


def test_patterns_with_many_stars_are_compared_quickly() -> None:
    assert not matches({"a": ["*a" * 200 + "b"]}, {"a": "a" * 10_000})


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"sub": "*"},
        {"sub": ["**"], "iss": "*"},
        {"sub": []},
        {"sub": ""},
        {"sub": 7},
        {"sub": {"a": "b"}},
        {"": "x"},
        {"sub": "x" * 600},
        {f"c{number}": "x" for number in range(MAX_CLAIMS + 1)},
    ],
)
def test_conditions_that_everyone_meets_or_that_are_malformed_are_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        read_claims(condition)
