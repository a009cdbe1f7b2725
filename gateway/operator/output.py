"""Output of the operator's commands, and parsing of their arguments."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from gateway.clock import SECOND_US, from_datetime, to_iso
from gateway.errors import InvalidRequest, NotFound

JSON = "json"  # key in the `meta` of the command's context


class IntegerOption(click.IntRange):
    """A whole number in decimal digits; int() also reads 1_000 and digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (not value.isascii() or "_" in value):
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


def _choose_json(ctx: click.Context, _parameter: click.Parameter, chosen: bool) -> None:
    ctx.meta[JSON] = chosen


AS_JSON = click.option(
    "--json",
    JSON,
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_choose_json,
    help="Print JSON: an object, or a list of objects.",
)

NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")
MISSING = ("-", "none", "never")  # cells without a number in a column of numbers
DAY_S = 86_400
UNITS_S = {"h": 3600, "d": DAY_S, "w": 7 * DAY_S, "mo": 30 * DAY_S}


def is_json() -> bool:
    """Return whether the running command has the option --json."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(JSON))


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_note(line: str) -> None:
    """Print a line in addition to the result; with --json on standard error."""
    click.echo(printable(line), err=is_json())


def printable(text: str, keep: str = "\n") -> str:
    """Escape characters that control a terminal: names come from everyone who can create a key."""

    def escape(character: str) -> str:
        if character.isprintable() or character in keep:
            return character
        return repr(character)[1:-1]

    return "".join(map(escape, text))


def print_result(line: str, **fields: object) -> None:
    """Print the result of a command: `line`, or with --json the object `fields`."""
    if is_json():
        print_json({name: _plain(value) for name, value in fields.items()})
    else:
        click.echo(printable(line))


def print_state(ident: str, state: str, name: str = "state") -> None:
    """Print that something is in a state now; with --json an object with `id` and the member `name`."""
    print_result(f"{ident} is {state}.", **{"id": ident, name: state})


def print_findings(problems: Sequence[str], fine: str) -> None:
    """Print a line for each problem, or the line `fine`; with --json an object with `problems`."""
    if is_json():
        print_json({"problems": list(problems)})
        return
    for problem in problems or (fine,):
        click.echo(printable(problem))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print a table with numbers aligned right, or the line `empty` if there are no rows.

    With --json print a list of objects: their names are the lower-case header, and empty cells are null.
    """
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
    """Pad the header and cells of a column to the same width; align numbers right."""
    width = max(map(len, column))
    cells = [text for text in column[1:] if text not in MISSING]
    numbers = bool(cells) and all(NUMBER.fullmatch(text) for text in cells)
    if numbers:
        return [text.rjust(width) for text in column]
    return [text.ljust(width) for text in column]


class MissingTime(str):
    """Text for a missing time; null in JSON."""

    __slots__ = ()


NEVER = MissingTime("never")


def show_time(at_us: int | None) -> str:
    """Return ISO 8601 in UTC, or "never" for None."""
    if at_us is None:
        return NEVER
    return to_iso(at_us)


def only_one(kind: str, choices: Sequence[tuple[str, str]]) -> str:
    """Return the id of the only organization or project; `choices` are ids and names. Raises NotFound, or
    InvalidRequest if there are several."""
    if not choices:
        raise NotFound(f"There is no active {kind}.")
    if len(choices) > 1:
        names = ", ".join(f"{ident} ({name})" for ident, name in choices)
        raise InvalidRequest(f"There are several {kind}s. Choose one with --{kind}: {names}.")
    return choices[0][0]


def read_expiry(text: str, now_us: int) -> int | None:
    """Parse an expiry into µs since the epoch, or None for "never".

    Accepts a time span from now ("12h", "30d", "2w", "1mo" for 30 days) or an ISO date or time (default: UTC). Raises
    InvalidRequest.
    """
    if text == "never":
        return None
    span = re.fullmatch(r"(\d{1,5})(h|d|w|mo)", text, re.ASCII)
    if span:
        return now_us + int(span[1]) * UNITS_S[span[2]] * SECOND_US
    moment = _moment(text)
    if moment is None:
        raise InvalidRequest(f"{text!r} is not an expiry. Use 30d, 12h, 2w, 1mo, an ISO date or never.")
    return moment


def read_time(text: str) -> int:
    """Parse an ISO date or time (default: UTC) into µs since the epoch. Raises InvalidRequest."""
    moment = _moment(text)
    if moment is None:
        raise InvalidRequest(f"{text!r} is not a date or time. Use a format like 2026-01-31 or 2026-01-31T14:00.")
    return moment


def read_json(text: str) -> Any:
    """Parse JSON. Raises InvalidRequest."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(
            f'The value is not JSON: {error}. Write it in quotes, like \'{{"models": ["gpt-4o"]}}\'.'
        ) from None


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises InvalidRequest."""
    value = read_json(text)
    if not isinstance(value, dict):
        raise InvalidRequest("The value must be a JSON object in braces.")
    return value


def _moment(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return from_datetime(moment)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return printable(str(value), keep="")


def _plain(value: object) -> object:
    if value is None or value == "" or isinstance(value, MissingTime):
        return None
    if isinstance(value, bool | int | float | str | list):
        return value
    return str(value)
