"""In which order the processes of pytest take the tests, so that none is left waiting at the end while others idle."""

from collections.abc import Sequence

import pytest
from support.late_imports import LATE, first_needed

RUNNERS = {"GatewayProcess", "subprocess"}


def waits(item: pytest.Item) -> bool:
    """Whether its module runs gateways or commands as processes: such tests wait far more than they work."""
    return not RUNNERS.isdisjoint(vars(getattr(item, "module", None) or object))


def long_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests that wait come first in half of the workers' shares, whole modules each; the others work beside them,
    and what is left is of the short ones. A share is as many tests as the next, and who is done takes of another's end.
    Tests of libraries that are imported late are together, at the start of a share without others that wait: whoever
    takes none of them need not import these.
    """
    heads = max(1, workers // 2)
    piles: list[list[pytest.Item]] = [[] for _ in range(heads)]
    short = []
    modules: dict[str, int] = {}
    files = {item.path: getattr(item, "module", None) for item in items}
    needed = {path: first_needed(module) if module is not None else len(LATE) for path, module in files.items()}
    for item in items:
        if waits(item) and needed[item.path] == len(LATE):
            piles[modules.setdefault(item.path.name, len(modules)) % heads].append(item)
        else:
            short.append(item)
    short.sort(key=lambda item: (needed[item.path], not waits(item)))
    share = len(items) // workers
    ordered: list[pytest.Item] = []
    for number, pile in enumerate(piles):
        rest = max(0, share - len(pile)) if number < workers - 1 else len(short)
        kept = max(0, len(short) - rest)
        ordered += [*pile, *short[kept:]]
        short = short[:kept]
    return ordered + short
