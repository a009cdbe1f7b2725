"""Work in small steps: a background job asks before each further step whether to continue."""

from collections.abc import Callable

ShouldContinue = Callable[[], bool]


def always() -> bool:
    """Return True: the default of `should_continue` arguments, for jobs that run to their end."""
    return True
