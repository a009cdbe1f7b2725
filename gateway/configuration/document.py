"""The reference of all settings as Markdown, from the table of defaults with its comments and the fields' types."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from gateway.configuration.value_parsing import Between, NetworkText, Scheme

LINE = re.compile(r"(\w+) = (.*?)(?:\s+# (.*))?")
MORE = re.compile(r"\s+# (.*)")
SECTION = re.compile(r"\[(\w+)\](?:\s+# (.*))?")
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
HEAD = "| Setting | Default | Variables | What |\n|---|---|---|---|"


def write_reference(
    defaults: str,
    sections: Mapping[str, type],
    variables: Mapping[str, tuple[str, str, float]],
    fixed: Iterable[tuple[str, str]],
) -> str:
    """A heading and a table a section. `variables` are names besides GATEWAY_<SECTION>_<KEY>; `fixed` settings are
    marked as those that only a restart changes."""
    comments = read_comments(defaults)
    texts = tomllib.loads(defaults)
    parts = []
    for section, kind in sections.items():
        rows = []
        for one in dataclasses.fields(kind):
            names = [f"GATEWAY_{section}_{one.name}".upper()]
            names = [name for name, value in variables.items() if value[:2] == (section, one.name)] + names
            what = without_names(comments.get((section, one.name), ""), names)
            if (section, one.name) in fixed:
                mark = " *"
            else:
                mark = ""
            default = texts.get(section, {}).get(one.name)
            allowed = _describe(one.type)
            rows.append(
                f"| `{one.name}`{mark} | `{_write(default)}` | {', '.join(f'`{name}`' for name in names)} "
                f"| {'; '.join(part for part in (what, allowed) if part)} |"
            )
        note = comments.get((section, ""), "")
        parts.append(f"### [{section}]\n\n" + (f"{note}\n\n" if note else "") + "\n".join([HEAD, *rows]))
    return "\n\n".join(parts) + "\n"


def read_comments(defaults: str) -> dict[tuple[str, str], str]:
    """(section, key) → its comment; key "" for what is said of a section."""
    comments: dict[tuple[str, str], str] = {}
    section = ""
    last = ("", "")
    for line in defaults.splitlines():
        if found := SECTION.fullmatch(line):
            section = found[1]
            last = (section, "")
            comments[last] = found[2] or ""
        elif found := LINE.fullmatch(line):
            last = (section, found[1])
            comments[last] = found[3] or ""
        elif (found := MORE.fullmatch(line)) and section:
            comments[last] = f"{comments[last]} {found[1]}".strip()
    return comments


def without_names(text: str, names: Iterable[str]) -> str:
    """A comment without the variables that it begins with."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(name):
            text = text.removeprefix(name).lstrip(";,. ")
    return text.replace("|", "\\|")


def _describe(kind: Any) -> str:
    """What a value may be, where its kind does not say it."""
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
    if isinstance(check, Between):
        return f"from {check.least:g}" + ("" if check.most == float("inf") else f" to {check.most:g}")
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
    return f"{value}" if value not in ("", None) else " "  # an empty span is none
