"""Commands that set up the installation and start the server."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import click

from gateway import money
from gateway.admin.bootstrap import KEY_NAME, PASSWORD_NAME, FirstKey, check_first_start
from gateway.admin.sign_in import make_link_token
from gateway.catalogue import last_good
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.environment_credentials import credentials_for
from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import MANAGE, MIGRATE_LATE, ROOT, Settings
from gateway.errors import Unavailable
from gateway.metering.clickhouse import clickhouse_http
from gateway.oauth.clients import LOOPBACK
from gateway.operator import config
from gateway.operator.installation_commands import Installation, address_of, opened
from gateway.operator.output import AS_JSON, print_result
from gateway.runtime.lazy_import import LazyImport
from gateway.secret_text import mask_address
from gateway.server.ports import problem_of
from gateway.store import migrations
from gateway.store.database_addresses import check_scheme
from gateway.store.disk import check_folder, check_room, full_disks
from gateway.store.installation_identity import check_secrets
from gateway.store.redis import answers, check_url
from gateway.worker import accepted_configuration

# With 3.15.0, `yield from` a list failed in a generator of Werkzeug.
MIN_COMPILER_VERSION = (3, 15, 2)
litellm_command = LazyImport("gateway.operator.migration.litellm_command")
KEY_VARIABLE = "LLMGATEWAY_API_KEY"  # used in the example of the banner and of the documents
INHERITED = "LISTEN_FDS"  # set by systemd socket activation: the socket is already open


class MigrateGroup(click.Group):
    """The migration of the database, with migrations from other gateways as commands, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["litellm"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return litellm_command.litellm if cmd_name == "litellm" else None


@click.group(cls=MigrateGroup, invoke_without_command=True)
@AS_JSON
@click.pass_context
def migrate(ctx: click.Context) -> None:
    """Migrate the database to the version of this code, or the configuration of another gateway."""
    if ctx.invoked_subcommand is not None:
        return
    with opened() as installation:
        applied = migrations.migrate(installation.raw_database)
    text = "\n".join(f"applied {name}" for name in applied)
    print_result(text or "The database is up to date.", applied=applied)


@click.command()
@AS_JSON
def seed() -> None:
    """Create the first organization, project, owner and API key. Prints the key on the first run only."""
    with opened() as installation:
        first = installation.administration.bootstrap(installation.settings, installation.grant)
    print_result("\n".join(describe_key(first)), **key_fields(first))


@click.command("serve-info")
@AS_JSON
def serve_info() -> None:
    """Complete the set-up, then print the URL, the API key and an example request."""
    prepare(accepted_configuration.check().catalogue).show()


@click.command()
@AS_JSON
@click.option(
    "--config", "file", metavar="FILE", help="The configuration file (default: gateway.toml beside the data)."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(file: str | None, arguments: tuple[str, ...]) -> None:
    """Complete the set-up, print the URL and serve. ARGUMENTS after -- are passed to gunicorn."""
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
    folder = ROOT / "launch"
    if not folder.is_dir():
        folder = ROOT
    options = ("-c", str(folder / "gunicorn.conf.py"), "--pythonpath", str(folder))
    command = [sys.executable, "-m", "gateway.server.launch", *options, "wsgi:app", *arguments]
    os.execve(sys.executable, command, environment)


def await_store(error: Unavailable) -> str:
    """Return a warning if the database is unavailable: the server starts and waits for it.

    Raises SettingsError on the first start, because then a person is present to correct the configuration.
    """
    chosen = settings.load()
    full = full_disks(chosen.database)
    reason = full[0] if full else str(error.__cause__ or error).strip().splitlines()[0]
    if not served_before(chosen):
        if chosen.database.scheme == "sqlite":
            raise SettingsError(
                f"The database file cannot be used: {reason}. Move it, or configure another file"
            ) from None
        raise SettingsError(
            f"DATABASE_URL: {reason}. Start the database server, or correct its address, user and password"
        ) from None
    return f"Warning: the database is unavailable ({reason}). The gateway becomes ready when the database is back"


def served_before(chosen: Settings) -> bool:
    """Return whether a server has run with this data folder before."""
    return (Path(chosen.database.data_dir) / last_good.FOLDER).is_dir()


def examine() -> tuple[list[str], dict[str, str], Catalogue]:
    """Check the configuration before anything is created or printed.

    Return warnings, the environment for the server and the catalogue to serve. Raises SettingsError or CatalogueError
    for anything that would prevent the server from starting.
    """
    accepted = accepted_configuration.check()
    server = accepted.settings.server
    database = accepted.settings.database
    problems = []
    if INHERITED not in accepted.settings.environment:
        problem = problem_of(server.host, server.port)
        if problem:
            problems.append(problem)
    checks = [
        partial(check_scheme, database),
        partial(check_url, accepted.settings.redis),
        partial(clickhouse_http.check_address, accepted.settings.analytics),
        partial(check_secrets, accepted.settings),
        partial(check_folder, Path(database.data_dir)),
    ]
    if not served_before(accepted.settings):
        checks += [partial(check_room, Path(database.data_dir)), partial(check_first_start, accepted.settings)]
    for check in checks:
        try:
            check()
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("\n".join(problems))
    warnings = []
    if accepted.problems:
        warnings.append(
            f"Warning: the catalogue's files have {accepted_configuration.count_of(accepted.problems)}. The gateway "
            f"serves the catalogue of {accepted.since}: {accepted_configuration.in_one_line(accepted.problems)}"
        )
    if not answers(accepted.settings.redis):
        url = mask_address(accepted.settings.redis.url)
        warnings.append(
            f"Warning: Redis does not respond at {url} (REDIS_URL); the gateway serves without it until it does"
        )
    return [*warnings, *find_compiler_faults()], settings.inherited(), accepted.catalogue


def find_compiler_faults() -> list[str]:
    """Return a warning if an enabled JIT compiler of Python is older than the first one that passed all tests."""
    compiler = getattr(sys, "_jit", None)
    if compiler is None or not compiler.is_enabled() or sys.version_info >= MIN_COMPILER_VERSION:
        return []
    used, needed = (".".join(map(str, version[:3])) for version in (sys.version_info, MIN_COMPILER_VERSION))
    return [
        f"Warning: the JIT compiler of Python {used} is not supported, since early ones make wrong code. Start without "
        f"PYTHON_JIT, or with Python {needed} or later"
    ]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The facts that are printed at start. `owner` is the e-mail address of the first user."""

    address: str
    first: FirstKey
    providers: list[str]
    owner: str
    has_password: bool
    link: str = ""

    def show(self, warnings: Sequence[str] = ()) -> None:
        """Print the warnings, the facts and an example request."""
        lines = [*warnings, f"Gateway: {self.address}", *describe_key(self.first), describe_providers(self.providers)]
        if self.link:
            lines.append(f"Open the console (signs you in once, within half an hour): {self.link}")
        lines.append(describe_pages(self.address, self.owner, self.has_password, self.first.created))
        text = "\n".join([*lines, *describe_request(self.address, self.first)])
        fields = {"address": self.address, **key_fields(self.first), "providers": self.providers}
        print_result(text, **fields, warnings=list(warnings))


def prepare(catalogue: Catalogue) -> Welcome:
    """Migrate the database and create the first rows. The result lists the providers of `catalogue`."""
    with opened() as installation:
        migrations.migrate(installation.raw_database)
        first = installation.administration.bootstrap(installation.settings, installation.grant)
        environment = installation.settings.environment
        keyed = [provider.id for provider in catalogue.providers.values() if credentials_for(provider, environment)]
        owner = installation.settings.bootstrap.email
        has_password = bool(installation.settings.secret(PASSWORD_NAME))
        address = address_of(installation)
        return Welcome(address, first, keyed, owner, has_password, make_link(installation, address, owner))


def make_link(installation: Installation, address: str, owner: str) -> str:
    """Return a sign-in link for a person at the terminal of this machine. Other output may be a log, in
    which no link must appear."""
    if not sys.stdout.isatty() or urlsplit(address).hostname not in LOOPBACK:
        return ""
    token = make_link_token(installation.database, installation.secrets.hash_keys[0], owner)
    if not token:
        return ""
    return f"{address}/console/welcome?token={token}"


def describe_providers(keyed: list[str]) -> str:
    """Return a line with the providers that have a key, and how to add a key."""
    how = "To add one, open Provider keys in the console, or set its variable (such as OPENAI_API_KEY) and restart."
    if not keyed:
        return f"Providers: no keys yet. The sandbox answers; it repeats your messages and runs no model. {how}"
    return f"Providers with a key: {', '.join(keyed)}. {how}"


def describe_pages(address: str, owner: str, has_password: bool, first_start: bool) -> str:
    """Return a line with the URL of the console and how to sign in."""
    command = f"{MANAGE} members set-password"
    if not first_start:
        return f"Console: {address}/console (to set a password: {command} <e-mail>)"
    if has_password:
        return f"Console: {address}/console (sign in as {owner} with the password in {PASSWORD_NAME})"
    return f"Console: {address}/console (sign in as {owner}; set a password first: {command} {owner})"


def describe_key(first: FirstKey) -> list[str]:
    """Return lines about the first key: the token on the first start, afterwards only its mask."""
    command = f"{MANAGE} keys create --description <text>"
    lines = []
    if first.stranger:
        lines.append(f"Warning: {KEY_NAME} is not a key of this installation; it is used on the first start only.")
    if first.key is None:
        return [*lines, f"API key: none is active. Create one: {command}"]
    if first.token:
        lines += [f"API key: {first.token}", "Save it now: it is not shown again."]
    elif first.created:
        lines.append(f"API key: {first.key.mask} (from {KEY_NAME})")
    else:
        lines.append(f"API key: {first.key.mask} (create another: {command})")
    if first.created:
        lines += [describe_credits(first.granted_nusd)]
    return lines


def key_fields(first: FirstKey) -> dict[str, object]:
    """Return the fields about the first key for --json; the credits only on the first start."""
    fields: dict[str, object] = {"key": first.key and first.key.id, "token": first.token or None}
    if not first.created:
        return fields
    if first.granted_nusd is None:
        fields["credits_usd"] = "unlimited"
    else:
        fields["credits_usd"] = money.format_usd(first.granted_nusd)
    return fields


def describe_credits(granted_nusd: int | None) -> str:
    """Return a line about the credits of the first organization and how to change them."""
    if granted_nusd is None:
        return "Credits: unlimited. Usage is counted, but no request is rejected for lack of credits."
    return (
        f"Credits: ${money.format_usd(granted_nusd)} prepaid. Requests are rejected when the credits are used up "
        f"(add more: {MANAGE} credits grant <usd>; no limit: {MANAGE} credits unlimited)"
    )


def describe_request(address: str, first: FirstKey) -> list[str]:
    """Return an example request as a curl command. It works without the credentials of a provider."""
    token = first.token or "<your API key>"
    body = '{"model": "auto", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'
    return [
        "Try:",
        f"  export {KEY_VARIABLE}='{token}'",
        f"  curl -N {address}/v1/chat/completions \\",
        f'    -H "Authorization: Bearer ${KEY_VARIABLE}" -H "Content-Type: application/json" \\',
        f"    -d '{body}'",
    ]
