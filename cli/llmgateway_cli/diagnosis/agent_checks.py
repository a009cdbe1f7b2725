"""Checks of coding agents: their versions, and the settings files that point them at a gateway."""

from collections.abc import Iterator, Mapping
from typing import Any

from llmgateway_cli.agents.custom import read_custom_agents
from llmgateway_cli.agents.definitions import AGENTS, KEY_NAME, PROVIDER
from llmgateway_cli.agents.programs import find_program, installation_advice, is_older, read_version
from llmgateway_cli.agents.settings_files import SettingsFile, claude_file, member_object, opencode_file
from llmgateway_cli.context import ClientContext
from llmgateway_cli.diagnosis.findings import ERROR, OK, WARNING, Finding, failed
from llmgateway_cli.diagnosis.local_checks import is_open_to_others
from llmgateway_cli.errors import CliError


def check_agents(context: ClientContext) -> Iterator[Finding]:
    """Check the version of each installed agent, and that the user's own agents have a program."""
    environment = context.settings.environment
    installed = 0
    for agent in AGENTS:
        program = find_program(agent, environment)
        if program is None:
            continue
        installed += 1
        version = read_version(program, environment)
        if agent.minimum_version and is_older(version, agent.minimum_version):
            message = f"{agent.name} {version} is too old: version {agent.minimum_version} or later is required."
            yield Finding("agents", ERROR, message, installation_advice(agent))
        else:
            yield Finding("agents", OK, f"{agent.name} {version or '(unknown version)'}")
    for agent in read_custom_agents(context.settings.agents_file):
        if find_program(agent, environment) is None:
            yield Finding(
                "agents", WARNING, f"{agent.name}: there is no program {agent.program}.", installation_advice(agent)
            )
    if not installed:
        yield Finding("agents", OK, "No known agent is installed; `llmgateway launch --list` shows them.")


def check_agent_settings(context: ClientContext) -> Iterator[Finding]:
    """Check the settings files of agents that `configure` writes, the user's and the current project's."""
    environment = context.settings.environment
    for project in (False, True):
        file = claude_file(environment, project)
        if file.path.exists():
            yield from _checked(context, file, _judge_claude)
        file = opencode_file(environment, project)
        if file.path.exists():
            yield from _checked(context, file, _judge_opencode)


def _checked(context: ClientContext, file: SettingsFile, judge: Any) -> Iterator[Finding]:
    try:
        settings = file.read().value
    except CliError as error:
        yield failed("agent settings", error)
        return
    yield from judge(context, file, settings)


def _judge_claude(context: ClientContext, file: SettingsFile, settings: Mapping[str, Any]) -> Iterator[Finding]:
    variables = member_object(settings, "env")
    if "ANTHROPIC_BASE_URL" not in variables:
        yield Finding("agent settings", OK, f"{file.path} names no gateway.")
        return
    token = variables.get("ANTHROPIC_AUTH_TOKEN")
    if token and is_open_to_others(file.path):
        yield Finding(
            "agent settings", ERROR, f"Other users may read the key in {file.path}.", f"chmod 600 {file.path}"
        )
    again = "Run `llmgateway configure claude`."
    url = str(variables["ANTHROPIC_BASE_URL"]).rstrip("/")
    if url != context.settings.gateway_url:
        yield _other_address(file, url, context.settings.gateway_url, again)
    elif context.settings.api_key and token != context.settings.api_key:
        yield Finding("agent settings", WARNING, f"{file.path} has another API key than this client.", again)
    else:
        yield Finding("agent settings", OK, f"{file.path} names this gateway.")


def _judge_opencode(context: ClientContext, file: SettingsFile, settings: Mapping[str, Any]) -> Iterator[Finding]:
    provider = member_object(member_object(settings, "provider"), PROVIDER)
    if not provider:
        yield Finding("agent settings", OK, f"{file.path} names no gateway.")
        return
    again = "Run `llmgateway configure opencode`."
    options = member_object(provider, "options")
    url = str(options.get("baseURL") or "").rstrip("/").removesuffix("/v1")
    if url != context.settings.gateway_url:
        yield _other_address(file, url, context.settings.gateway_url, again)
    elif KEY_NAME in str(options.get("apiKey", "")) and not context.settings.environment.get(KEY_NAME):
        yield Finding(
            "agent settings",
            WARNING,
            f"{file.path} takes the key from {KEY_NAME}, which is not set.",
            f"Set {KEY_NAME}, or start it with `llmgateway launch opencode`.",
        )
    else:
        yield Finding("agent settings", OK, f"{file.path} names this gateway.")


def _other_address(file: SettingsFile, url: str, ours: str, remedy: str) -> Finding:
    named = url or "no address"
    return Finding("agent settings", WARNING, f"{file.path} names {named}, this client uses {ours}.", remedy)
