"""The user's own coding agents, which `agents.json` beside the configuration file describes."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmgateway_cli.agents.definitions import AGENTS, KEY_NAME, Agent, Arguments, Environment, LaunchPlan
from llmgateway_cli.errors import CliError

FIELDS = frozenset(("id", "label", "description", "command", "args", "env", "defaultModel"))
RESERVED = frozenset(name for agent in AGENTS for name in agent.names)
IDENTIFIER = re.compile(r"[a-z][a-z0-9-]{0,63}")
PROGRAM = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")
# A key in an argument could be read by other users of the machine.
IN_ARGUMENTS = frozenset(("gatewayUrl", "model"))
IN_ENVIRONMENT = IN_ARGUMENTS | {"apiKey"}
MAX_ARGUMENTS = 128


def read_custom_agents(path: Path) -> list[Agent]:
    """Return the agents of the file; none without a file. Raises CliError if it is damaged."""
    remedy = f"Repair {path}; docs/cli.md describes its members."
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise CliError(f"The file {path} cannot be read ({type(error).__name__}).", remedy) from None
    if not isinstance(entries, list):
        raise CliError(f"The file {path} does not contain a list of agents.", remedy)
    agents: list[Agent] = []
    for number, entry in enumerate(entries, 1):
        try:
            agents.append(read_agent(entry))
        except ValueError as error:
            raise CliError(f"Agent {number} in {path} is invalid: {error}.", remedy) from None
    ids = [agent.id for agent in agents]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise CliError(f"The file {path} has several agents with the id {repeated[0]}.", remedy)
    return agents


def read_agent(entry: Any) -> Agent:
    """Return the agent of one entry. Raises ValueError with the reason if it is invalid."""
    if not isinstance(entry, dict):
        raise ValueError("it is not a JSON object")
    unknown = sorted(set(entry) - FIELDS)
    if unknown:
        raise ValueError(f"it has the unknown member {unknown[0]!r}")
    ident = _text(entry, "id")
    if not IDENTIFIER.fullmatch(ident) or ident in RESERVED:
        raise ValueError("its id must be lowercase letters, digits and hyphens, and not the name of a built-in agent")
    program = _text(entry, "command")
    if not PROGRAM.fullmatch(program) and not Path(program).is_absolute():
        raise ValueError("its command must be the name of a program or an absolute path, without arguments")
    arguments = _arguments(entry.get("args", []))
    variables = _variables(entry.get("env", {}))
    texts = [*arguments, *variables.values()]
    return Agent(
        id=ident,
        name=_text(entry, "label"),
        description=_text(entry, "description") if "description" in entry else "Your own agent.",
        program=program,
        install="",
        documentation="",
        environment=_environment(variables),
        arguments=_command_line(arguments),
        needs_model=any("${model}" in text for text in texts),
        takes_model=any("${model}" in text for text in texts),
        default_model=_text(entry, "defaultModel") if "defaultModel" in entry else "",
        is_custom=True,
    )


def _text(entry: Mapping[str, Any], member: str) -> str:
    return _checked(entry.get(member), member)


def _checked(value: Any, member: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{member} must be a text")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError(f"{member} contains control characters")
    return value


def _arguments(values: Any) -> list[str]:
    if not isinstance(values, list) or len(values) > MAX_ARGUMENTS:
        raise ValueError(f"args must be a list of at most {MAX_ARGUMENTS} texts")
    return [_template(value, "args", IN_ARGUMENTS) for value in values]


def _variables(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ValueError("env must be an object of variables")
    for name in values:
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"env has the invalid name {name!r}")
    return {name: _template(value, f"env.{name}", IN_ENVIRONMENT) for name, value in values.items()}


def _template(value: Any, member: str, allowed: frozenset[str]) -> str:
    text = _checked(value, member)
    for name in PLACEHOLDER.findall(text):
        if name not in allowed:
            raise ValueError(f"{member} has the placeholder ${{{name}}}; allowed are {', '.join(sorted(allowed))}")
    return text


def _expand(text: str, plan: LaunchPlan) -> str:
    values = {"apiKey": plan.api_key, "gatewayUrl": plan.gateway_url, "model": plan.model}
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _environment(variables: Mapping[str, str]) -> Environment:
    def environment(plan: LaunchPlan) -> dict[str, str]:
        common = {KEY_NAME: plan.api_key, "LLMGATEWAY_GATEWAY_URL": plan.gateway_url}
        return common | {name: _expand(text, plan) for name, text in variables.items()}

    return environment


def _command_line(arguments: list[str]) -> Arguments:
    def command_line(plan: LaunchPlan) -> list[str]:
        return [_expand(text, plan) for text in arguments]

    return command_line
