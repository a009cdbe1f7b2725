"""`configure`: point the settings file of an agent at the gateway, for starts without this client."""

import click

from llmgateway_cli.agents.definitions import PROVIDER
from llmgateway_cli.agents.git_exclusion import GitExclusion
from llmgateway_cli.agents.settings_files import (
    SettingsFile,
    claude_file,
    claude_settings,
    opencode_file,
    opencode_settings,
)
from llmgateway_cli.api_keys import require_key
from llmgateway_cli.catalogue import Entry, outputs_of, providers_of, read_models
from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.settings import GATEWAY_URL, KEY_VARIABLE

CLAUDE = "claude"
OPENCODE = "opencode"
NAMES = {"claude": CLAUDE, "claude-code": CLAUDE, "opencode": OPENCODE}
CHOICES = (("Claude Code", CLAUDE), ("opencode", OPENCODE))


@click.command(cls=ClientCommand)
@click.argument("agent", required=False)
@click.option("--project", is_flag=True, help="Change the settings of the current project instead of the user's.")
@click.option("--telemetry", is_flag=True, help="Let Claude Code report commits, lines and edits to the gateway.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, without writing it.")
@click.option("-k", "--key", default="", help=f"The API key. {KEY_VARIABLE} keeps it out of the process list.")
@click.option("--gateway-url", metavar="URL", default="", help="URL of the gateway, without /v1.")
@json_option
@pass_context
def configure(
    context: ClientContext,
    /,
    agent: str | None,
    project: bool,
    telemetry: bool,
    dry_run: bool,
    key: str,
    gateway_url: str,
) -> None:
    """Point the settings file of claude or opencode at the gateway.

    Everything else in the file stays as it is. Other agents are configured when `llmgateway launch` starts them.
    """
    if gateway_url:
        context.settings.flags[GATEWAY_URL] = gateway_url
    context.output.hide(key)
    name = NAMES.get(agent.lower()) if agent else context.output.choose("Which agent?", CHOICES, "claude or opencode")
    if name is None:
        raise CliError(
            f"There are no settings to write for {agent!r}; known are claude and opencode.",
            f"`llmgateway launch {agent}` configures an agent for one run.",
        )
    if name == CLAUDE:
        configure_claude(context, project, key, dry_run, telemetry)
    else:
        if telemetry:
            context.output.warning("The gateway does not read the telemetry of opencode; --telemetry has no effect.")
        configure_opencode(context, opencode_file(context.settings.environment, project), key, dry_run)


def configure_claude(context: ClientContext, project: bool, key: str, dry_run: bool, telemetry: bool = False) -> None:
    """Write the address and the key into Claude Code's settings. Raises CliError without a key."""
    used = key or require_key(context)
    file = claude_file(context.settings.environment, project)
    settings = claude_settings(context.settings.gateway_url, used, telemetry)
    names = [f"env.{name}" for name in settings["env"]]
    file.read()
    exclude_from_git(context, file, project, dry_run)
    changed = not dry_run and file.merge(settings)
    report(context, file, names, changed, dry_run)
    if not dry_run:
        context.output.info(
            "Restart Claude Code. Its /model lists the gateway's models that begin with claude or anthropic; "
            "`claude --model ID` uses any other."
        )


def exclude_from_git(context: ClientContext, file: SettingsFile, project: bool, dry_run: bool) -> None:
    """Let git ignore a file of a working tree that gets the key. Raises CliError if git tracks it; for the user's own
    settings that is a warning."""
    exclusion = GitExclusion(file.path, context.settings.environment)
    try:
        if not exclusion.is_needed():
            return
    except CliError as error:
        if project:
            raise
        context.output.warning(error.message)
        return
    if dry_run:
        context.output.warning(f"git does not ignore {file.path}. It would be added to what git ignores in this clone.")
        return
    place = exclusion.add()
    context.output.warning(
        f"{file.path} contains the API key and lies in a git repository. {place} now lets git ignore it in this clone; "
        "add it to .gitignore for others."
    )


def configure_opencode(context: ClientContext, file: SettingsFile, key: str, dry_run: bool) -> None:
    """Write the gateway and the models that the key can call, each pinned to a provider, into opencode's settings."""
    listed = read_models(context.client, key=key or None, mapped=True, available=True)
    entries = [entry for entry in listed if is_for_coding(entry)]
    if not entries:
        raise CliError(
            f"The key can call no model that writes text and uses tools at {context.settings.gateway_url}.",
            "`llmgateway models --available` lists the models. Add a provider key, or ask the gateway's operator.",
        )
    settings = opencode_settings(context.settings.gateway_url, entries, file.read().value)
    names = [f"provider.{PROVIDER}.{name}" for name in settings["provider"][PROVIDER]]
    changed = not dry_run and file.merge(settings)
    report(context, file, names, changed, dry_run, models=len(entries))
    if not dry_run:
        context.output.info(
            f"Restart opencode. Its models are llmgateway/PROVIDER/MODEL, and its key is that of {KEY_VARIABLE}."
        )


def is_for_coding(entry: Entry) -> bool:
    """Return whether a provider's model writes text and calls tools, and is not experimental."""
    served = [mapping for mapping in entry.get("providers") or [] if mapping.get("tools") and mapping.get("streaming")]
    is_steady = entry.get("stability") not in ("unstable", "experimental")
    return bool(served) and is_steady and "text" in outputs_of(entry) and bool(providers_of(entry))


def report(
    context: ClientContext,
    file: SettingsFile,
    names: list[str],
    changed: bool,
    dry_run: bool,
    models: int | None = None,
) -> None:
    """Print the file and the members that were set."""
    if context.output.as_json:
        document = {"file": str(file.path), "members": names, "changed": changed, "dryRun": dry_run}
        context.output.document(document if models is None else {**document, "models": models})
        return
    pairs = [("file", str(file.path)), ("members", ", ".join(names))]
    if models is not None:
        pairs.append(("models", str(models)))
    context.output.fields(pairs)
    if dry_run:
        context.output.info("Nothing was written.")
    elif changed:
        context.output.success(f"{file.agent} now uses {context.settings.gateway_url}.")
    else:
        context.output.success(f"{file.agent} already used {context.settings.gateway_url}; nothing was changed.")
