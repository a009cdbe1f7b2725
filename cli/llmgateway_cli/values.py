"""Values as people type and read them: limits, periods, expiry, dates, amounts and numbers."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from llmgateway_cli.errors import CliError

NO_VALUE = "—"
AMOUNT = re.compile(r"\d+(\.\d+)?|\.\d+", re.ASCII)
DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)", re.IGNORECASE | re.ASCII)
ABBREVIATIONS = {"h": "hour", "hr": "hour", "d": "day", "w": "week", "mo": "month"}
MAX_COUNT = {"hour": 8760, "day": 365, "week": 52, "month": 12}
# The length of a unit in an expiry; the service calculates periods itself.
LENGTHS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
}
DIGITS = 3  # significant ones of an amount below a dollar
CENTS = 2
REMOVED = ("none", "never")  # typed in the place of a limit or an expiry


class Period(NamedTuple):
    """The length of a rolling period, such as 2 weeks."""

    value: int
    unit: str


DEFAULT_PERIOD = Period(1, "month")


def read_limit(text: str, option: str) -> str | None:
    """Return a limit in USD as it was typed, which is how it is sent; None for `none`, which removes the limit. Raises
    CliError unless it is a number."""
    typed = text.strip()
    if typed.lower() in REMOVED:
        return None
    if not AMOUNT.fullmatch(typed):
        raise CliError(f"{option} {text!r} is not an amount in USD.", "Give a number such as 100 or 49.99, or none.")
    return typed


def read_period(text: str) -> Period:
    """Return a period such as 12h, 1d, 2w or 1mo. Raises CliError if it is no period that the service accepts."""
    period = _read_duration(text)
    if period is None:
        raise CliError(f"--period {text!r} is not a period.", "Give one such as 12h, 1d, 2w or 1mo.")
    longest = MAX_COUNT[period.unit]
    if not 1 <= period.value <= longest:
        raise CliError(f"--period {text!r} is out of range.", f"Give 1 to {longest} {period.unit}s.")
    return period


def _read_duration(text: str) -> Period | None:
    matched = DURATION.fullmatch(text.strip())
    if matched is None:
        return None
    word = matched[2].lower()
    unit = ABBREVIATIONS.get(word, word.removesuffix("s"))
    if unit not in MAX_COUNT:
        return None
    return Period(int(matched[1]), unit)


def read_expiry(text: str, now: datetime) -> str | None:
    """Return an expiry as an ISO date in UTC with milliseconds, from a duration such as 30d or an ISO date; None for
    `never`."""
    if text.strip().lower() in REMOVED:
        return None
    duration = _read_duration(text)
    try:
        if duration is not None:
            moment = now + duration.value * LENGTHS[duration.unit]
        else:
            moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise CliError(
            f"--expires {text!r} is neither a duration nor a date.",
            "Give 30d, 12h, 2027-01-01 or the like, or never.",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment <= now:
        raise CliError(f"--expires {text!r} is not in the future.", "Give a later date, or a duration such as 30d.")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_date(text: str, option: str) -> date:
    """Return a date of the form YYYY-MM-DD."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        day = None
    if day is None or len(text.strip()) != len("YYYY-MM-DD"):
        raise CliError(f"{option} {text!r} is not a date.", "Give it as YYYY-MM-DD.")
    return day


def show_usd(amount: Any) -> str:
    """Return an amount, a number or a decimal string, with cents; below a dollar with three significant digits, so that
    small amounts differ: $1.50, $0.50, $0.0123, $0.00000245."""
    if amount is None or amount == "":
        return NO_VALUE
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return str(amount)
    if not value.is_finite():
        return str(amount)
    sign = ""
    if value < 0:
        sign = "-"
    return f"{sign}${amount_text(abs(value))}"


def amount_text(size: Decimal) -> str:
    """Return an amount that is not negative, without its currency."""
    if not 0 < size < 1:
        return f"{size:,.{CENTS}f}"
    # The exponent of the first digit: -1 for 0.1, -2 for 0.01.
    decimals = DIGITS - 1 - size.adjusted()
    whole, _, fraction = f"{size:.{decimals}f}".partition(".")
    return f"{whole}.{fraction.rstrip('0'):0<{CENTS}}"


def show_time(moment: Any) -> str:
    """Return an ISO date as `YYYY-MM-DD HH:MM` in UTC."""
    if not moment:
        return NO_VALUE
    try:
        parsed = datetime.fromisoformat(str(moment))
    except ValueError:
        return str(moment)
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(UTC)
    return parsed.strftime("%Y-%m-%d %H:%M")


def show_second(moment: Any) -> str:
    """Return a time in seconds since 1970 as `show_time` does."""
    if not isinstance(moment, int):
        return NO_VALUE
    return show_time(datetime.fromtimestamp(moment, UTC).isoformat())


def show_many(count: int, noun: str) -> str:
    """Return a count with its noun: "1 line", "2,000 lines"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_number(number: Any) -> str:
    """Return a number with commas between thousands."""
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, int | float):
        return f"{number:,}"
    return NO_VALUE


def show_period(value: Any, unit: Any) -> str:
    """Return a period such as `day` or `2 weeks`."""
    if value == 1:
        return str(unit)
    return f"{value} {unit}s"
