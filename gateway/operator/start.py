"""Commands that set the installation up and start it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from gateway import money
from gateway.admin.bootstrap import KEY_NAME, PASSWORD_NAME, FirstKey, check_first_start
from gateway.catalogue import last_good
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.environment_credentials import credentials_for
from gateway.configuration import effective_values, settings
from gateway.configuration.settings import MANAGE, MIGRATE_LATE, ROOT, Settings, SettingsError
from gateway.errors import Unavailable
from gateway.operator import config
from gateway.operator.installation_commands import address_of, opened
from gateway.operator.output import AS_JSON, print_result
from gateway.server.ports import problem_of
from gateway.store import migrations
from gateway.store.database import check_scheme
from gateway.store.disk import check_folder, check_room, full_disks
from gateway.store.installation_identity import check_secrets
from gateway.store.redis import answers, check_url
from gateway.worker import accepted_configuration

KEY_VARIABLE = "LLMGATEWAY_API_KEY"  # in the example of the banner and in those of the documents
INHERITED = "LISTEN_FDS"  # set by whoever listens for the gateway, as systemd may


@click.command()
@AS_JSON
def migrate() -> None:
    """Migrate the database to the version of this code."""
    with opened() as installation:
        applied = migrations.migrate(installation.raw_database)
    text = "\n".join(f"applied {name}" for name in applied)
    print_result(text or "The database is up to date.", applied=applied)


@click.command()
@AS_JSON
def seed() -> None:
    """Make the first organization, project, owner and key; print the key's token the first time."""
    with opened() as installation:
        first = installation.administration.bootstrap(installation.settings, installation.grant)
    print_result("\n".join(describe_key(first)), **facts_of(first))


@click.command("serve-info")
@AS_JSON
def serve_info() -> None:
    """Set up what is missing, then print address, key and a first request."""
    prepare(accepted_configuration.check().catalogue).show()


