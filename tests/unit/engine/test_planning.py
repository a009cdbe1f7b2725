import pytest

from gateway.engine.attempts import Walk
from gateway.engine.planning import rotate
from gateway.errors import UpstreamFailed, UpstreamRefused
from gateway.providers.protocol import Credential


def keys(*idents, source="platform"):
    return tuple(Credential("secret", source, ident) for ident in idents)


@pytest.mark.parametrize(("turn", "expected"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc"), (7, "bca")])
def test_each_turn_begins_with_the_next_key(turn, expected):
    assert "".join(key.ident for key in rotate(keys(*"abc"), turn)) == expected


def test_an_organizations_own_keys_stay_before_the_platforms():
    order = rotate(keys("x", "y", source="byok") + keys("a", "b", "c"), 1)
    assert [key.ident for key in order] == ["y", "x", "b", "c", "a"]


def test_no_keys_are_no_fault():
    assert rotate((), 3) == ()


def test_a_bad_key_gives_way_to_the_next_and_costs_no_change_of_provider():
    walk = Walk((("a1", "a2"), ("b1",)), 2)
    refused = UpstreamRefused("no", upstream_status=401)
    assert [walk.first(), walk.after(refused), walk.after(refused)] == ["a1", "a2", "b1"]
    assert walk.after(refused) is None


def test_a_key_that_is_skipped_counts_neither_as_a_try_nor_as_a_rotation():
    walk = Walk((("a1", "a2", "a3", "a4", "a5", "a6"), ("b1",)), 1)
    assert [walk.skip(), walk.skip()] == ["a2", "a3"]
    refused = UpstreamRefused("no", upstream_status=401)
    assert [walk.after(refused) for _ in range(3)] == ["a4", "a5", "a6"]
    assert walk.may_skip and walk.skip() == "b1"
    assert not walk.may_skip and walk.skip() is None


def test_an_attempt_is_the_last_when_nothing_or_no_try_is_left():
    walk = Walk((("a",), ("b",), ("c",)), 2)
    assert not walk.is_last
    walk.after(UpstreamFailed("broken"))
    assert walk.is_last and walk.after(UpstreamFailed("broken")) is None
    assert Walk((("a",),), 3).is_last
