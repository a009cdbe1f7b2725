"""Checks that need no request: the configuration, the addresses, the proxy."""

import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from llmgateway_cli.agents.custom import read_custom_agents
from llmgateway_cli.context import ClientContext
from llmgateway_cli.diagnosis.findings import OK, WARNING, Finding, failed
from llmgateway_cli.errors import CliError
from llmgateway_cli.settings import API_KEY, API_URL, DASHBOARD_URL, GATEWAY_URL, KEY_VARIABLE, LOOPBACK_HOSTS
from llmgateway_cli.values import show_many

GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
BASES = {API_URL: "management API", DASHBOARD_URL: "pages", GATEWAY_URL: "models"}


def check_configuration(context: ClientContext) -> Iterator[Finding]:
    """Check the files in the folder of the configuration."""
    settings = context.settings
    try:
        stored = settings.stored
        agents = read_custom_agents(settings.agents_file)
    except CliError as error:
        yield failed("configuration", error)
        return
    for path in (settings.folder, settings.config_file):
        if path.exists() and is_open_to_others(path):
            mode = "700" if path.is_dir() else "600"
            yield Finding(
                "configuration", WARNING, f"Other users may read {path}, which has secrets.", f"chmod {mode} {path}"
            )
    content = show_many(len(stored), "setting") if stored else "no settings yet"
    own = f", {len(agents)} own agents" if agents else ""
    yield Finding("configuration", OK, f"{settings.config_file}: {content}{own}.")


def is_open_to_others(path: Path) -> bool:
    """Return whether users other than the owner have access to a file or folder."""
    return bool(path.stat().st_mode & GROUP_AND_OTHERS)


def check_addresses(context: ClientContext) -> Iterator[Finding]:
    """Check that each base URL is safe to send credentials to."""
    for member, purpose in BASES.items():
        try:
            yield Finding("address", OK, f"{purpose}: {context.settings.base_url(member)}")
        except CliError as error:
            yield failed("address", error)


def check_proxy(context: ClientContext) -> Iterator[Finding]:
    """Check that agents do not send requests to this machine to a proxy; this program itself never does."""
    environment = {name.lower(): value for name, value in context.settings.environment.items()}
    excluded = environment.get("no_proxy", "")
    for url in sorted({context.settings.api_url, context.settings.gateway_url}):
        parts = urlsplit(url)
        host = parts.hostname or ""
        proxy = environment.get(f"{parts.scheme}_proxy") or environment.get("all_proxy")
        if proxy and host in LOOPBACK_HOSTS and host not in excluded and excluded != "*":
            yield Finding(
                "proxy",
                WARNING,
                f"Agents may send requests to {host} to the proxy of {parts.scheme.upper()}_PROXY.",
                f"Add {host} to NO_PROXY.",
            )


def check_key_sources(context: ClientContext) -> Iterator[Finding]:
    """Check that the environment does not hide another stored key."""
    stored = context.settings.stored.get(API_KEY, "")
    named = context.settings.environment.get(KEY_VARIABLE, "").strip()
    if stored and named and stored != named:
        yield Finding(
            "key",
            WARNING,
            f"{KEY_VARIABLE} is used; the other key in {context.settings.config_file} is not.",
            f"Unset {KEY_VARIABLE} to use the stored key.",
        )
