"""The coding agents that the client can start: their programs, and how each is pointed at a gateway.

Variables and options are those that the agents document; keys are passed in the environment only, because other users
of the machine can read the command line of a process.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from llmgateway_cli.agents.client_settings import dotted, read_client_settings
from llmgateway_cli.errors import CliError

DEFAULT_MODEL = "gpt-5.4"
KEY_NAME = "LLMGATEWAY_API_KEY"
PROVIDER = "llmgateway"
OPENCODE_CONTENT = "OPENCODE_CONFIG_CONTENT"
DEFAULT_CONTEXT = 200_000
# Changes of settings files without which an agent cannot be pointed at a gateway.
CRUSH_SETUP = "crush"
GEMINI_SETUP = "gemini"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The facts that an agent's environment and command line depend on: the address of the gateway (without `/v1`), the
    key, the model ("" for the agent's own choice) with its entry in the catalogue (empty if unknown), the arguments
    that the user gave for the agent, the environment that it inherits, and whether it reports to the gateway."""

    gateway_url: str
    api_key: str
    model: str
    entry: Mapping[str, Any] = field(default_factory=dict)
    given: Sequence[str] = ()
    inherited: Mapping[str, str] = field(default_factory=dict)
    telemetry: bool = False

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI's dialect."""
        return f"{self.gateway_url}/v1"


Environment = Callable[[LaunchPlan], dict[str, str]]
Arguments = Callable[[LaunchPlan], list[str]]


def _nothing(plan: LaunchPlan) -> dict[str, str]:
    return {}


def _no_arguments(plan: LaunchPlan) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Agent:
    """One coding agent.

    `environment` and `arguments` point it at a gateway; the user's arguments follow. `install` is the command that
    installs it, `documentation` the page about it. Versions before `minimum_version` cannot be pointed at a gateway in
    this way. `needs_model`: without `-m` it gets the default model; `model_options` are its own options for a model,
    which take precedence over that. `requires` is the path that a gateway must serve for it. `setup` names the change
    of its settings file before it starts, "" for none.
    """

    id: str
    name: str
    description: str
    program: str
    install: str
    documentation: str
    environment: Environment = _nothing
    arguments: Arguments = _no_arguments
    minimum_version: str = ""
    needs_model: bool = True
    takes_model: bool = True
    default_model: str = DEFAULT_MODEL
    requires: str = ""
    setup: str = ""
    is_custom: bool = False
    model_options: tuple[str, ...] = ("-m", "--model")

    @property
    def reports(self) -> bool:
        """Whether the gateway reads the telemetry of this agent."""
        settings = read_client_settings().get(self.id)
        return not self.is_custom and settings is not None and bool(settings.reporting)

    @property
    def names(self) -> tuple[str, str]:
        """The words that mean this agent on a command line: its id, and its name with hyphens."""
        return self.id, self.name.lower().replace(" ", "-")

    def names_model(self, given: Sequence[str]) -> bool:
        """Return whether the user's arguments for the agent name a model."""
        return any(argument.partition("=")[0] in self.model_options for argument in given)


def _values(plan: LaunchPlan) -> dict[str, str]:
    """The values of placeholders in the settings of clients."""
    parts = urlsplit(plan.gateway_url)
    path = parts.path.strip("/")
    return {
        "address": plan.gateway_url,
        "origin": f"{parts.scheme}://{parts.netloc}",
        "base_path": f"{path}/" if path else "",
        "key": plan.api_key,
        "model": plan.model,
        "context": str(model_limits(plan.entry).get("context", "")),
    }


def settings_environment(ident: str) -> Environment:
    """Return the variables of a client's settings as a function of the plan."""

    def environment(plan: LaunchPlan) -> dict[str, str]:
        return read_client_settings()[ident].filled_environment(_values(plan), plan.telemetry)

    return environment


def settings_arguments(ident: str) -> Arguments:
    """Return the arguments of a client's command as a function of the plan."""

    def arguments(plan: LaunchPlan) -> list[str]:
        return read_client_settings()[ident].filled_arguments(_values(plan))

    return arguments


def settings_document(ident: str, plan: LaunchPlan) -> dict[str, Any]:
    """Return the content of a client's settings file."""
    return read_client_settings()[ident].filled_document(_values(plan), plan.telemetry)


def _codex_arguments(plan: LaunchPlan) -> list[str]:
    """Overrides of this run, so that the user's config.toml stays as it is. The values are TOML."""
    arguments: list[str] = []
    for name, value in dotted(settings_document("codex", plan)):
        arguments += ["-c", f"{name}={json.dumps(value)}"]
    return arguments


def _opencode_environment(plan: LaunchPlan) -> dict[str, str]:
    """Settings of this run. They win over stored settings and credentials, which are not changed."""
    model: dict[str, Any] = {"name": plan.entry.get("name") or plan.model}
    limits = model_limits(plan.entry)
    if limits:
        model["limit"] = limits
    content = settings_document("opencode", plan)
    content["provider"][PROVIDER]["models"] = {plan.model: model}
    settings = merged(_opencode_content(plan.inherited), content)
    return settings_environment("opencode")(plan) | {OPENCODE_CONTENT: json.dumps(settings)}


