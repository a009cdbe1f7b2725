"""The operator command, run as `python -m gateway.operator.command <command>`."""

from gateway.configuration.file import SettingsError
from gateway.runtime.process import patch_all

if __name__ == "__main__":  # before any other import, so that every lock and socket is cooperative
    patch_all()

import importlib
import logging
import traceback
from functools import partial
from typing import NoReturn

import click

from gateway.build_stamp import full_version
from gateway.configuration.settings import MANAGE, hide_settings
from gateway.errors import GatewayError, Unavailable
from gateway.runtime.process import end_with
from gateway.secret_text import hide_secrets

# Command → (module of gateway.operator, attribute, help). With the help here, listing the commands imports no modules.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("start", "serve", "Set up what is missing, then serve."),
    "serve-info": ("start", "serve_info", "Print address, key and a first request."),
    "migrate": ("start", "migrate", "Migrate the database to the version of this code."),
    "seed": ("start", "seed", "Create the first organization, project, owner and key."),
    "keys": ("member_commands", "keys", "API keys."),
    "organizations": ("member_commands", "organizations", "Organizations and their compliance policy."),
    "projects": ("derived_commands", "projects", "Projects."),
    "members": ("member_commands", "members", "Members of organizations, and passwords."),
    "teams": ("derived_commands", "teams", "Teams: shared access rules and limits."),
    "rules": ("derived_commands", "rules", "Access rules."),
    "identity-providers": ("derived_commands", "identity_providers", "OpenID providers of organizations."),
    "sso": ("derived_commands", "sso", "Required single sign-on."),
    "group-rules": ("derived_commands", "group_rules", "What groups of an identity provider give."),
    "guardrails": ("derived_commands", "guardrails", "Rules that check the texts of requests and answers."),
    "routes": ("derived_commands", "routes", "Model names that choose the model of each request by rules."),
    "scim-tokens": ("derived_commands", "scim_tokens", "Tokens of identity providers."),
    "workload-identities": ("derived_commands", "workload_identities", "Tokens of identity providers as credentials."),
    "service-accounts": ("derived_commands", "service_accounts", "Tokens for automation, with scopes."),
    "provider-keys": ("member_commands", "provider_keys", "An organization's own provider keys."),
    "custom-providers": ("derived_commands", "custom_providers", "Custom providers of one organization."),
    "credits": ("derived_commands", "credits", "Prepaid credits of organizations."),
    "discounts": ("derived_commands", "discounts", "Discounts on the list price."),
    "managed-settings": ("derived_commands", "managed_settings", "Settings that Claude Code gets."),
    "batches": ("derived_commands", "batches", "Batches of a project: their progress and cost."),
    "project-jobs": ("derived_commands", "project_jobs", "Jobs of a project, and their results."),
    "files": ("derived_commands", "files", "Files of a project: list, download, delete; what they take."),
    "outcomes": ("derived_commands", "outcomes", "Outcomes of coding agents, savings and wastes."),
    "session-budgets": ("derived_commands", "session_budgets", "Budgets of sessions and runs of agents."),
    "limits": ("member_commands", "limits", "Spending limits of any subject."),
    "rates": ("derived_commands", "rates", "Rate limits."),
    "views": ("derived_commands", "views", "Saved views, and where they are sent each week."),
    "shares": ("derived_commands", "shares", "Links that show requests and sessions to colleagues."),
    "alerts": ("derived_commands", "alerts", "Webhook addresses that receive alerts."),
    "doctor": ("doctor", "doctor", "Check that ledger, balances, counters and usage agree."),
    "re-rate": ("doctor", "re_rate", "Price the usage of a period again (re-rating)."),
    "spend": ("spend", "spend", "Spending by project, key, model, day, team, person or tag."),
    "reconcile": ("spend", "reconcile", "Compare a provider's usage export with the usage rows."),
    "focus": ("spend", "focus", "Charges of a month as FOCUS 1.2."),
    "status": ("status", "status", "Nodes, workers, versions, providers, cooldowns, jobs."),
    "backup": ("backup", "backup", "Copy the database into a file while the gateway runs."),
    "restore": ("backup", "restore", "Replace the database by a backup, or only verify a backup."),
    "credentials": ("backup", "credentials", "Save what is valid; after a restore, list what it revived."),
    "transfer": ("transfer", "transfer", "Move the database from SQLite to PostgreSQL, and compare the totals."),
    "rollups": ("jobs", "rollups", "Hourly and daily sums of usage, which statistics read."),
    "jobs": ("jobs", "jobs", "Background jobs: show their last runs, or run one now."),
    "config": ("config", "config", "Check and show the configuration."),
    "catalogue": ("catalogue_commands", "catalogue", "The model catalogue."),
    "check-catalogue": ("catalogue_commands", "check_catalogue", "Print every mistake in the catalogue's files."),
    "logs": ("log_commands", "logs", "Requests of the whole installation, with filters; --follow shows new ones."),
    "explain": ("log_commands", "explain", "Explain one request: upstream calls, costs, routing and remedies."),
    "audit": ("derived_commands", "audit", "The audit trail."),
}

