"""Values of a derived command's arguments, as the members of a request."""

import sys
from typing import Any

import click
from marshmallow import fields

from gateway.clock import to_iso
from gateway.errors import InvalidRequest
from gateway.limits.periods import LETTERS, PATTERN
from gateway.operator.output import read_expiry, read_json
from gateway.surfaces.validation_schemas import WORDS_KEY, IsoTime, OneOf, TextField

STANDARD_INPUT = "-"
NULL = "none"  # where a member may be null


def type_of(member: fields.Field) -> click.ParamType:
    """Return the type of an argument for a member."""
    words = member.metadata.get(WORDS_KEY, {})
    if isinstance(member, OneOf):
        return click.Choice([*words, *member.choices])
    return click.STRING


def is_switch(member: fields.Field) -> bool:
    """Return whether an option is a pair such as --cache/--no-cache."""
    return isinstance(member, fields.Boolean)


def is_repeated(member: fields.Field) -> bool:
    """Return whether an option is given once for each value of the list."""
    return isinstance(member, fields.List) and isinstance(member.inner, fields.String)


def read_value(member: fields.Field, value: Any, now_us: int) -> Any:
    """Return the member's value, as JSON. Raises InvalidRequest; the schema checks the rest."""
    words = member.metadata.get(WORDS_KEY, {})
    if not isinstance(value, str):
        return value
    if value in words:
        return words[value]
    if member.allow_none and value == NULL:
        return None
    if isinstance(member, IsoTime):
        moment_us = read_expiry(value, now_us)
        return None if moment_us is None else to_iso(moment_us)
    if isinstance(member, TextField):
        return read_secret().strip() if value == STANDARD_INPUT else value
    if isinstance(member, fields.Integer):
        return _read_number(value)
    if isinstance(member, fields.List) and isinstance(member.inner, fields.Integer):
        return [_read_number(part.strip(" %")) for part in value.split(",")]
    if isinstance(member, fields.List | fields.Dict | fields.Nested | fields.Raw):
        return read_json(value)
    return value


def read_period(value: str, members: tuple[str, ...]) -> dict[str, Any]:
    """Return the two members of a period such as 12h, 1d, 2w or 1mo. Raises InvalidRequest."""
    amount, unit = members
    if value == NULL:
        return {amount: None, unit: None}
    period = PATTERN.fullmatch(value)
    if period is None:
        raise InvalidRequest(f"{value!r} is not a period. Use a format like 12h, 1d, 2w or 1mo.")
    return {amount: int(period[1]), unit: LETTERS[period[2]]}


def read_secret(label: str = "Secret", confirm: bool = False) -> str:
    """Return a secret: at a terminal from a prompt without echo, else the first line of standard input. Arguments are
    visible in the process list."""
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, confirmation_prompt=confirm, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _read_number(text: str) -> Any:
    """Return a number, or the text, which the schema rejects."""
    try:
        return int(text)
    except ValueError:
        return text