def _opencode_content(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return settings that the user set for runs. Raises CliError if they are no JSON object."""
    try:
        settings = json.loads(environment.get(OPENCODE_CONTENT) or "{}")
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise CliError(f"{OPENCODE_CONTENT} is no JSON object.", f"Correct it, or unset {OPENCODE_CONTENT}.")
    return settings


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the changes; objects of one name are merged."""
    result = dict(base)
    for name, value in changes.items():
        former = result.get(name)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            result[name] = merged(former, value)
        else:
            result[name] = value
    return result


def _opencode_arguments(plan: LaunchPlan) -> list[str]:
    """The model as an option, except before a subcommand, which reads it from the settings of the run."""
    if plan.given and not plan.given[0].startswith("-"):
        return []
    return ["--model", f"{PROVIDER}/{plan.model}"]


def _goose_arguments(plan: LaunchPlan) -> list[str]:
    """The command of a session, if the user gave no other one."""
    return [] if plan.given else settings_arguments("goose")(plan)


def model_limits(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return the context and output limit of a catalogue entry in tokens; empty if one is unknown."""
    context = entry.get("context_length") or 0
    output = entry.get("max_output") or 0
    if not context or not output:
        return {}
    return {"context": context, "output": output}


AGENTS = (
    Agent(
        id="claude",
        name="Claude Code",
        description="Anthropic's agent, with any model of the gateway.",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        documentation="https://docs.anthropic.com/en/docs/claude-code",
        environment=settings_environment("claude"),
        minimum_version="2.1.129",  # the first that lists a gateway's models
        needs_model=False,
    ),
    Agent(
        id="codex",
        name="Codex CLI",
        description="OpenAI's agent, over the Responses API.",
        program="codex",
        install="npm install -g @openai/codex",
        documentation="https://github.com/openai/codex",
        environment=settings_environment("codex"),
        arguments=_codex_arguments,
        minimum_version="0.2.0",  # the first with providers and -c
    ),
    Agent(
        id="opencode",
        name="opencode",
        description="Open-source agent for many vendors.",
        program="opencode",
        install="npm install -g opencode-ai",
        documentation="https://opencode.ai/docs",
        environment=_opencode_environment,
        arguments=_opencode_arguments,
        minimum_version="1.0.0",
    ),
    Agent(
        id="aider",
        name="aider",
        description="Pair programming with git.",
        program="aider",
        install="uv tool install --python python3.12 aider-chat",
        documentation="https://aider.chat/docs/install.html",
        environment=settings_environment("aider"),
        arguments=settings_arguments("aider"),
        model_options=("--model",),  # its -m is a message
    ),
    Agent(
        id="qwen",
        name="Qwen Code",
        description="Alibaba's open-source agent.",
        program="qwen",
        install="npm install -g @qwen-code/qwen-code",
        documentation="https://qwenlm.github.io/qwen-code-docs/",
        environment=settings_environment("qwen"),
        arguments=settings_arguments("qwen"),
        minimum_version="0.1.4",  # the first with --auth-type
    ),
    Agent(
        id="goose",
        name="goose",
        description="Agent with MCP extensions.",
        program="goose",
        install="brew install block-goose-cli",
        documentation="https://block.github.io/goose/docs/getting-started/installation",
        environment=settings_environment("goose"),
        arguments=_goose_arguments,
    ),
    Agent(
        id="kimi",
        name="Kimi Code",
        description="Moonshot AI's open-source agent.",
        program="kimi",
        install="npm install -g @moonshot-ai/kimi-code",
        documentation="https://moonshotai.github.io/kimi-code/en/",
        environment=settings_environment("kimi"),
    ),
    Agent(
        id="crush",
        name="Crush",
        description="Charm's agent. Its settings file gets the provider llmgateway.",
        program="crush",
        install="npm install -g @charmland/crush",
        documentation="https://github.com/charmbracelet/crush",
        environment=settings_environment("crush"),
        setup=CRUSH_SETUP,
    ),
    Agent(
        id="gemini",
        name="Gemini CLI",
        description="Google's agent, over the Gemini API. Its settings file gets the sign-in by key.",
        program="gemini",
        install="npm install -g @google/gemini-cli",
        documentation="https://github.com/google-gemini/gemini-cli",
        environment=settings_environment("gemini"),
        arguments=settings_arguments("gemini"),
        default_model="gemini-2.5-pro",
        setup=GEMINI_SETUP,
        requires="/v1beta/models",
    ),
)


def find_agent(name: str, agents: Sequence[Agent]) -> Agent | None:
    """Return the agent of an id, or of a name with hyphens."""
    return next((agent for agent in agents if name.lower() in agent.names), None)
