"""`launch`: start a coding agent that uses the gateway."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from llmgateway_cli.agents.custom import read_custom_agents
from llmgateway_cli.agents.definitions import AGENTS, Agent, LaunchPlan, find_agent
from llmgateway_cli.agents.key_check import check_key
from llmgateway_cli.agents.programs import find_program, installed_program, replace_process
from llmgateway_cli.agents.setups import apply_setup, describe_setup
from llmgateway_cli.api_keys import missing_key, store_checked_key
from llmgateway_cli.catalogue import Entry, checked_entry, find_entry, read_models
from llmgateway_cli.command_lines import ClientCommand, suggestion
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.output import REDACTED
from llmgateway_cli.settings import GATEWAY_URL, KEY_VARIABLE
from llmgateway_cli.tables import Column

FALLBACK_MODEL = "auto"
DRY_RUN = "--dry-run"
WITH_DRY_RUN = frozenset(("aider",))  # agents with an own option of this name
COLUMNS = (Column("ID"), Column("AGENT"), Column("INSTALLED"), Column("ABOUT", shorten=True))
PASS_ON: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options of `launch`."""

    model: str
    key: str
    check_key: bool
    dry_run: bool
    telemetry: bool = False


def complete_agents(click_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of agents that begin with a text, for completion in a shell."""
    agents = known_agents(click_context.find_object(ClientContext))
    return [agent.id for agent in agents if agent.id.startswith(incomplete)]


@click.command(cls=ClientCommand, context_settings=PASS_ON)
@click.argument("agent", required=False, shell_complete=complete_agents)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "--model", default="", help="The model, e.g. gpt-5.4 or anthropic/claude-sonnet-5-5.")
@click.option("--list", "list_only", is_flag=True, help="List the agents.")
@click.option("--dry-run", is_flag=True, help="Show what would be started, without any request.")
@click.option("-k", "--key", default="", help=f"The API key. {KEY_VARIABLE} keeps it out of the process list.")
@click.option("--gateway-url", metavar="URL", default="", help="URL of the gateway, without /v1.")
@click.option("--telemetry", is_flag=True, help="Let the agent report commits, lines and edits to the gateway.")
@click.option("--check-key", is_flag=True, help="Check the key first with a request of one token.")
@json_option
@pass_context
def launch(
    context: ClientContext,
    /,
    agent: str | None,
    arguments: Sequence[str],
    list_only: bool,
    gateway_url: str,
    **options: Any,
) -> None:
    """Start a coding agent that uses the gateway.

    Arguments after the name of the agent go to the agent, whose exit code becomes that of this command.
    """
    agents = known_agents(context)
    if list_only:
        print_agents(context, agents)
        return
    if gateway_url:
        context.settings.flags[GATEWAY_URL] = gateway_url
    chosen = choose_agent(context, agents, agent)
    given = list(arguments[1:] if arguments[:1] == ("--",) else arguments)
    start_agent(context, chosen, given, LaunchOptions(**options))


def shortcut(name: str, agents: Sequence[Agent]) -> click.Command | None:
    """Return the command of an agent's name, which stands for `launch` with that agent; None for another name."""
    agent = find_agent(name, agents)
    if agent is None:
        return None
    chosen = agent

    @click.command(name, cls=ClientCommand, context_settings=PASS_ON, hidden=True, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @pass_context
    def command(context: ClientContext, /, arguments: Sequence[str]) -> None:
        start_agent(context, chosen, list(arguments), LaunchOptions("", "", False, False))

    return command


def agent_command(context: ClientContext | None, name: str) -> click.Command | None:
    """Return the hidden command of an agent, built-in or of the user; without a context there are no own agents."""
    return shortcut(name, known_agents(context))


def known_agents(context: ClientContext | None) -> list[Agent]:
    """Return the built-in agents and those of the user."""
    if context is None:
        return list(AGENTS)
    return [*AGENTS, *read_custom_agents(context.settings.agents_file)]


def print_agents(context: ClientContext, agents: Sequence[Agent]) -> None:
    """Print every agent and whether its program is installed."""
    environment = context.settings.environment
    agents_installed = [(agent, find_program(agent, environment) is not None) for agent in agents]
    if context.output.as_json:
        context.output.document(
            [
                {
                    "id": agent.id,
                    "label": agent.name,
                    "command": agent.program,
                    "installed": installed,
                    "description": agent.description,
                }
                for agent, installed in agents_installed
            ]
        )
        return
    rows = [
        (agent.id, agent.name, "yes" if installed else "no", agent.description) for agent, installed in agents_installed
    ]
    context.output.table(COLUMNS, rows)
    context.output.info("Start one with `llmgateway launch ID`.")


def choose_agent(context: ClientContext, agents: Sequence[Agent], name: str | None) -> Agent:
    """Return the named agent, or the one that the user chooses at the terminal. Raises CliError for another name."""
    if not name:
        environment = context.settings.environment
        choices = []
        for agent in agents:
            note = "" if find_program(agent, environment) else " (not installed)"
            choices.append((f"{agent.name}{note}", agent))
        return context.output.choose("Which agent?", choices, "the name of an agent (`llmgateway launch --list`)")
    agent_named = find_agent(name, agents)
    if agent_named is None:
        known = [agent.id for agent in agents]
        raise CliError(f"There is no agent {name!r}.{suggestion(name, known)}", f"Known: {', '.join(known)}.")
    return agent_named


def start_agent(context: ClientContext, agent: Agent, given: Sequence[str], options: LaunchOptions) -> None:
    """Start an agent in the place of this program, or print what would be started."""
    if options.model and not agent.takes_model:
        context.output.warning(f"{agent.name} chooses its model itself; -m has no effect.")
        options = replace(options, model="")
    if options.telemetry and not agent.reports:
        context.output.warning(f"The gateway does not read the telemetry of {agent.name}; --telemetry has no effect.")
        options = replace(options, telemetry=False)
    context.output.hide(options.key)
    if asks_for_plan(agent, given):
        given = given[1:]
        options = replace(options, dry_run=True)
    if options.dry_run:
        model = options.model or (agent.default_model if agent.needs_model else "")
        key, source = known_key(context, options.key)
        plan = make_plan(context, key, model, {}, given, options)
        print_plan(context, agent, plan, source, bool(options.model))
        return
    program = installed_program(agent, context.settings.environment)
    key, source = resolve_key(context, options.key)
    if options.check_key:
        check_key(context.client, context.output, key, source)
    check_service(context, agent, key)
    entry = choose_model(context, agent, options.model, key, given)
    model = options.model or str(entry.get("id", ""))
    plan = make_plan(context, key, model, entry, given, options)
    environment = {**context.settings.environment, **agent.environment(plan)}
    command = [program, *agent.arguments(plan), *given]
    if apply_setup(agent, plan, bool(options.model)):
        context.output.info(f"Done: {describe_setup(agent, context.settings.environment)}.")
    context.output.info(f"Starting {agent.name} with {context.settings.gateway_url}.")
    replace_process(command, environment)


def make_plan(
    context: ClientContext, key: str, model: str, entry: Entry, given: Sequence[str], options: LaunchOptions
) -> LaunchPlan:
    """Return the facts that the start of an agent depends on."""
    settings = context.settings
    return LaunchPlan(settings.gateway_url, key, model, entry, given, settings.environment, options.telemetry)


def asks_for_plan(agent: Agent, given: Sequence[str]) -> bool:
    """Return whether the first argument after the name of an agent is the option that shows the plan alone. Some agents
    have an option of this name."""
    return list(given[:1]) == [DRY_RUN] and agent.id not in WITH_DRY_RUN and not agent.is_custom


def known_key(context: ClientContext, key: str) -> tuple[str, str]:
    """Return the API key of the option, the environment or the file, and which of them it is; both "" without one."""
    if key:
        return key, "--key"
    if context.settings.environment.get(KEY_VARIABLE, "").strip():
        return context.settings.api_key, KEY_VARIABLE
    if context.settings.api_key:
        return context.settings.api_key, str(context.settings.config_file)
    return "", ""


def resolve_key(context: ClientContext, key: str) -> tuple[str, str]:
    """Return the API key and its source: the option, the environment, the file, or the terminal, of which a key is
    stored. Raises CliError without any."""
    key, source = known_key(context, key)
    if key:
        return key, source
    if not context.output.is_interactive():
        raise missing_key(context)
    context.output.info("There is no API key yet. `llmgateway keys create` makes one.")
    typed = context.output.secret("API key:").strip()
    if not typed:
        raise CliError("No API key was typed.", f"Set {KEY_VARIABLE}, or run `llmgateway auth login --key`.")
    store_checked_key(context, typed)
    return typed, "the terminal"


def choose_model(context: ClientContext, agent: Agent, model: str, key: str, given: Sequence[str]) -> Entry:
    """Return the catalogue entry of the model; empty if the agent chooses its own. Raises CliError if the service does
    not have it."""
    if model:
        entry = checked_entry(context.client, model, key=key)
        if entry.get("available") is False:
            context.output.warning(f"At present no provider of the service can serve {model}.")
        return entry
    if not agent.needs_model:
        return {}
    if not agent.default_model:
        raise CliError(f"{agent.name} needs a model.", "Give -m, or set defaultModel in agents.json.")
    entries = read_models(context.client, key=key, available=True)
    for name in (agent.default_model, FALLBACK_MODEL):
        entry_found = find_entry(entries, name)
        if entry_found is not None:
            if not agent.names_model(given):
                context.output.info(f"The model is {name}; -m before the name of the agent chooses another one.")
            return entry_found
    raise CliError(
        f"The service does not have the default model {agent.default_model}.",
        "Give a model with -m; `llmgateway models` lists them.",
    )


def check_service(context: ClientContext, agent: Agent, key: str) -> None:
    """Raise CliError if the service lacks the API that the agent speaks."""
    if not agent.requires:
        return
    reply = context.client.gateway_response(agent.requires, key=key)
    if reply.status_code == 404:
        raise CliError(
            f"{context.settings.gateway_url} does not serve {agent.requires}, which {agent.name} needs.",
            "Use another agent (`llmgateway launch --list`), or a newer version of the service.",
        )


def print_plan(context: ClientContext, agent: Agent, plan: LaunchPlan, source: str, is_model_chosen: bool) -> None:
    """Print the address, the model, the command, the variables and the changes of files, without the key."""

    def without_key(text: str) -> str:
        return text.replace(plan.api_key, REDACTED) if plan.api_key else text

    command = [without_key(argument) for argument in [agent.program, *agent.arguments(plan), *plan.given]]
    variables = {name: without_key(value) for name, value in agent.environment(plan).items()}
    setup = describe_setup(agent, context.settings.environment)
    if context.output.as_json:
        context.output.document(
            {
                "agent": agent.id,
                "command": command,
                "environment": list(variables),
                "variables": variables,
                "setup": setup or None,
                "model": plan.model or None,
                "gatewayUrl": plan.gateway_url,
            }
        )
        return
    context.output.fields(
        (
            ("agent", agent.name),
            ("address", plan.gateway_url),
            ("model", shown_model(agent, plan, is_model_chosen)),
            ("key", f"that of {source}" if plan.api_key else "none; the start needs one"),
            ("command", shlex.join(command)),
            *(("variable", f"{name}={value}") for name, value in variables.items()),
            *((("setup", setup),) if setup else ()),
        )
    )
    if find_program(agent, context.settings.environment) is None:
        remedy = f" Install it with `{agent.install}`." if agent.install else ""
        context.output.warning(f"{agent.name} is not installed.{remedy}")


def shown_model(agent: Agent, plan: LaunchPlan, is_chosen: bool) -> str:
    """Return the model that an agent will get, in words."""
    if not plan.model:
        return f"the choice of {agent.name}"
    if is_chosen or plan.model == FALLBACK_MODEL or agent.names_model(plan.given):
        return plan.model
    return f"{plan.model}, or {FALLBACK_MODEL} where the service cannot serve it"
