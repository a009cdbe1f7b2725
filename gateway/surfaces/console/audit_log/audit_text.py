"""Entries of the audit log in words: "API key limit updated" for `api_key.update_limit`."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.accounts.machine_members import EMAIL_HOST
from gateway.accounts.project_modes import PROJECT_MODES
from gateway.money import format_usd

# Words of actions and details → how the console writes them.
TERMS = {
    "api": "API",
    "cidrs": "networks",
    "hook": "webhook",
    "id": "ID",
    "oauth": "OAuth access",
    "s": "in seconds",
    "scim": "SCIM",
    "sso": "single sign-on",
    "ttl": "lifetime",
    "url": "URL",
}
# Name and value of a detail → how the console writes them.
PAIRS: dict[tuple[str, str | bool], str] = {
    ("kind", "user"): "allows: calling models, signing in clients",
    ("kind", "customer"): "allows: calling models",
    ("belongs", True): "added",
    ("belongs", False): "removed",
    **{("mode", mode): f"provider keys: {text}" for mode, text in PROJECT_MODES.items()},
}
# Actions that do not read well as subject, part and participle.
PHRASES = {
    "credits.unlimited": "Unlimited spending changed",
    "discount.set": "Discount set",
    "second_factor.use_recovery_code": "Recovery code used",
    "session.delete_others": "Other sessions ended",
    "sso.sign_out": "Signed out by the identity provider",
    "user.ask_password": "New password requested",
}
NANO_SUFFIX = "_nusd"
USD_SUFFIX = "_usd"


def describe_action(action: str) -> str:
    """Return an action of the audit log as a phrase."""
    if action in PHRASES:
        return PHRASES[action]
    subject, _, change = action.partition(".")
    verb, _, part = change.partition("_")
    words = [*_words(subject), *_words(part), _participle(verb)]
    phrase = " ".join(words)
    return phrase[:1].upper() + phrase[1:]


def describe_details(detail: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the details of an entry as "name: value" pairs. `names` are names of people and things by their ids."""
    shown = {name: value for name, value in detail.items() if not _is_empty(value)}
    return ", ".join(_describe(name, value, names) for name, value in shown.items())


def _is_empty(value: Any) -> bool:
    """Return whether a value says nothing: empty, or the address of an account that is no person."""
    return value in ("", "{}", [], {}, None) or str(value).endswith(f"@{EMAIL_HOST}")


def _describe(name: str, value: Any, names: Mapping[str, str]) -> str:
    if name.endswith(NANO_SUFFIX) and isinstance(value, int):
        return f"{_write_name(name.removesuffix(NANO_SUFFIX))}: ${format_usd(value)}"
    if name.endswith(USD_SUFFIX):
        return f"{_write_name(name.removesuffix(USD_SUFFIX))}: ${value}"
    if isinstance(value, str | bool) and (name, value) in PAIRS:
        return PAIRS[name, value]
    return f"{_write_name(name)}: {_write_value(value, names)}"


def _write_name(name: str) -> str:
    return " ".join(_words(name))


def _write_value(value: Any, names: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(names.get(item, item) for item in value)
    return json.dumps(value, ensure_ascii=False).replace("true", "yes").replace("false", "no")


def _words(name: str) -> list[str]:
    return [TERMS.get(word, word) for word in name.split("_") if word]


def _participle(verb: str) -> str:
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y"):
        return f"{verb[:-1]}ied"
    return f"{verb}ed"