@click.command()
@AS_JSON
@click.option("--config", "file", metavar="FILE", help="The operator's file, as for the command itself.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(file: str | None, arguments: tuple[str, ...]) -> None:
    """Set up what is missing, print how to reach it, then serve. ARGUMENTS go to gunicorn (after --)."""
    if file:
        config.choose(file)
    warnings, environment, catalogue = examine()
    try:
        prepare(catalogue).show(warnings)
    except Unavailable as error:
        warnings.append(await_store(error))
        print_result("\n".join(warnings), warnings=warnings)
        environment = {**environment, MIGRATE_LATE: "1"}
    # The server replaces this process: signals reach it directly and nothing opened here is inherited.
    sys.stdout.flush()
    if (ROOT / "launch").is_dir():
        folder = ROOT / "launch"
    else:
        folder = ROOT
    chosen = ("-c", str(folder / "gunicorn.conf.py"), "--pythonpath", str(folder))
    command = [sys.executable, "-m", "gateway.server.launch", *chosen, "wsgi:app", *arguments]
    os.execve(sys.executable, command, environment)


def await_store(error: Unavailable) -> str:
    """What to say of a store that is away as a server starts that served before: it comes up and waits. SettingsError
    at a first start, at which somebody looks on who can put it right."""
    chosen = settings.load()
    full = full_disks(chosen.database)
    if full:
        reason = full[0]
    else:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
    if not served_before(chosen):
        if chosen.database.scheme == "sqlite":
            raise SettingsError(f"The database file cannot be used: {reason}; move it away, or name another") from None
        raise SettingsError(
            f"DATABASE_URL: {reason}; start that server, or correct address, user and password"
        ) from None
    return f"Warning: the database is away ({reason}); the gateway is not ready until it is back"


def served_before(chosen: Settings) -> bool:
    """Whether a server has served from this data folder."""
    return (Path(chosen.database.data_dir) / last_good.FOLDER).is_dir()


def examine() -> tuple[list[str], dict[str, str], Catalogue]:
    """What would keep the server from coming up is an error here, before anything is made or shown; the lines tell of
    what does not keep it. With the environment for the server, and the catalogue that it would serve. SettingsError,
    CatalogueError."""
    found = accepted_configuration.check()
    server = found.settings.server
    database = found.settings.database
    if INHERITED in found.settings.environment:
        problem = ""
    else:
        problem = problem_of(server.host, server.port)
    problems = [problem] if problem else []
    checks = [
        partial(check_scheme, database),
        partial(check_url, found.settings.redis),
        partial(check_secrets, found.settings),
        partial(check_folder, Path(database.data_dir)),
    ]
    if not served_before(found.settings):
        checks += [partial(check_room, Path(database.data_dir)), partial(check_first_start, found.settings)]
    for look_at in checks:
        try:
            look_at()
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("\n".join(problems))
    warnings = []
    if found.problems:
        warnings.append(
            f"Warning: the catalogue that was in force on {found.since} is served, for its files have "
            f"{accepted_configuration.count_of(found.problems)}: {accepted_configuration.in_one_line(found.problems)}"
        )
    if not answers(found.settings.redis):
        where = effective_values.mask(found.settings.redis.url)
        warnings.append(
            f"Warning: no Redis answers at {where} (REDIS_URL); the gateway serves without it until one does"
        )
    return warnings, settings.inherited(), found.catalogue


@dataclass(frozen=True, slots=True)
class Welcome:
    """What is told of an installation as it starts: address, first key, providers that have keys; `owner` is the
    e-mail address of the first person, who has a password or not."""

    address: str
    first: FirstKey
    providers: list[str]
    owner: str
    has_password: bool

    def show(self, warnings: Sequence[str] = ()) -> None:
        """Print it, warnings first, with what tells a newcomer how to send a first request."""
        lines = [*warnings, f"Gateway: {self.address}", *describe_key(self.first), describe_providers(self.providers)]
        lines.append(describe_pages(self.address, self.owner, self.has_password, self.first.created))
        text = "\n".join([*lines, *describe_request(self.address, self.first)])
        facts = {"address": self.address, **facts_of(self.first), "providers": self.providers}
        print_result(text, **facts, warnings=list(warnings))


def prepare(catalogue: Catalogue) -> Welcome:
    """Migrate and seed; the providers told of are those of `catalogue`."""
    with opened() as installation:
        migrations.migrate(installation.raw_database)
        first = installation.administration.bootstrap(installation.settings, installation.grant)
        environment = installation.settings.environment
        keyed = [one.id for one in catalogue.providers.values() if credentials_for(one, environment)]
        owner = installation.settings.bootstrap.email
        has_password = bool(installation.settings.secret(PASSWORD_NAME))
        return Welcome(address_of(installation), first, keyed, owner, has_password)


def describe_providers(keyed: list[str]) -> str:
    """Which providers have a key, and how another one gets one."""
    how = "set LLM_<ID>_API_KEY or the vendor's usual variable"
    if not keyed:
        echo = "the sandbox answers and echoes what it is sent; no model runs"
        return f"Providers: none has a key, so {echo}; to add one, {how} and start again"
    return f"Providers with a key: {', '.join(keyed)}; to add one, {how}, then restart"


def describe_pages(address: str, owner: str, has_password: bool, first_start: bool) -> str:
    """Where people sign in; on the first start also as whom, and how there is a password."""
    set_one = f"{MANAGE} members set-password"
    if not first_start:
        return f"Pages: {address}/connect (no password, or forgotten: {set_one} <e-mail>)"
    if has_password:
        return f"Pages: {address}/connect (sign in as {owner} with the password of {PASSWORD_NAME})"
    return f"Pages: {address}/connect (sign in as {owner}, after {set_one} {owner})"


def describe_key(first: FirstKey) -> list[str]:
    """What to print of the first key: its token once, its mask ever after."""
    another = f"{MANAGE} keys create --description <text>"
    lines = [f"Warning: {KEY_NAME} is not a key of this installation; it counts on the first start only."]
    lines = lines if first.stranger else []
    if first.key is None:
        return [*lines, f"API key: none is active; make one with: {another}"]
    if first.token:
        lines += [f"API key: {first.token}", "Save it now: it is not shown again."]
    else:
        if first.created:
            origin = f" (from {KEY_NAME})"
        else:
            origin = f" (make another with: {another})"
        lines += [f"API key: {first.key.mask}{origin}"]
    if first.created:
        lines += [describe_credits(first.granted_nusd)]
    return lines


def facts_of(first: FirstKey) -> dict[str, object]:
    """The same for programs; what was credited only on a first start."""
    facts: dict[str, object] = {"key": first.key and first.key.id, "token": first.token or None}
    if not first.created:
        return facts
    granted = first.granted_nusd
    return {**facts, "credits_usd": "unlimited" if granted is None else money.format_usd(granted)}


def describe_credits(granted_nusd: int | None) -> str:
    """What the first organization may spend, and how to change it."""
    if granted_nusd is None:
        return "Credits: unlimited; usage is counted, and nothing is refused for want of credits."
    return (
        f"Credits: ${money.format_usd(granted_nusd)}, prepaid; requests are refused once they are spent "
        f"(more: {MANAGE} credits grant <usd>; none needed: {MANAGE} credits unlimited)"
    )


def describe_request(address: str, first: FirstKey) -> list[str]:
    """A first request as a curl command that works without any provider's credential."""
    token = first.token or "<your API key>"
    body = '{"model": "auto", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'
    return [
        "Try:",
        f"  export {KEY_VARIABLE}='{token}'",
        f"  curl -N {address}/v1/chat/completions \\",
        f'    -H "Authorization: Bearer ${KEY_VARIABLE}" -H "Content-Type: application/json" \\',
        f"    -d '{body}'",
    ]
