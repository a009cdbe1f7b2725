"""Levels of reasoning effort, from the least to the most."""

RISING = ("minimal", "low", "medium", "high", "xhigh", "max")


def nearest(effort: str, offered: tuple[str, ...]) -> str:
    """The highest level of `offered` that is not above `effort`, else the lowest; `effort` itself where none is
    known."""
    levels = [level for level in RISING if level in offered]
    if not levels or effort not in RISING:
        return effort
    return next((level for level in reversed(levels) if RISING.index(level) <= RISING.index(effort)), levels[0])
