"""Plain text for operators, and the reading of what they type."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from gateway.clock import SECOND_US, from_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.money import parse_usd

JSON = "json"  # in the `meta` of a command's context


def _choose_json(ctx: click.Context, _parameter: click.Parameter, chosen: bool) -> None:
    ctx.meta[JSON] = chosen


AS_JSON = click.option(
    "--json",
    JSON,
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_choose_json,
    help="For programs: an object, or a list of objects.",
)

NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")
MISSING = ("-", "none", "never")  # what stands where there is no number
DAY_S = 86_400
UNITS_S = {"h": 3600, "d": DAY_S, "w": 7 * DAY_S, "mo": 30 * DAY_S}


def is_json() -> bool:
    """Whether the command that runs was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(JSON))


def print_json(value: object) -> None:
    """JSON for a program: indented, money as decimal text, times as ISO 8601."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def say(line: str) -> None:
    """A line beside the result: where that is JSON, on standard error."""
    click.echo(printable(line), err=is_json())


def printable(text: str, keep: str = "\n") -> str:
    """The text with what steers a terminal written out: names come from anybody who may make a key."""
    return "".join(sign if sign.isprintable() or sign in keep else repr(sign)[1:-1] for sign in text)


def print_result(line: str, **facts: object) -> None:
    """What a command did or found: `line` for people, `facts` as an object for programs."""
    if is_json():
        print_json({name: _plain(value) for name, value in facts.items()})
    else:
        click.echo(printable(line))


def print_findings(problems: Sequence[str], fine: str, **facts: object) -> None:
    """What is wrong, a line each, or the line `fine`; for a program an object with `problems` and `facts`."""
    if is_json():
        print_json({"problems": list(problems), **facts})
        return
    for problem in problems or (fine,):
        click.echo(printable(problem))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Aligned columns with a header line, numbers at the right of theirs, or the line `empty` when there are no rows;
    for a program a list of objects whose names are those of the header in small letters, with null for what is
    empty."""
    if is_json():
        names = [name.lower().replace(" ", "_") for name in header]
        print_json([{n: _plain(value) for n, value in zip(names, row, strict=True)} for row in rows])
        return
    lines = [[_cell(value) for value in row] for row in rows]
    if not lines:
        click.echo(empty)
        return
    columns = [_aligned(column) for column in zip(header, *lines, strict=True)]
    for line in zip(*columns, strict=True):
        click.echo("  ".join(line).rstrip())


def _aligned(column: Sequence[str]) -> list[str]:
    """The cells of a column and its header, all as wide as the widest; numbers stand at the right."""
    width = max(map(len, column))
    cells = [text for text in column[1:] if text not in MISSING]
    numbers = bool(cells) and all(NUMBER.fullmatch(text) for text in cells)
    return [text.rjust(width) if numbers else text.ljust(width) for text in column]


class Never(str):
    """The word for a time that never comes, which is null for programs."""

    __slots__ = ()


NEVER = Never("never")


def show_time(at_us: int | None) -> str:
    """ISO 8601 in UTC, or "never" (NEVER)."""
    if at_us is None:
        return NEVER
    return to_iso(at_us)


def read_expiry(text: str, now_us: int) -> int | None:
    """A span from now ("12h", "30d", "2w", "1mo" of 30 days), an ISO date or time (UTC unless it says otherwise), or
    "never" → µs since the epoch or None. InvalidRequest."""
    if text == "never":
        return None
    span = re.fullmatch(r"(\d{1,5})(h|d|w|mo)", text)
    if span:
        return now_us + int(span[1]) * UNITS_S[span[2]] * SECOND_US
    moment = _moment(text)
    if moment is None:
        raise InvalidRequest(f"Not a time: {text!r}; give 30d, 12h, 2w, 1mo, an ISO date or never.")
    return moment


def read_time(text: str) -> int:
    """An ISO date or time, UTC unless it says otherwise, in µs since the epoch. InvalidRequest."""
    moment = _moment(text)
    if moment is None:
        raise InvalidRequest(f"Not a date or time: {text!r}; write it like 2026-01-31 or 2026-01-31T14:00.")
    return moment


def read_usd(text: str) -> int:
    """Dollars ("12.34") as nano-dollars. InvalidRequest."""
    try:
        return parse_usd(text)
    except ValueError as error:
        raise InvalidRequest(f"Not an amount of dollars: {error}.") from None


def read_object(text: str) -> dict[str, Any]:
    """A JSON object. InvalidRequest."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f'Not JSON: {error}; write it in quotes, like \'{{"models": ["gpt-4o"]}}\'.') from None
    if not isinstance(value, dict):
        raise InvalidRequest("A JSON object is needed, in braces.")
    return value


def _moment(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return printable(str(value), keep="")


def _plain(value: object) -> object:
    if value is None or value == "" or isinstance(value, Never):
        return None
    if isinstance(value, bool | int | float | str | list):
        return value
    return str(value)
