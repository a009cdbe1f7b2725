"""Runs of derived commands: the request from the arguments, the operation as the operator, and its answer printed."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from gateway.accounts.organizations import list_organizations
from gateway.accounts.projects import list_projects
from gateway.accounts.rules import organization_of
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.periods import AMOUNT_FIELD, UNIT_FIELD
from gateway.operator.command_usage import ORGANIZATION, PROJECT, CommandUsage
from gateway.operator.command_values import STANDARD_INPUT, read_period, read_secret, read_value
from gateway.operator.installation_commands import Installation, address_of
from gateway.operator.operator_visitor import visit_as_operator
from gateway.operator.output import is_json, only_one, print_json, print_table, printable, read_object
from gateway.surfaces.answer_structs import Answer
from gateway.surfaces.http import Inbound
from gateway.surfaces.management.answers import DoneAnswer

# The prefix of an id decides which operation a command with several runs.
PREFIXES = {"key_id": "key_", "member_id": "member_", "team_id": "team_", ORGANIZATION: "org_"}
SECRETS = ("token", "secret")


def choose_usage(usages: Sequence[CommandUsage], arguments: Sequence[str], options: Mapping[str, Any]) -> CommandUsage:
    """Return the usage that the arguments fit; of several, the one with the fewest options. Raises NotFound."""
    by_prefix = len({tuple(usage.arguments) for usage in usages}) > 1
    fitting = [
        usage for usage in usages if (not by_prefix or _fits(usage, arguments)) and options.keys() <= usage.option_names
    ]
    if not fitting:
        kinds = [f"{name.removesuffix('_id')} ({prefix}…)" for name, prefix in PREFIXES.items()]
        raise NotFound(f"{arguments[0]} is not the id of a {', '.join(kinds[:-1])} or {kinds[-1]}.")
    return min(fitting, key=lambda usage: len(usage.options))


def _fits(usage: CommandUsage, arguments: Sequence[str]) -> bool:
    named = zip(usage.arguments, arguments, strict=True)
    return all(value.startswith(PREFIXES.get(name, "")) for name, value in named)


class CommandRun:
    """One run of a derived command."""

    def __init__(
        self, installation: Installation, usage: CommandUsage, arguments: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        self._installation = installation
        self._services = installation.services
        self._database = self._services.store.database
        self._usage = usage
        self._params: dict[str, str] = {}
        self._body: dict[str, Any] = {}
        self._length: dict[str, Any] = {}
        for name, value in zip(usage.arguments, arguments, strict=True):
            if value is not None:
                self._set(name, value)
        for name, value in usage.constants.items():
            self._body[name] = read_secret().strip() if value == STANDARD_INPUT else value
        for option, value in options.items():
            self._set_option(option, value)
        if self._length:
            self._join_length()

    def run(self) -> Any:
        """Return the content of the answer; of a list that names no organization, those of all organizations."""
        self._complete_body()
        usage = self._usage
        if ORGANIZATION not in usage.variables or ORGANIZATION in self._params:
            return self._run_once()
        organization_id = self._find_organization()
        if organization_id:
            return self._run_once(organization_id)
        contents = [self._run_once(info.id) for info in list_organizations(self._database)]
        if all(isinstance(content, list) for content in contents):
            return [item for content in contents for item in content]
        return contents

    def print_answer(self) -> int:
        """Run the operation, print its answer, and return the status of the command."""
        content = self.run()
        usage = self._usage
        plain = json.loads(msgspec.json.encode(content))
        if usage.content:
            content = getattr(content, _to_attribute(usage.content))
            plain = plain[usage.content]
        if is_json():
            print_json(plain)
        elif usage.parts:
            self._print_parts(plain)
        elif isinstance(content, DoneAnswer):
            click.echo(printable(content.message))
        else:
            _print_content(content, usage)
        return int(bool(usage.success) and not plain[usage.success])

    def _print_parts(self, plain: Any) -> None:
        for part in self._usage.parts:
            for text in _find_parts(plain, part.split(".")):
                click.echo(printable(text))
        for part in self._usage.parts:
            if part in SECRETS and plain[part]:
                click.echo(f"This is the {part} of {plain['id']}. Save it now; it is not shown again.", err=True)

    def _set(self, name: str, value: Any) -> None:
        if name in self._usage.variables:
            self._params[name] = value
        else:
            member = self._usage.members[name]
            self._body[name] = read_value(member, value, self._services.clock.now_us())

    def _set_option(self, option: str, value: Any) -> None:
        members = self._usage.options.get(option, (ORGANIZATION,))
        if option in self._usage.switches:
            member, constant = self._usage.switches[option]
            self._body[member] = constant
        elif members == ("*",):
            self._body |= read_object(value)
        elif len(members) > 1:
            self._body |= read_period(value, members)
        elif members == (AMOUNT_FIELD,):
            self._set_length(value)
        else:
            self._set(members[0], value)

    def _set_length(self, value: str) -> None:
        """Set the length of a period from a number, or from text such as 12h with the unit. Raises InvalidRequest."""
        if value.isdigit():
            self._set(AMOUNT_FIELD, value)
        else:
            self._length = read_period(value, (AMOUNT_FIELD, UNIT_FIELD))

    def _join_length(self) -> None:
        """Set what the text of a length says. Raises InvalidRequest if the unit was also given, and is another one."""
        unit = self._length.get(UNIT_FIELD)
        if self._body.get(UNIT_FIELD, unit) != unit:
            raise InvalidRequest(f"The length of the period is in the unit {unit}: leave out the option of the unit.")
        self._body |= self._length

    def _complete_body(self) -> None:
        """Set a required project that is not given: the only one there is."""
        member = self._usage.members.get(PROJECT)
        if member is not None and member.required and PROJECT not in self._body:
            self._body[PROJECT] = self._only_project()

    def _find_organization(self) -> str:
        """Return the organization of an id among the arguments, or the only one; "" for a list of all."""
        body = self._body
        places: dict[Any, str] = {"team": self._params.get("team_id", ""), "member": self._params.get("member_id", "")}
        if "scope" in body:
            places = {body["scope"]: body["scopeId"]}
        for scope, scope_id in places.items():
            if scope_id:
                return self._database.read(partial(organization_of, scope, scope_id))
        usage = self._usage
        if usage.operation.method == "GET" and usage.variables == [ORGANIZATION] and usage.chooses_organization:
            return ""
        return self._only_organization()

    def _only_organization(self) -> str:
        infos = list_organizations(self._database)
        return only_one("organization", [(info.id, info.name) for info in infos])

    def _only_project(self) -> str:
        infos = list_projects(self._database)
        return only_one("project", [(info.id, info.name) for info in infos if info.status == "active"])

    def _run_once(self, organization_id: str = "") -> Any:
        usage = self._usage
        params = dict(self._params)
        if organization_id:
            params[ORGANIZATION] = organization_id
        query = ""
        body = b""
        if usage.action.request is None:
            query = urlencode(self._body)
        else:
            body = json.dumps(self._body).encode()
        inbound = Inbound(
            usage.operation.method,
            usage.operation.path,
            {"content-type": "application/json"},
            body,
            query,
            base_url=address_of(self._installation),
            params=params,
        )
        return usage.action.run(visit_as_operator(self._services), inbound)


def _find_parts(plain: Any, path: Sequence[str]) -> list[str]:
    """Return the texts at a path; a list on the way stands for each of its items."""
    if isinstance(plain, list):
        return [text for item in plain for text in _find_parts(item, path)]
    if path:
        return _find_parts(plain[path[0]], path[1:])
    if plain is None:
        return []
    if isinstance(plain, dict):
        return [json.dumps(plain, ensure_ascii=False)]
    return [str(plain)]


def _print_content(content: Any, usage: CommandUsage) -> None:
    """Print answers as a table, and anything else as JSON."""
    rows = content if isinstance(content, list) else [content]
    if not all(isinstance(row, Answer) for row in rows):
        print_json(content)
        return
    columns = usage.columns
    if rows and not columns:
        columns = list(rows[0].columns or rows[0].__struct_fields__)
    header = [name.replace("_", " ").upper() for name in columns]
    empty = f"There are no {usage.group.replace('-', ' ')}."
    print_table(header, [[_write_cell(getattr(row, name)) for name in columns] for row in rows], empty)


def _write_cell(value: Any) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, list | tuple):
        return ",".join(str(item["id"] if isinstance(item, Mapping) else item) for item in value)
    return value


def _to_attribute(member: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in member)
