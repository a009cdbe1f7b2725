"""Levels of reasoning effort, from the least to the most."""

from typing import get_args

from gateway.neutral.parameters import Effort

ALL_EFFORTS: tuple[Effort, ...] = get_args(Effort)
RISING = ALL_EFFORTS[1:]  # "none" is no level


def nearest(effort: str, offered: tuple[str, ...]) -> str:
    """Return the highest offered level that is not above `effort`, else the lowest.

    Return `effort` unchanged if it or the offered levels are unknown.
    """
    levels = [level for level in RISING if level in offered]
    if not levels or effort not in RISING:
        return effort
    return next((level for level in reversed(levels) if RISING.index(level) <= RISING.index(effort)), levels[0])
