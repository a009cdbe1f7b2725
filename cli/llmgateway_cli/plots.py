"""A chart of values over time, drawn with characters."""

from collections.abc import Iterator, Sequence

from llmgateway_cli.values import show_usd

HEIGHT = 8
BLOCKS = " ▁▂▃▄▅▆▇█"
DEFAULT_WIDTH = 80
MIN_BARS = 10
Point = tuple[str, float]  # a date and an amount in USD


def plot_lines(points: Sequence[Point], width: int | None) -> Iterator[str]:
    """Yield the lines of a bar chart that fits the terminal, at most `width` columns: dates from left to right."""
    if not points:
        return
    columns = width or DEFAULT_WIDTH
    # The label of the highest bar is at most as long as that of the sum.
    maximum = max(columns - len(show_usd(sum(amount for _, amount in points))) - len("   |"), MIN_BARS)
    bars = merged([amount for _, amount in points], maximum)
    highest = max(bars)
    label = len(show_usd(highest))
    room = max(columns - label - len("   |"), MIN_BARS)
    bar_width = max(1, min(4, room // len(bars)))
    for level in range(HEIGHT, 0, -1):
        named = {HEIGHT: show_usd(highest), 1: show_usd(0)}.get(level, "")
        yield f"  {named:>{label}} |" + "".join(_block(amount, highest, level) * bar_width for amount in bars)
    first = points[0][0]
    last = points[-1][0]
    space = max(1, bar_width * len(bars) - len(first) - len(last))
    yield f"  {'':>{label}}  {first}{' ' * space}{last}"[:columns]


def merged(amounts: Sequence[float], maximum: int) -> list[float]:
    """Return at most `maximum` bars; neighbours are summed if there are more amounts."""
    size = -(-len(amounts) // maximum)
    return [sum(amounts[start : start + size]) for start in range(0, len(amounts), size)]


def _block(amount: float, highest: float, level: int) -> str:
    """Return the character of a bar at a level, from 1 at the bottom."""
    if highest <= 0:
        return " "
    filled = amount / highest * HEIGHT - (level - 1)
    return BLOCKS[max(0, min(len(BLOCKS) - 1, round(filled * (len(BLOCKS) - 1))))]
