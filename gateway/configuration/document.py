"""The reference of all settings as Markdown, generated from the defaults with their comments and the fields' types."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from gateway.configuration.value_parsing import NetworkText, NumberRange, Scheme

LINE = re.compile(r"(\w+) = (.*?)(?:\s+# (.*))?")
COMMENT = re.compile(r"\s+# (.*)")
SECTION = re.compile(r"\[(\w+)\](?:\s+# (.*))?")
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
TABLE_HEAD = "| Setting | Default | Variables | Meaning |\n|---|---|---|---|"


def write_reference(
    defaults: str,
    sections: Mapping[str, type],
    variables: Mapping[str, tuple[str, str, float]],
    fixed: Iterable[tuple[str, str]],
) -> str:
    """Return a heading and a table for each section.

    `variables` are names besides GATEWAY_<SECTION>_<KEY>; `fixed` settings are marked as those that only a restart
    changes.
    """
    comments = read_comments(defaults)
    texts = tomllib.loads(defaults)
    parts = []
    for section, kind in sections.items():
        rows = []
        for setting in dataclasses.fields(kind):
            names = [f"GATEWAY_{section}_{setting.name}".upper()]
            names = [name for name, value in variables.items() if value[:2] == (section, setting.name)] + names
            what = without_names(comments.get((section, setting.name), ""), names)
            mark = " *" if (section, setting.name) in fixed else ""
            default = texts.get(section, {}).get(setting.name)
            allowed = _describe(setting.type)
            rows.append(
                f"| `{setting.name}`{mark} | `{_write(default)}` | {', '.join(f'`{name}`' for name in names)} "
                f"| {'; '.join(part for part in (what, allowed) if part)} |"
            )
        note = comments.get((section, ""), "")
        parts.append(f"### [{section}]\n\n" + (f"{note}\n\n" if note else "") + "\n".join([TABLE_HEAD, *rows]))
    return "\n\n".join(parts) + "\n"


def read_comments(defaults: str) -> dict[tuple[str, str], str]:
    """Return (section, key) → comment; key "" is the comment of a section."""
    comments: dict[tuple[str, str], str] = {}
    section = ""
    last = ("", "")
    for line in defaults.splitlines():
        if match := SECTION.fullmatch(line):
            section = match[1]
            last = (section, "")
            comments[last] = match[2] or ""
        elif match := LINE.fullmatch(line):
            last = (section, match[1])
            comments[last] = match[3] or ""
        elif (match := COMMENT.fullmatch(line)) and section:
            comments[last] = f"{comments[last]} {match[1]}".strip()
    return comments


def without_names(text: str, names: Iterable[str]) -> str:
    """Return a comment without the variables at its beginning."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(name):
            text = text.removeprefix(name).lstrip(";,. ")
    return text.replace("|", "\\|")


def _describe(kind: Any) -> str:
    """Return the allowed values, where the type does not show them."""
    if get_origin(kind) is Annotated:
        plain, *checks = get_args(kind)
        return " ".join(filter(None, (_describe(plain), *map(_describe_check, checks))))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if get_origin(item) is Annotated:
            return "list of addresses or networks"
        return "list"
    if kind in (int, float, bool):
        return TYPES.get(kind, "")
    return ""


def _describe_check(check: Any) -> str:
    if isinstance(check, NumberRange):
        maximum = "" if check.maximum == float("inf") else f" to {check.maximum:g}"
        return f"{'0 or ' if check.or_zero else ''}from {check.minimum:g}{maximum}"
    if isinstance(check, Scheme):
        return "begins with " + " or ".join(f"`{name}://`" for name in check.names)
    if isinstance(check, NetworkText):
        return "address or network"
    return ""


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return f"{value}" if value not in ("", None) else " "  # an empty code span is not valid Markdown
