"""Settings files of coding agents: what the client merges into them, and how it replaces them in one step."""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmgateway_cli.agents.definitions import (
    DEFAULT_CONTEXT,
    PROVIDER,
    LaunchPlan,
    model_limits,
    settings_document,
    settings_environment,
)
from llmgateway_cli.agents.json_edit import JsonEditor, JsonError
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import PRIVATE, replace_file

OPENCODE_SCHEMA = "https://opencode.ai/config.json"
GEMINI_SIGN_IN = "gemini-api-key"
CRUSH_SCHEMA = "https://charm.land/crush.json"
PER_MILLION = 1_000_000
READABLE = 0o644


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings file of an agent. `allow_comments`: the agent reads JSON with comments and trailing commas.
    `has_secret`: the merged members contain the key, so only the user may read the file."""

    path: Path
    agent: str
    allow_comments: bool = False
    has_secret: bool = False

    def read(self) -> JsonEditor:
        """Return the present settings, empty without a file. Raises CliError if they cannot be merged into."""
        try:
            return JsonEditor(self._text(), self.allow_comments)
        except JsonError as error:
            raise CliError(
                f"{self.path} cannot be changed: {error} (line {error.line}).",
                f"Nothing was changed. Repair the file, which {self.agent} cannot read either, and try again.",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(f"{self.path} cannot be read ({type(error).__name__}).", "Nothing was changed.") from None

    def _text(self) -> str:
        """Return the text of the file with its own line ends."""
        if not self.path.exists():
            return "{}\n"
        with self.path.open(encoding="utf-8", newline="") as file:
            return file.read()

    def merge(self, changes: Mapping[str, Any]) -> bool:
        """Merge members into the file and return whether it was changed. Everything else in it stays as it is."""
        editor = self.read()
        merged = editor.merge(changes)
        is_open = self.has_secret and self.path.exists() and self._mode() & ~PRIVATE
        if self.path.exists() and merged == editor.text and not is_open:
            return False
        mode = PRIVATE
        if not self.has_secret:
            mode = self._mode() if self.path.exists() else READABLE
        replace_file(self.path, merged, mode)
        return True

    def _mode(self) -> int:
        return stat.S_IMODE(self.path.stat().st_mode)


def claude_file(environment: Mapping[str, str], project: bool) -> SettingsFile:
    """Return the settings file of Claude Code: the user's, or the personal one of the current project."""
    if project:
        path = Path.cwd() / ".claude" / "settings.local.json"
    else:
        named = environment.get("CLAUDE_CONFIG_DIR")
        folder = Path(named) if named else Path.home() / ".claude"
        path = folder / "settings.json"
    return SettingsFile(path, "Claude Code", has_secret=True)


def claude_settings(gateway_url: str, api_key: str, telemetry: bool = False) -> dict[str, Any]:
    """Return the settings that point Claude Code at a gateway. A key of the user's own in them stays."""
    variables = settings_environment("claude")(LaunchPlan(gateway_url, api_key, "", telemetry=telemetry))
    return {"env": {name: value for name, value in variables.items() if value}}


def opencode_file(environment: Mapping[str, str], project: bool) -> SettingsFile:
    """Return the settings file of opencode: the user's, or that of the current project. Where both spellings exist,
    opencode lets the one with comments win."""
    folder = Path.cwd() if project else _config_home(environment) / "opencode"
    path = folder / "opencode.jsonc"
    if not path.exists():
        path = folder / "opencode.json"
    return SettingsFile(path, "opencode", allow_comments=True)


