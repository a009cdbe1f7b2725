"""The usage line of a derived command: a text in a row of the management table.

`keys create <projectId> --expires=expiresAt status=active ... -> token` means: the command's name; positional
arguments, each named after a variable of the path or a member of the request (`<kind?>` is optional); options for a
member (two joined by + are given as one period, * is the whole request; `--note=note!` is required,
`--off=unlimited=false` takes no value and sets a constant); constant members; `...` for options for all other
members. `-> token` prints these parts of the answer, `| id usage` prints a table with these columns, `.apiKeys` takes
this part as the content, and `?delivered` ends the command with status 1 if this part is false.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gateway.surfaces.description.openapi import VARIABLE
from gateway.surfaces.management.managed_operation import Action, ManagedOperation

ORGANIZATION = "organization_id"
PROJECT = "projectId"  # without a value, the only project there is


@dataclass
class CommandUsage:
    """A usage line. `options` maps the name of an option to the members that it sets, `switches` the name of an option
    without a value to the member and constant that it sets. `optional` are arguments, `required` options."""

    operation: ManagedOperation
    action: Action[Any]
    group: str
    name: str
    arguments: list[str] = field(default_factory=list)
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    switches: dict[str, tuple[str, Any]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    parts: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    content: str = ""
    success: str = ""

    @cached_property
    def variables(self) -> list[str]:
        """Return the variables of the path."""
        return VARIABLE.findall(self.operation.path)

    @cached_property
    def members(self) -> dict[str, Any]:
        """Return the marshmallow fields of the request, by the name of each on the wire."""
        schema: Any = self.action.request or self.action.query
        if schema is None:
            return {}
        return {member.data_key or name: member for name, member in schema._declared_fields.items()}

    @cached_property
    def named(self) -> set[str]:
        """Return the variables and members that the line names."""
        return {*self.arguments, *self.constants, *(name for names in self.options.values() for name in names)}

    @property
    def option_names(self) -> set[str]:
        """Return the options of the command."""
        names = {*self.options, *self.switches}
        if self.chooses_organization:
            names.add("organization")
        return names

    @property
    def chooses_organization(self) -> bool:
        """Return whether the organization is an additional option."""
        return ORGANIZATION in self.variables and ORGANIZATION not in self.named


def read_usages(operation: ManagedOperation) -> list[CommandUsage]:
    """Return the usages of the commands of an operation."""
    if operation.action is None:
        return []
    return [_read(operation, operation.action, line) for line in operation.commands]


def _read(operation: ManagedOperation, action: Action[Any], line: str) -> CommandUsage:
    line, _, columns = line.partition(" | ")
    line, _, parts = line.partition(" -> ")
    group, name, *words = line.split()
    usage = CommandUsage(operation, action, group, name, columns=columns.split())
    for word in words:
        _read_word(usage, word)
    for word in parts.split():
        if word.startswith("?"):
            usage.success = word[1:]
        else:
            usage.parts.append(word)
    return usage


def _read_word(usage: CommandUsage, word: str) -> None:
    name, _, value = word.partition("=")
    if word == "...":
        for member in usage.members:
            if member not in usage.named:
                usage.options[_name_option(member)] = (member,)
    elif word.startswith("<"):
        argument = word.strip("<>").removesuffix("?")
        usage.arguments.append(argument)
        if word.endswith("?>"):
            usage.optional.add(argument)
    elif word.startswith("--"):
        _read_option(usage, name.removeprefix("--"), value)
    elif word.startswith("?"):
        usage.success = word[1:]
    elif word.startswith("."):
        usage.content = word[1:]
    else:
        usage.constants[name] = _read_constant(value)
    usage.__dict__.pop("named", None)


def _read_option(usage: CommandUsage, option: str, value: str) -> None:
    member, is_switch, constant = value.partition("=")
    if is_switch:
        usage.switches[option] = (member, _read_constant(constant))
        return
    if value.endswith("!"):
        usage.required.add(option)
    usage.options[option] = tuple(value.removesuffix("!").split("+"))


def _name_option(member: str) -> str:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in member)
    return words.removesuffix("-id")


def _read_constant(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
