"""Work in small steps: a background job asks before each further step whether to continue."""

from collections.abc import Callable

GoOn = Callable[[], bool]


def always() -> bool:
    """Return True: the default of jobs that run to their end."""
    return True
