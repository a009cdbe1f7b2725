"""Commands that only repeat a management operation, derived from its row: arguments from its request, output from its
answer. They run in this process as the operator, whether or not the gateway runs."""

import json
import re
import sys
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import click
import msgspec
from marshmallow import fields

from gateway.accounts.changes import OPERATOR
from gateway.accounts.members import MemberInfo, list_owners
from gateway.accounts.organizations import OrganizationInfo, list_organizations
from gateway.accounts.projects import list_projects
from gateway.accounts.rules import organization_of
from gateway.accounts.sessions import SessionInfo
from gateway.clock import to_iso
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.periods import AMOUNT_FIELD, LETTERS, PATTERN, UNIT_FIELD
from gateway.operator.command_usage import ORGANIZATION, PROJECT, CommandUsage, read_usages
from gateway.operator.installation_commands import Installation, address_of, opened
from gateway.operator.output import (
    AS_JSON,
    is_json,
    only_one,
    print_json,
    print_table,
    printable,
    read_expiry,
    read_json,
    read_object,
)
from gateway.surfaces.management.answers import DoneAnswer
from gateway.surfaces.management.managed_operation import ManagedOperation
from gateway.surfaces.management.table import OPERATIONS
from gateway.surfaces.visitors.validation_schemas import WHOLE, WORDS_KEY, IsoTime, OneOf, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.worker.services import Services

# Values of a derived command's arguments, as the members of a request.

STANDARD_INPUT = "-"
NULL = "none"  # where a member may be null


def type_of(member: fields.Field[Any]) -> click.ParamType[Any]:
    """Return the type of an argument for a member."""
    words = member.metadata.get(WORDS_KEY, {})
    if isinstance(member, OneOf):
        return click.Choice([*words, *member.choices])
    return click.STRING


def is_switch(member: fields.Field[Any]) -> bool:
    """Return whether an option is a pair such as --cache/--no-cache."""
    return isinstance(member, fields.Boolean)


def is_repeated(member: fields.Field[Any]) -> bool:
    """Return whether an option is given once for each value of the list."""
    return isinstance(member, fields.List) and isinstance(member.inner, fields.String)


def read_value(member: fields.Field[Any], value: Any, now_us: int) -> Any:
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
    return int(text) if WHOLE.fullmatch(text) else text


# The operator as a visitor of the management API, for commands that run its operations in this process.

OPERATOR_SESSION = SessionInfo("", OPERATOR, "", "", 0, 0)


class OperatorVisitor(Visitor):
    """The operator is an owner of every organization: keys that the operator creates belong to its oldest owner."""

    __slots__ = ()

    def organizations(self) -> list[OrganizationInfo]:
        return list_organizations(self.services.store.database)

    def is_operator(self) -> bool:
        return True


def visit_as_operator(services: Services) -> OperatorVisitor:
    """Return the operator's visitor."""
    database = services.store.database
    absent = {
        info.id: MemberInfo("", info.id, OPERATOR, "", "", "owner", "active") for info in list_organizations(database)
    }
    owners: dict[str, MemberInfo] = {}
    for member in list_owners(database):
        owners.setdefault(member.organization_id, member)
    memberships: Mapping[str, MemberInfo] = ChainMap(owners, absent)
    return OperatorVisitor(services, OPERATOR_SESSION, memberships)


# Runs of derived commands: the request from the arguments, the operation as the operator, and its answer printed.

# The prefix of an id decides which operation a command with several runs.
ID_PREFIXES = {"key_id": "key_", "member_id": "member_", "team_id": "team_", ORGANIZATION: "org_"}
SECRETS = ("token", "secret")


def choose_usage(usages: Sequence[CommandUsage], arguments: Sequence[str], options: Mapping[str, Any]) -> CommandUsage:
    """Return the usage that the arguments fit; of several, the one with the fewest options. Raises NotFound."""
    by_prefix = len({tuple(usage.arguments) for usage in usages}) > 1
    fitting = [
        usage for usage in usages if (not by_prefix or _fits(usage, arguments)) and options.keys() <= usage.option_names
    ]
    if not fitting:
        kinds = [f"{name.removesuffix('_id')} ({prefix}…)" for name, prefix in ID_PREFIXES.items()]
        raise NotFound(f"{arguments[0]} is not the id of a {', '.join(kinds[:-1])} or {kinds[-1]}.")
    return min(fitting, key=lambda usage: len(usage.options))