def opencode_settings(gateway_url: str, entries: list[dict[str, Any]], present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that point opencode at a gateway: each model with its provider. `present` are the settings
    of the file, of which an own reference to a key is kept."""
    provider = settings_document("opencode", LaunchPlan(gateway_url, "", ""))["provider"][PROVIDER]
    former = member_object(member_object(member_object(present, "provider"), PROVIDER), "options")
    if "apiKey" in former:
        del provider["options"]["apiKey"]
    provider["models"] = {entry["id"]: opencode_model(entry) for entry in entries}
    changes: dict[str, Any] = {"provider": {PROVIDER: provider}}
    if not present:
        changes = {"$schema": OPENCODE_SCHEMA, **changes}
    return changes


def opencode_model(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return opencode's entry of a provider's model; its costs are dollars per million tokens."""
    served = entry["providers"][0]
    model: dict[str, Any] = {
        "name": entry.get("name") or entry["id"],
        "tool_call": True,
        "reasoning": bool(served.get("reasoning")),
        "attachment": bool(served.get("vision")),
    }
    limits = model_limits(entry)
    if limits:
        model["limit"] = limits
    pricing = entry.get("pricing") or {}
    if pricing.get("prompt") and pricing.get("completion"):
        model["cost"] = {"input": _per_million(pricing["prompt"]), "output": _per_million(pricing["completion"])}
        if float(pricing.get("input_cache_read") or 0):
            model["cost"]["cache_read"] = _per_million(pricing["input_cache_read"])
    return model


def _per_million(price: str) -> float:
    return round(float(price) * PER_MILLION, 4)


def crush_file(environment: Mapping[str, str]) -> SettingsFile:
    """Return the user's settings file of Crush in JSON; Crush merges it with a crushrc beside it."""
    named = environment.get("CRUSH_GLOBAL_CONFIG")
    folder = Path(named) if named else _config_home(environment) / "crush"
    return SettingsFile(folder / "crush.json", "Crush")


def crush_settings(plan: LaunchPlan, choose: bool, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that give Crush the gateway as a provider with one model; `choose` makes it the one that
    Crush uses. `present` are the settings of the file. The key stays in the environment."""
    entry = plan.entry
    model = plan.model
    limits = model_limits(entry)
    described: dict[str, Any] = {
        "id": model,
        "name": entry.get("name") or model,
        "context_window": limits.get("context", DEFAULT_CONTEXT),
    }
    if limits:
        described["default_max_tokens"] = limits["output"]
    former = member_object(member_object(present, "providers"), PROVIDER).get("models")
    models = [entry for entry in former if isinstance(entry, dict)] if isinstance(former, list) else []
    if model not in [entry.get("id") for entry in models]:
        models = [*models, described]
    changes = settings_document("crush", plan)
    changes["providers"][PROVIDER]["models"] = models
    if not choose:
        del changes["models"]
    if not present:
        changes = {"$schema": CRUSH_SCHEMA, **changes}
    return changes


def gemini_file(environment: Mapping[str, str]) -> SettingsFile:
    """Return the user's settings file of Gemini CLI, which may have comments."""
    named = environment.get("GEMINI_CLI_HOME")
    folder = Path(named) if named else Path.home()
    return SettingsFile(folder / ".gemini" / "settings.json", "Gemini CLI", allow_comments=True)


def gemini_settings(present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which Gemini CLI uses the key of the environment. Raises CliError if the user chose
    another sign-in, which stays.

    With an address in the environment alone, Gemini CLI 0.61 chooses the sign-in `gateway` and then refuses it.
    """
    chosen = member_object(member_object(present, "security"), "auth").get("selectedType")
    if chosen not in (None, GEMINI_SIGN_IN):
        raise CliError(
            f"Gemini CLI signs in with {chosen!r}, so it would not use the gateway.",
            f"Run `gemini`, choose /auth and the API key, or set security.auth.selectedType to {GEMINI_SIGN_IN}.",
        )
    return settings_document("gemini", LaunchPlan("", "", ""))


def member_object(value: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    """Return the object of a member, an empty one if it is something else or missing."""
    nested = value.get(member)
    if isinstance(nested, dict):
        return nested
    return {}


def _config_home(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CONFIG_HOME")
    return Path(named) if named else Path.home() / ".config"
