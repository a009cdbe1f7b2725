"""Checks of detectors: functions that decide whether a match of a pattern is a value, by check digits or entropy."""

import base64
import importlib
import ipaddress
import math
import re
import zlib
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import phonenumbers
else:
    phonenumbers = LazyImport("phonenumbers")

# A check gets the value, the text before it and the text after it (up to CONTEXT characters each).
Check = Callable[[str, str, str], bool]
CONTEXT = 48
LUHN = str.maketrans("", "", " -")
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Prefixes of payment cards (ISO/IEC 7812): first and last prefix, and the lengths of the number.
CARDS = (
    ("4", "4", (13, 16, 19)),
    ("51", "55", (16,)),
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),
    ("37", "37", (15,)),
    ("6011", "6011", (16, 19)),
    ("644", "659", (16, 19)),
    ("622126", "622925", (16, 19)),
    ("3528", "3589", (16, 19)),
    ("300", "305", (14,)),
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("62", "62", (16, 17, 18, 19)),
)
# Lengths of IBANs by country (SWIFT's registry).
IBAN_LENGTHS = {
    **{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28},
    **{"CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18},
    **{"FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22},
    **{"IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20},
    **{"LV": 21, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24},
    **{"PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24},
    **{"SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20},
}
FILE_ENDINGS = frozenset(
    ("png", "jpg", "jpeg", "gif", "svg", "webp", "js", "ts", "css", "py", "json", "html", "md", "txt", "jar", "exe")
)
# Placeholders of documentation and templates, which are no secrets.
TEMPLATE = re.compile(
    r"[<>{}\[\]$%*]|\.\.\.|x{4}|X{4}|(?i:your|example|changeme|change_me|placeholder|password|secret|redacted|process\.env)"
)
VERSION_BEFORE = re.compile(r"(?i)(?:version|release|build|\bver|\bv)[ :=.\"']{0,3}$")
URL_END = re.compile(r"[\s/\"'<>]")  # characters that end the part of a URL that has a user and a password
LEAST_ENTROPY = 3.0  # of assigned secrets, in bits for each character
PLAIN_MARKS = frozenset("-_/.:,")
PHONE_REGION = "US"


def entropy_of(text: str) -> float:
    """Return Shannon's entropy of the characters, in bits for each."""
    size = len(text)
    counts = (text.count(character) for character in set(text))
    return -sum(count / size * math.log2(count / size) for count in counts)


def is_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of ISO/IEC 7812-1."""
    total = 0
    for place, digit in enumerate(map(int, reversed(digits))):
        total += digit if place % 2 == 0 else sum(divmod(digit * 2, 10))
    return total % 10 == 0


def payment_card(value: str, before: str, after: str) -> bool:
    """A number with a prefix and length of cards, in one of their groupings, with Luhn's check digit."""
    digits = value.translate(LUHN)
    separators = set(value) - set(digits)
    if len(separators) > 1 or len(set(digits)) < 2:
        return False
    groups = [len(group) for group in re.split("[ -]", value)]
    if len(groups) > 1 and groups not in ([4, 4, 4, 4], [4, 6, 5], [4, 6, 4], [4, 4, 4, 4, 3], [4, 4, 4, 1]):
        return False
    return is_luhn(digits) and any(
        first <= digits[: len(first)] <= last and len(digits) in lengths for first, last, lengths in CARDS
    )


def iban(value: str, before: str, after: str) -> bool:
    """The length of its country, and the remainder 1 modulo 97 (ISO 13616)."""
    text = value.replace(" ", "").upper()
    if len(text) != IBAN_LENGTHS.get(text[:2]):
        return False
    number = "".join(str(int(character, 36)) for character in text[4:] + text[:4])
    return int(number) % 97 == 1


def email(value: str, before: str, after: str) -> bool:
    """No user of a version control address, no file name, and not the host of a URL with a password."""
    name, _, host = value.rpartition("@")
    if ".." in value or host.rpartition(".")[2].lower() in FILE_ENDINGS:
        return False
    _, scheme, authority = before.rpartition("://")
    if scheme and not URL_END.search(authority):
        return False
    return not (name.lower() == "git" and after[:1] in (":", "/"))


@lru_cache(maxsize=4096)
def _is_phone(value: str) -> bool:
    text = f"+{value[2:]}" if value.startswith("00") else value
    try:
        number = phonenumbers.parse(text, PHONE_REGION)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_valid_number(number)


def phone(value: str, before: str, after: str) -> bool:
    """A valid number of a country's numbering plan (libphonenumber)."""
    digits = sum(map(str.isdigit, value))
    return 8 <= digits <= 15 and _is_phone(value.strip(" ./-"))


def ip_address(value: str, before: str, after: str) -> bool:
    """An address that names a host: no version number, mask, loopback or unspecified address."""
    if VERSION_BEFORE.search(before) or before[-1:] in (":", ".") or (after[:1] == ":" and ":" in value):
        return False
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast or address.is_reserved:
        return False
    if address.version == 6:
        return value.count(":") >= 3 and any(map(str.isdigit, value))
    return not value.startswith(("0.", "255.")) and value.count(".0") < 3


def crc32_base62(value: str, before: str, after: str) -> bool:
    """The last six characters are the CRC-32 of those after the prefix, in base 62."""
    body = value.partition("_")[2]
    number = zlib.crc32(body[:-6].encode())
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = BASE62[digit] + digits
    return digits.rjust(6, "0") == body[-6:]


def json_web_token(value: str, before: str, after: str) -> bool:
    """The header is JSON with an algorithm."""
    header = value.partition(".")[0]
    try:
        read = orjson.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except ValueError:
        return False
    return isinstance(read, dict) and "alg" in read


def no_template(value: str, before: str, after: str) -> bool:
    """No placeholder of documentation or of a template."""
    return not TEMPLATE.search(value)


def assigned_secret(value: str, before: str, after: str) -> bool:
    """Random text: at least three kinds of characters or much entropy, and no placeholder, path or sentence."""
    if TEMPLATE.search(value) or value.startswith(("/", "./", "http", "arn:", "sha256")):
        return False
    kinds = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    kinds += any(not character.isalnum() and character not in PLAIN_MARKS for character in value)
    return kinds >= 3 and entropy_of(value) >= LEAST_ENTROPY


def _entropy(least: float) -> Check:
    def check(value: str, before: str, after: str) -> bool:
        return entropy_of(value) >= least

    return check


def _number(module: str) -> Check:
    def check(value: str, before: str, after: str) -> bool:
        valid: bool = _validator(module)(value)
        return valid

    return check


@cache
def _validator(module: str) -> Any:
    """Return `is_valid` of a module of python-stdnum, which is imported when the first number of its kind is seen."""
    return importlib.import_module(f"stdnum.{module}").is_valid


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        *(payment_card, iban, email, phone, ip_address, crc32_base62, json_web_token, no_template, assigned_secret),
    )
}
CHECKS |= {"entropy_3": _entropy(3.0), "entropy_3_5": _entropy(3.5), "entropy_4": _entropy(4.0)}


def find_check(name: str) -> Check | None:
    """Return the check of a detector: by name, or "stdnum:" with a module of python-stdnum; None for "".

    KeyError for an unknown name.
    """
    if not name:
        return None
    kind, _, module = name.partition(":")
    if kind == "stdnum":
        return _number(module)
    return CHECKS[name]