def _fits(usage: CommandUsage, arguments: Sequence[str]) -> bool:
    named = zip(usage.arguments, arguments, strict=True)
    return all(value.startswith(ID_PREFIXES.get(name, "")) for name, value in named)


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
            return self._content_of(self._run_once())
        organization_id = self._find_organization()
        if organization_id:
            return self._content_of(self._run_once(organization_id))
        contents = [self._content_of(self._run_once(info.id)) for info in list_organizations(self._database)]
        if all(isinstance(content, list) for content in contents):
            return [item for content in contents for item in content]
        return contents

    def print_answer(self) -> int:
        """Run the operation, print its answer, and return the status of the command."""
        content = self.run()
        usage = self._usage
        if isinstance(content, Outbound):
            return _write_download(content)
        plain = json.loads(msgspec.json.encode(content))
        if is_json():
            print_json(plain)
        elif usage.parts:
            self._print_parts(plain)
        elif isinstance(content, DoneAnswer):
            click.echo(printable(content.message))
        else:
            _print_content(content, usage)
        return int(bool(usage.success) and not plain[usage.success])

    def _content_of(self, answer: Any) -> Any:
        """Return the part of an answer that the usage line names; without one, the whole answer."""
        name = self._usage.content
        return getattr(answer, _to_attribute(name)) if name else answer

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
        if WHOLE.fullmatch(value):
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


def _write_download(outbound: Outbound) -> int:
    """Write a download to standard output."""
    output = sys.stdout.buffer
    if isinstance(outbound.body, bytes):
        output.write(outbound.body)
    else:
        for piece in outbound.body:
            output.write(piece)
    output.flush()
    return 0


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
    name = usage.name if usage.name.endswith("s") else usage.group  # `routes savings` lists no routes
    empty = f"There are no {name.replace('-', ' ')}."
    print_table(header, [[_write_cell(getattr(row, name)) for name in columns] for row in rows], empty)


def _write_cell(value: Any) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, Mapping):
        return json.dumps(dict(value)) if value else None
    if isinstance(value, list | tuple):
        return ",".join(str(item["id"] if isinstance(item, Mapping) else item) for item in value)
    return value


def _to_attribute(member: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in member)


# Help of options for something else than a member of the request.
OTHER_OPTIONS = {
    "*": "The whole value as JSON; {} removes it.",
    ORGANIZATION: "Organization id; required if there are several organizations.",
}


def make_group(name: str, text: str) -> click.Group:
    """Return the group of all commands with a usage that begins with `name`."""
    usages: dict[str, list[CommandUsage]] = {}
    for operation in OPERATIONS:
        if isinstance(operation, ManagedOperation):
            for usage in read_usages(operation):
                if usage.group == name:
                    usages.setdefault(usage.name, []).append(usage)
    commands = {command: _make_command(command, choices) for command, choices in usages.items()}
    return click.Group(name, commands=commands, help=text)


def _make_command(name: str, usages: list[CommandUsage]) -> click.Command:
    """Return a command for the usages of one name; its arguments decide between them."""
    count = len(usages[0].arguments)

    def run(**values: Any) -> int:
        arguments = [values.pop(f"argument{index}") for index in range(count)]
        options = {option.replace("_", "-"): value for option, value in values.items() if value not in (None, ())}
        usage = choose_usage(usages, arguments, options)
        installation = click.get_current_context().with_resource(opened())
        return CommandRun(installation, usage, arguments, options).print_answer()

    parameters: dict[str, click.Parameter] = {}
    for index in range(count):
        parameters[f"argument{index}"] = _make_argument(index, usages)
    for usage in usages:
        if usage.chooses_organization:
            parameters["organization"] = click.Option(["--organization"], help=OTHER_OPTIONS[ORGANIZATION])
        for option, members in usage.options.items():
            parameters[option] = _make_option(option, members, usage)
        for option, (member, constant) in usage.switches.items():
            about = f"Set {member} to {json.dumps(constant)}."
            parameters[option] = click.Option([f"--{option}"], is_flag=True, flag_value=True, default=None, help=about)
    command = click.Command(name, params=list(parameters.values()), callback=run, help=_describe(usages))
    return AS_JSON(command)


