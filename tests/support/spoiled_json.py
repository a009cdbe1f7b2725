"""JSON with values of wrong types at random places, for readers that never fail."""

import random
from collections.abc import Sequence
from typing import Any

SHARE = 0.1  # of all values


def spoil(value: Any, dice: random.Random, others: Sequence[Any]) -> Any:
    """Return a value of JSON in which some values are replaced by one of the others."""
    if dice.random() < SHARE:
        return dice.choice(others)
    if isinstance(value, dict):
        return {name: spoil(one, dice, others) for name, one in value.items()}
    return [spoil(one, dice, others) for one in value] if isinstance(value, list) else value
