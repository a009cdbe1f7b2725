"""The next target after a failure, and the error of a request that no provider answered."""

import pytest
from support.billing import attempt_at, request_of, target

from gateway.billing.context import Outcome
from gateway.catalogue.entries import Mapping, Provider
from gateway.engine.attempts import TOO_LONG, Walk, _final_error
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.protocol import Credential, Target

BUSY = UpstreamOverloaded("busy", retry_after=7)
LIMITED = UpstreamRateLimited("slow down", retry_after=3)


def final(*errors: GatewayError) -> GatewayError:
    attempts = [attempt_at(target(), number, error=error) for number, error in enumerate(errors)]
    return _final_error(Outcome(request_of(), attempts=attempts), errors[-1], [])


@pytest.mark.parametrize(
    ("errors", "kind", "status", "retry_after"),
    [
        ((LIMITED, LIMITED), UpstreamRateLimited, 429, 3),
        ((BUSY, BUSY), UpstreamOverloaded, 529, 7),
        ((UpstreamTimeout("late"), UpstreamTimeout("late")), UpstreamTimeout, 504, None),
        ((LIMITED, BUSY), UpstreamFailed, 502, None),
        ((UpstreamRefused("no", upstream_status=401),) * 2, UpstreamFailed, 502, None),
    ],
)
def test_clients_get_the_error_that_all_providers_share(
    errors: tuple[GatewayError, ...], kind: type[GatewayError], status: int, retry_after: float | None
) -> None:
    error = final(*errors)
    assert type(error) is kind and (error.status, error.retry_after) == (status, retry_after)


def placed(model: str, context: int, provider: str = "p") -> tuple[Target, ...]:
    mapping = Mapping(provider, model, model, context_length=context)
    return (Target(Provider(provider, provider, "openai"), mapping, Credential(""), ""),)


@pytest.mark.parametrize(
    ("groups", "then"),
    [
        ((placed("a", 100), placed("b", 1000)), "b"),
        ((placed("a", 100), placed("b", 100)), "b"),
        ((placed("a", 100), placed("b", 0)), "b"),
        ((placed("a", 0), placed("b", 100)), "b"),
        ((placed("a", 100), placed("b", 50), placed("c", 1000)), "c"),
        ((placed("a", 100), placed("b", 50)), None),
        ((placed("a", 100), placed("a", 100, "q")), None),
        ((placed("a", 100), placed("a", 200, "q")), "a"),
    ],
)
def test_a_prompt_that_is_too_long_goes_to_the_next_model_that_may_hold_it(
    groups: tuple[tuple[Target, ...], ...], then: str | None
) -> None:
    error = InvalidRequest("The prompt is too long.", code=TOO_LONG)
    following = Walk(groups, 2).after(error)
    assert following is None if then is None else following is not None and following.mapping.model == then
    assert following is None or following is not groups[0][0]


# Two providers at once (engine/hedging.py).

KEY_FAULT, FAULT = UpstreamRateLimited("slow down"), UpstreamFailed("broken")


def keys(provider: str, count: int) -> tuple[Target, ...]:
    return tuple(
        Target(
            Provider(provider, provider, "openai"), Mapping(provider, "m", "m"), Credential("", "platform", f"{n}"), ""
        )
        for n in range(1, count + 1)
    )


def walk_of(*groups: tuple[Target, ...]) -> Walk:
    walk = Walk(groups, maximum=len(groups), refusals=[])
    assert walk.beside() is groups[1][0]
    walk.take_beside()
    return walk


def rest_of(walk: Walk, error: GatewayError) -> list[str]:
    """Return the keys that follow `error` of the last call and failures of each further one."""
    tried = []
    while (target := walk.after(error)) is not None:
        tried.append(f"{target.provider.id}{target.credential.ident}")
        error = FAULT
    return tried


@pytest.mark.parametrize(
    ("first", "second", "tried"),
    [
        (FAULT, KEY_FAULT, ["b2", "c1"]),
        (FAULT, FAULT, ["c1"]),
        (KEY_FAULT, FAULT, ["a2"]),
        (KEY_FAULT, KEY_FAULT, ["b2", "a2"]),
    ],
)
def test_keys_follow_the_provider_whose_key_was_at_fault(
    first: GatewayError, second: GatewayError, tried: list[str]
) -> None:
    """Each of two parallel calls counts as one of three mappings."""
    walk = walk_of(keys("a", 2), keys("b", 2), keys("c", 1))
    walk.lose_current(first)
    walk.go_aside()
    assert rest_of(walk, second) == tried


@pytest.mark.parametrize(
    ("second", "first", "tried"),
    [
        (KEY_FAULT, FAULT, ["b2"]),
        (FAULT, FAULT, ["c1"]),
        (FAULT, KEY_FAULT, ["a2", "c1"]),
    ],
)
def test_a_second_call_that_fails_first_leaves_its_keys_or_none(
    second: GatewayError, first: GatewayError, tried: list[str]
) -> None:
    walk = walk_of(keys("a", 2), keys("b", 2), keys("c", 1))
    walk.lose_aside(second)
    assert rest_of(walk, first) == tried


def test_an_error_of_the_request_ends_both() -> None:
    walk = walk_of(keys("a", 2), keys("b", 2))
    walk.lose_current(KEY_FAULT)
    walk.go_aside()
    assert walk.after(InvalidRequest("bad")) is None
