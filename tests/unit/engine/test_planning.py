from typing import NamedTuple

import pytest

from gateway.catalogue.entries import Mapping
from gateway.engine.attempts import Walk
from gateway.engine.planning import rotate
from gateway.errors import ConnectFailed, UpstreamFailed, UpstreamRateLimited, UpstreamRefused, UpstreamTimeout
from gateway.providers.protocol import Credential


class Place(NamedTuple):
    """The part of a target that a walk uses."""

    name: str
    credential: Credential
    mapping: Mapping


def groups(*names, model="m", source="platform", elsewhere=False):
    """One group for each text of comma-separated names."""
    credential = Credential("secret", source, elsewhere=elsewhere)
    return tuple(tuple(Place(one, credential, Mapping("p", model, model)) for one in text.split(",")) for text in names)


def names(*targets):
    return [target and target.name for target in targets]


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


@pytest.mark.parametrize("error", [UpstreamRefused("no", upstream_status=401), UpstreamRateLimited("slow down")])
def test_a_bad_or_busy_key_gives_way_to_the_next_and_costs_no_change_of_provider(error):
    walk = Walk(groups("a1,a2", "b1"), 2)
    assert names(walk.first(), walk.after(error), walk.after(error)) == ["a1", "a2", "b1"]
    assert walk.after(error) is None


def test_a_key_that_is_skipped_counts_neither_as_a_try_nor_as_a_rotation():
    walk = Walk(groups("a1,a2,a3,a4,a5,a6", "b1"), 1)
    assert names(walk.skip(), walk.skip()) == ["a2", "a3"]
    refused = UpstreamRefused("no", upstream_status=401)
    assert names(*[walk.after(refused) for _ in range(3)]) == ["a4", "a5", "a6"]
    assert walk.may_skip and walk.skip().name == "b1"
    assert not walk.may_skip and walk.skip() is None


def test_an_attempt_is_the_last_when_nothing_or_no_try_is_left():
    walk = Walk(groups("a", "b", "c"), 2)
    assert not walk.is_last
    walk.after(UpstreamFailed("broken"))
    assert walk.is_last and walk.after(UpstreamFailed("broken")) is None
    assert Walk(groups("a"), 3).is_last


def test_the_providers_of_the_next_model_have_tries_of_their_own():
    walk = Walk(groups("a", "b", "c") + groups("d", "e", model="n"), 2)
    broken = UpstreamFailed("broken")
    assert names(walk.first(), *[walk.after(broken) for _ in range(4)]) == ["a", "b", "d", "e", None]


def test_a_failing_own_key_goes_on_to_the_platforms_however_many_own_ones_there_are():
    own, (platform,) = groups("o1,o2,o3,o4,o5", source="byok"), groups("p1")
    walk = Walk(((*own[0], *platform),), 1)
    refused = UpstreamRefused("no", upstream_status=401)
    assert names(*[walk.after(refused) for _ in range(4)]) == ["o2", "o3", "o4", "p1"]


def test_an_own_address_that_fails_goes_on_to_the_platforms_key_at_the_usual_one():
    own, (platform,) = groups("o1", source="byok", elsewhere=True), groups("p1")
    walk = Walk(((*own[0], *platform),), 1)
    assert names(walk.after(ConnectFailed("refused"))) == ["p1"]
    usual = Walk(((*groups("o1", source="byok")[0], *platform),), 1)
    assert usual.after(UpstreamFailed("broken", upstream_status=500)) is None


def test_abandoned_targets_are_tried_again_after_the_others():
    walk = Walk(groups("a1,a2", "b"), 3)
    walk.move_to_end()
    late = UpstreamTimeout("late")
    assert names(*[walk.after(late) for _ in range(3)]) == ["b", "a1", None]