# `./manage` looks for the running installation, except for commands that start one.
FIND_GATEWAY = "find"
STARTERS = ("serve", "serve-info")

# Commands print their own messages, so the gateway's log is silenced.
SILENCE = logging.NullHandler()


class LazyGroup(click.Group):
    """Imports the module of a command on use, because start-up time matters in scripts."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"gateway.operator.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = importlib.import_module("gateway.configuration.setting_checks")
            suggestion = "."
            if args[0] not in COMMANDS:
                suggestion = names.suggest_similar(args[0], COMMANDS) or "."
            raise click.UsageError(error.message.rstrip(".") + suggestion, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


def print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print version, commit and date, and end the command."""
    if wanted:
        click.echo(f"llmgateway {full_version()}")
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"max_content_width": 120})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the build."
)
@click.option(
    "--config", "config", metavar="FILE", help="The configuration file (default: gateway.toml beside the data)."
)
@click.pass_context
def main(ctx: click.Context, config: str | None) -> None:
    """Set up and run the gateway."""
    if config:
        importlib.import_module("gateway.operator.config").choose(config)
    elif ctx.obj == FIND_GATEWAY and ctx.invoked_subcommand not in STARTERS:
        importlib.import_module("gateway.operator.running").adopt()


def command() -> NoReturn:
    """Entry point of `./manage` and `llmgateway-manage`. Ends the process.

    Like `run`, but uses the running installation if there is one, and prints the database on standard error.
    """
    patch_all()
    end_with(partial(run, find=True))


def run(arguments: list[str] | None = None, find: bool = False) -> int:
    """Run a command and return its exit status. An error prints one line on standard error and returns 1."""
    logging.getLogger("gateway").addHandler(SILENCE)
    try:
        name = "python -m gateway.operator.command"
        mode = ""
        if find:
            name = MANAGE
            mode = FIND_GATEWAY
        result = main.main(args=arguments, prog_name=name, standalone_mode=False, obj=mode)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 1
    except (GatewayError, SettingsError, click.ClickException, click.Abort) as error:
        output = importlib.import_module("gateway.operator.output")
        for line in _describe(error).splitlines():
            click.echo(f"error: {output.printable(hide_secrets(line))}", err=True)
        return 1
    except Exception:
        click.echo(hide_secrets(hide_settings(traceback.format_exc())), err=True)
        return 1
    if isinstance(result, int):
        return result
    return 0


def _describe(error: Exception) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.format_message()}{_arguments(error)} See {error.ctx.command_path} --help."
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, Unavailable) and error.__cause__ is not None:
        return f"{error} ({str(error.__cause__).strip().splitlines()[0]})"
    if isinstance(error, click.Abort):
        return "aborted"
    return str(error)


def _arguments(error: click.UsageError) -> str:
    """Return the full list of arguments if one of several is missing: click always names the last one."""
    if not isinstance(error, click.MissingParameter) or not isinstance(error.param, click.Argument) or not error.ctx:
        return ""
    context = error.ctx
    names = [item.make_metavar(context) for item in context.command.params if isinstance(item, click.Argument)]
    if len(names) > 1:
        return f" Arguments: {' '.join(names)}."
    return ""


if __name__ == "__main__":
    end_with(run)
