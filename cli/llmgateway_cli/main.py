"""The program: the table of commands, global options, and the place where errors become messages and exit codes."""

import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import click
from click.exceptions import NoArgsIsHelpError

from llmgateway_cli import __version__, errors
from llmgateway_cli.command_lines import ClientGroup, suggestion
from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError
from llmgateway_cli.output import Output
from llmgateway_cli.settings import API_URL, DASHBOARD_URL, GATEWAY_URL, Settings

PROGRAM = "llmgateway"
DEBUG_VARIABLE = "LLMGATEWAY_DEBUG"


class CommandEntry(NamedTuple):
    """The place of a command and its line in the overview, which is shown without importing the command."""

    module: str
    function: str
    help: str


# In the order of the overview.
COMMANDS: dict[str, CommandEntry] = {
    "auth": CommandEntry("llmgateway_cli.commands.auth", "auth", "Sign in, sign out, show the account."),
    "orgs": CommandEntry("llmgateway_cli.commands.places", "orgs", "List organizations, choose the default one."),
    "projects": CommandEntry("llmgateway_cli.commands.places", "projects", "List projects, choose the default one."),
    "members": CommandEntry("llmgateway_cli.commands.people", "members", "List and invite people, change their roles."),
    "teams": CommandEntry("llmgateway_cli.commands.people", "teams", "List teams, change their members and leads."),
    "credits": CommandEntry("llmgateway_cli.commands.places", "credits", "Show the credit balance."),
    "keys": CommandEntry("llmgateway_cli.commands.keys", "keys", "Create, list, change and delete API keys."),
    "budget": CommandEntry("llmgateway_cli.commands.budget", "budget", "Show your own budget, set limits of API keys."),
    "routes": CommandEntry("llmgateway_cli.commands.routes", "routes", "Set and publish rules that choose models."),
    "guardrails": CommandEntry("llmgateway_cli.commands.guardrails", "guardrails", "Add and test rules for texts."),
    "views": CommandEntry("llmgateway_cli.commands.views", "views", "Save views, let them be sent each week."),
    "shares": CommandEntry("llmgateway_cli.commands.shares", "shares", "Show requests and sessions to colleagues."),
    "usage": CommandEntry("llmgateway_cli.commands.usage", "usage", "Show usage and cost."),
    "models": CommandEntry("llmgateway_cli.commands.models", "models", "List models, with prices and capabilities."),
    "launch": CommandEntry("llmgateway_cli.commands.launch", "launch", "Start a coding agent that uses the gateway."),
    "configure": CommandEntry(
        "llmgateway_cli.commands.configure", "configure", "Point an agent's own settings at the gateway."
    ),
    "init": CommandEntry("llmgateway_cli.commands.init", "init", "Create a project from a template."),
    "list": CommandEntry("llmgateway_cli.commands.init", "list_templates", "List the project templates."),
    "add": CommandEntry("llmgateway_cli.commands.project", "add", "Add a tool or a route to a project."),
    "dev": CommandEntry("llmgateway_cli.commands.project", "dev", "Start a project."),
    "upgrade": CommandEntry("llmgateway_cli.commands.project", "upgrade", "Update a project to the newest template."),
    "docs": CommandEntry("llmgateway_cli.commands.docs", "docs", "Open the gateway's documentation."),
    "chat": CommandEntry("llmgateway_cli.commands.chat", "chat", "Talk to a model and see the cost."),
    "files": CommandEntry("llmgateway_cli.commands.files", "files", "Store and download files for requests."),
    "jobs": CommandEntry("llmgateway_cli.commands.jobs", "jobs", "Send batches of requests, follow their progress."),
    "logs": CommandEntry("llmgateway_cli.commands.logs", "logs", "List requests, or follow them."),
    "serve": CommandEntry("llmgateway_cli.commands.serve", "serve", "Start an installed gateway."),
    "doctor": CommandEntry("llmgateway_cli.commands.doctor", "doctor", "Check this client's set-up."),
    "completion": CommandEntry(
        "llmgateway_cli.commands.completion", "completion", "Print a completion script for bash, zsh or fish."
    ),
}


class LazyGroup(ClientGroup):
    """A group that imports a command when it runs. The overview is written from the table alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            # The name of a coding agent is a hidden command.
            module = importlib.import_module("llmgateway_cli.commands.launch")
            agent: click.Command | None = module.agent_command(ctx.find_object(ClientContext), cmd_name)
            return agent
        command: click.Command = getattr(importlib.import_module(entry.module), entry.function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            agents = importlib.import_module("llmgateway_cli.commands.launch").known_agents(
                ctx.find_object(ClientContext)
            )
            known = [*COMMANDS, *(agent.id for agent in agents)]
            raise click.UsageError(f"No such command {name!r}.{suggestion(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option("--api-url", metavar="URL", help="URL of the management API (LLMGATEWAY_API_URL).")
@click.option("--dashboard-url", metavar="URL", help="URL of the console (LLMGATEWAY_ORIGIN_URL).")
@click.option("--gateway-url", metavar="URL", help="URL of the model API, without /v1 (LLMGATEWAY_GATEWAY_URL).")
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def main(
    context: click.Context, as_json: bool, api_url: str | None, dashboard_url: str | None, gateway_url: str | None
) -> None:
    """Manage an LLM gateway: keys, budgets, usage, models, coding agents and projects."""
    client_context: ClientContext = context.obj
    client_context.output.as_json = as_json
    flags = {API_URL: api_url, DASHBOARD_URL: dashboard_url, GATEWAY_URL: gateway_url}
    client_context.settings.flags |= {member: url for member, url in flags.items() if url}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (without the program's name) and return the exit code."""
    settings = Settings(os.environ)
    output = Output(os.environ, settings)
    try:
        code = main.main(
            arguments,
            prog_name=PROGRAM,
            standalone_mode=False,
            obj=ClientContext(settings, output),
            terminal_width=output.help_width,
        )
        output.flush()
    except CliError as error:
        output.error(error)
        return error.exit_code
    except NoArgsIsHelpError as error:
        output.usage(error.format_message())
        return errors.USAGE
    except click.UsageError as error:
        output.usage_error(error)
        return errors.USAGE
    except click.ClickException as error:
        output.error(CliError(error.format_message()))
        return errors.REFUSED
    except (click.Abort, KeyboardInterrupt):
        output.interrupted()
        return errors.INTERRUPTED
    except BrokenPipeError:
        output.give_up()
        return errors.REFUSED
    except Exception as error:
        output.error(unexpected(error))
        return errors.REFUSED
    if isinstance(code, int):
        return code
    return errors.SUCCESS


def unexpected(error: Exception) -> CliError:
    """Return the message of a fault of this program: the kind of the error and its places, without any value."""
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(__package__):
        return CliError(
            f"The Python library {error.name} is not installed.",
            "In a checkout run `make install`; elsewhere install the client again with pip, pipx or uv.",
        )
    frames = traceback.extract_tb(error.__traceback__)
    if os.environ.get(DEBUG_VARIABLE):
        places = "\n".join(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        return CliError(f"A fault of this program: {type(error).__name__}.\n{places}", "Please report it.")
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
    return CliError(
        f"A fault of this program: {type(error).__name__} at {place}.",
        f"Please report it; {DEBUG_VARIABLE}=1 shows more.",
    )


def entry() -> None:
    """The console script. Characters that the terminal does not know are replaced, as Python does for stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    sys.exit(run())
