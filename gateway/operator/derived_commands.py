"""Commands that only repeat a management operation, derived from its row: arguments from its request, output from its
answer. They run in this process as the operator, whether or not the gateway runs."""

import json
import re
from typing import Any

import click

from gateway.operator.command_runs import CommandRun, choose_usage
from gateway.operator.command_usage import ORGANIZATION, PROJECT, CommandUsage, read_usages
from gateway.operator.command_values import STANDARD_INPUT, is_repeated, is_switch, type_of
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON
from gateway.surfaces.management.managed_operation import ManagedOperation
from gateway.surfaces.management.table import OPERATIONS

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
    text = f"{'; '.join(dict.fromkeys(summaries))}. {usages[0].action.view.__doc__ or ''}"
    if STANDARD_INPUT in usages[0].constants.values():
        text += " The secret is asked for at a terminal, and otherwise read from standard input."
    return re.sub(r"\s+", " ", text)


teams = make_group("teams", "Teams; their spending limits are set with `limits set`.")
projects = make_group("projects", "Projects.")
session_budgets = make_group("session-budgets", "Budgets of each session and run of agents.")
managed_settings = make_group("managed-settings", "Settings that Claude Code gets from an organization and its teams.")
rules = make_group("rules", "Access rules.")
custom_providers = make_group("custom-providers", "Custom providers of one organization.")
scim_tokens = make_group("scim-tokens", "Tokens with which an identity provider manages an organization over SCIM.")
identity_providers = make_group("identity-providers", "OpenID providers with which members of an organization sign in.")
sso = make_group("sso", "Required single sign-on of an organization.")
group_rules = make_group("group-rules", "Roles, teams and limits that groups of an identity provider give.")
workload_identities = make_group("workload-identities", "Rules by which tokens of identity providers call models.")
service_accounts = make_group("service-accounts", "Tokens for automation that belong to an organization.")
discounts = make_group("discounts", "Discounts on the list price for usage that credits pay.")
credits = make_group("credits", "Prepaid credits of organizations.")
rates = make_group("rates", "Rate limits; there are none by default.")
audit = make_group("audit", "The audit trail.")
alerts = make_group(
    "alerts", "Webhooks for alerts. Those of the first organization receive alerts about the whole installation."
)
