"""Strings that are put together piece by piece are the strings that the interpreter joins."""

import pytest

from gateway.runtime import long_strings


@pytest.mark.parametrize("signs", ["a", "é", "€", "\U0001f600", "aé", "a€", "é\U0001f600", "€\U0001f600"])
def test_joined_strings_are_those_of_join(monkeypatch: pytest.MonkeyPatch, signs: str) -> None:
    monkeypatch.setattr(long_strings, "JOINED", 0)
    pieces = [sign * 1000 for sign in signs] * 3
    joined = long_strings.join_pieces(pieces)
    assert joined == "".join(pieces)
    assert hash(joined) == hash("".join(pieces))
    assert joined.__sizeof__() == "".join(pieces).__sizeof__()
