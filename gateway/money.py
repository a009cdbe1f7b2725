"""Exact money: integer nano-dollars (n$, 10⁻⁹ USD). Decimals appear only at the interfaces.

A token can cost less than one nano-dollar, so prices are integers per million units. Each cost component is rounded
once, half up; totals are sums of components, so parts always add up.
"""

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

NANO = 1_000_000_000
MILLION = 1_000_000
NANO_DECIMALS, CENT_DECIMALS = 9, 2
MAX_DIGITS = 80  # of a decimal number that is read from text
SIGNIFICANT = 3  # digits of an amount below a dollar that people see
# Upper bounds far above any real amount, so that sums of stored values fit 64 bits: for an amount set by an operator,
# for the price of one unit, for the cost of one call and for the total of one budget.
MAX_AMOUNT_NUSD = 1_000_000_000 * NANO
MAX_PRICE_USD = 1_000
MAX_CALL_NUSD = 10_000 * NANO
MAX_SETTLED_NUSD = 1_000_000_000 * NANO


def read_decimal(text: str) -> Decimal:
    """Read a decimal number from untrusted text. ValueError if it is not finite, has digits of other scripts or
    underscores, or if writing it out in full would take more than MAX_DIGITS digits before or after the point:
    "1e-300000000" is eleven characters."""
    text = text.strip()
    is_plain = len(text) <= MAX_DIGITS and text.isascii() and "_" not in text
    try:
        number = Decimal(text if is_plain else "-")
    except InvalidOperation:
        raise ValueError(f"not a decimal number: {text[:MAX_DIGITS]!r}") from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > MAX_DIGITS:
        raise ValueError(f"not a decimal number: {text!r}")
    return number


def parse_usd(text: str | int | Decimal) -> int:
    """Parse a decimal dollar amount ("12.34") into nano-dollars.

    Raise ValueError if it is not finite, finer than 1 n$ or too large.
    """
    try:
        amount = read_decimal(str(text))
    except ValueError:
        raise ValueError(f"not a decimal amount: {str(text)[:MAX_DIGITS]!r}") from None
    if abs(amount) > MAX_AMOUNT_NUSD // NANO:
        raise ValueError(f"more than {MAX_AMOUNT_NUSD // NANO} dollars")
    scaled = amount * NANO
    if scaled != scaled.to_integral_value():
        raise ValueError(f"finer than a nano-dollar: {text!r}")
    return int(scaled)


@lru_cache(maxsize=256)
def format_usd(nano: int) -> str:
    """Format nano-dollars as the shortest exact decimal string, e.g. 12340000000 → "12.34"."""
    if 0 < nano < NANO:  # nearly all costs are in this range
        return "0." + str(nano).zfill(9).rstrip("0")
    sign = "-" if nano < 0 else ""
    whole, rest = divmod(abs(nano), NANO)
    if not rest:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{rest:09d}".rstrip("0")


def round_usd(nano: int, least_decimals: int = CENT_DECIMALS) -> str:
    """Format nano-dollars for people, rounded half up: cents ("$1,234.50"), and below a dollar as many decimals as
    three significant digits need ("$0.0123"), so that small amounts differ, but at least `least_decimals`."""
    amount = abs(nano)
    decimals = NANO_DECIMALS - len(str(amount)) + SIGNIFICANT  # negative for amounts above a dollar
    decimals = min(max(decimals, least_decimals), NANO_DECIMALS)
    unit = 10 ** (NANO_DECIMALS - decimals)
    whole, rest = divmod((amount + unit // 2) // unit * unit, NANO)
    digits = f"{rest:09d}"
    shown = digits[:least_decimals] + digits[least_decimals:].rstrip("0")
    sign = "-" if nano < 0 else ""
    return f"{sign}${whole:,}.{shown}"


def usd_number(nano: int) -> float:
    """Convert nano-dollars to a JSON number of dollars: the nearest double (for responses only)."""
    return nano / NANO


def price_per_million(text: str) -> int:
    """Parse a price in USD per unit ("0.00000015", "0.15e-6") into integer nano-dollars per million units.

    Published prices have at most 15 decimals; a finer price is rounded half up here, once, when it is loaded. Raise
    ValueError if the text is not a price.
    """
    try:
        price = read_decimal(text)
    except ValueError:
        raise ValueError(f"not a price: {text[:MAX_DIGITS]!r}") from None
    if price < 0:
        raise ValueError(f"not a price: {text!r}")
    if price > MAX_PRICE_USD:
        raise ValueError(f"a price above {MAX_PRICE_USD} dollars a unit")
    return int((price * NANO * MILLION).to_integral_value(ROUND_HALF_UP))


def format_price(per_million: int) -> str:
    """Format nano-dollars per million units as USD per unit, without an exponent ("0.00000015")."""
    if not per_million:
        return "0"
    text = f"{Decimal(per_million).scaleb(-15):f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def parse_fraction(text: str | int | float | Decimal) -> int:
    """Parse a decimal fraction between 0 and 1, both excluded ("0.2"), into parts per million.

    Raise ValueError if it is not such a fraction or is finer than a millionth.
    """
    try:
        parts = read_decimal(str(text)) * MILLION
    except ValueError:
        raise ValueError(f"not a decimal fraction: {str(text)[:MAX_DIGITS]!r}") from None
    if not 0 < parts < MILLION:
        raise ValueError(f"not between 0 and 1: {text!r}")
    if parts != parts.to_integral_value():
        raise ValueError(f"finer than a millionth: {text!r}")
    return int(parts)


def format_fraction(ppm: int) -> str:
    """Format parts per million as the shortest decimal fraction, e.g. 200000 → "0.2"."""
    return format_usd(ppm * (NANO // MILLION))


def cost(units: int, per_million: int) -> int:
    """Multiply units by a price; the result is rounded half up to whole nano-dollars (both are non-negative)."""
    return (units * per_million + MILLION // 2) // MILLION