def _make_argument(index: int, usages: list[CommandUsage]) -> click.Argument:
    names = {usage.arguments[index] for usage in usages}
    metavar = "SUBJECT"
    if len(names) == 1:
        metavar = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", names.pop()).upper()
    member = usages[0].members.get(usages[0].arguments[index])
    kind = type_of(member) if member is not None else click.STRING
    required = usages[0].arguments[index] not in usages[0].optional
    if not required:
        metavar = f"[{metavar}]"
    return click.Argument([f"argument{index}"], type=kind, metavar=metavar, required=required)


def _make_option(option: str, members: tuple[str, ...], usage: CommandUsage) -> click.Option:
    member = usage.members.get(members[0])
    if member is None:
        return click.Option([f"--{option}"], help=OTHER_OPTIONS[members[0]])
    flag = f"--{option}"
    kind = type_of(member)
    if is_switch(member):
        flag = f"--{option}/--no-{option}"
        kind = click.BOOL
    required = option in usage.required or (member.required and members[0] != PROJECT)
    about = str(member.metadata.get("description", ""))
    repeated = is_repeated(member)
    if required:  # with a default, click takes the option as given
        return click.Option([flag], type=kind, required=True, help=about, multiple=repeated)
    return click.Option([flag], type=kind, default=None, help=about, multiple=repeated)


def _describe(usages: list[CommandUsage]) -> str:
    """Return the help: the summaries of the operations, and the description of the first."""
    summaries = [usage.operation.about.summary for usage in usages if usage.operation.about is not None]
    if usages[0].name == "clear":  # it sends the operation that sets values, with null for each
        summaries = [summary.replace("Set ", "Remove ", 1) for summary in summaries]
    text = f"{'; '.join(dict.fromkeys(summaries))}. {usages[0].action.view.__doc__ or ''}"
    if STANDARD_INPUT in usages[0].constants.values():
        text += " The secret is asked for at a terminal, and otherwise read from standard input."
    return re.sub(r"\s+", " ", text)


teams = make_group("teams", "Teams; their spending limits are set with `limits set`.")
projects = make_group("projects", "Projects.")
batches = make_group("batches", "List, show and cancel the batches of a project.")
project_jobs = make_group("project-jobs", "Batches, videos and background responses of a project, and their results.")
files = make_group("files", "Files of a project, and what those of an organization take.")
session_budgets = make_group("session-budgets", "Budgets of each session and run of agents.")
outcomes = make_group("outcomes", "What coding agents brought and cost, and what was saved and wasted.")
managed_settings = make_group("managed-settings", "Settings that Claude Code gets from an organization and its teams.")
rules = make_group("rules", "Access rules.")
custom_providers = make_group("custom-providers", "Custom providers of one organization.")
scim_tokens = make_group("scim-tokens", "Tokens with which an identity provider manages an organization over SCIM.")
identity_providers = make_group("identity-providers", "OpenID providers with which members of an organization sign in.")
sso = make_group("sso", "Required single sign-on of an organization.")
group_rules = make_group("group-rules", "Roles, teams and limits that groups of an identity provider give.")
guardrails = make_group("guardrails", "Rules that check the texts of requests and answers.")
routes = make_group("routes", "Model names that choose the model of each request by rules.")
workload_identities = make_group("workload-identities", "Rules by which tokens of identity providers call models.")
service_accounts = make_group("service-accounts", "Tokens for automation that belong to an organization.")
discounts = make_group("discounts", "Discounts on the list price for usage that credits pay.")
credits = make_group("credits", "Prepaid credits of organizations.")
rates = make_group("rates", "Rate limits; there are none by default.")
audit = make_group("audit", "The audit trail.")
alerts = make_group(
    "alerts", "Webhooks for alerts. Those of the first organization receive alerts about the whole installation."
)
views = make_group("views", "Saved views of usage and requests, and where they are sent each week.")
shares = make_group("shares", "Links by which members show a request or a session to colleagues.")
