"""The installation that operator commands work on: settings, store and control version, each opened on first use."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from gateway.accounts.organizations import find_organization
from gateway.accounts.passwords import Passwords
from gateway.accounts.projects import find_project
from gateway.admin.bootstrap import Administration, Grant
from gateway.billing.ledger_close import LedgerClose
from gateway.callers.vault import Vault
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import SECOND_US, Clock
from gateway.configuration import settings
from gateway.control.leadership import TERM_DURATION_S
from gateway.control.version import Control
from gateway.errors import Conflict, NotFound
from gateway.limits.ledger import LedgerBook
from gateway.metering.rollups.job import Rollups
from gateway.operator import running
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import Threads
from gateway.store import migrations
from gateway.store.database import Database, open_database, open_replica
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets, load_secrets
from gateway.worker import accepted_configuration as accepted
from gateway.worker.services import Services
from gateway.worker.wiring import build


class Installation:
    """The objects of one command. Uses the store of the settings, or the database `url`; call `close` after use.

    `states` receives the state changes of the store.
    """

    def __init__(self, url: str = "", states: StateLog | None = None) -> None:
        self._url = url
        self._states = states

    @cached_property
    def settings(self) -> settings.Settings:
        own = settings.load()
        if self._url:
            return replace(own, database=replace(own.database, url=self._url))
        return own

    @cached_property
    def accepted(self) -> accepted.Accepted:
        """The configuration for a server start; invalid catalogue files are replaced by the last valid copy."""
        return accepted.check()

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that workers serve."""
        return self.accepted.catalogue

    @cached_property
    def clock(self) -> Clock:
        return Clock()

    @cached_property
    def threads(self) -> Threads:
        return Threads()

    @cached_property
    def passwords(self) -> Passwords:
        return Passwords()

    @cached_property
    def raw_database(self) -> Database:
        """The store, whether or not it is migrated."""
        running.announce(self.settings.database)
        chosen = self.settings.database
        states = self._states or StateLog()
        database = open_database(chosen, self.clock, self.threads, states)
        database.replica = open_replica(chosen, round(TERM_DURATION_S * SECOND_US), self.clock, states)
        database.bind()
        return database

    @property
    def existing_database(self) -> Database:
        """The store, whether or not it is migrated. Raises NotFound if the SQLite file does not exist."""
        chosen = self.settings.database
        if chosen.scheme == "sqlite" and not running.file_of(chosen).exists():
            raise NotFound(
                f"There is no database at {running.file_of(chosen)}. Create it with {settings.MANAGE} serve, or choose "
                "another one with GATEWAY_DATA_DIR, DATABASE_URL or GATEWAY_CONFIG."
            )
        return self.raw_database

    @cached_property
    def database(self) -> Database:
        """The store, migrated to the version of this code. Raises Conflict otherwise."""
        problems = migrations.verify(self.existing_database)
        if problems:
            raise Conflict(f"The database is not ready: {problems[0]}")
        return self.raw_database

    @property
    def report_database(self) -> Database:
        """The store for usage reports, which ClickHouse answers if the settings say so. Raises as `database`."""
        if self.settings.analytics.reports == "clickhouse":
            return self.services.store.database
        return self.database

    @cached_property
    def services(self) -> Services:
        """The services of a worker that is not started: it has no row among the workers and runs no jobs. Raises
        Conflict if the database is not migrated."""
        self.database.close()
        del self.raw_database  # the services open the store themselves
        return build(self.settings, self._states, self.catalogue)

    @cached_property
    def control(self) -> Control:
        return Control.observer(self.database)

    @cached_property
    def secrets(self) -> Secrets:
        return load_secrets(self.settings, self.database)

    @cached_property
    def administration(self) -> Administration:
        return Administration(self.database, self.control, self.secrets, self.passwords)

    @cached_property
    def vault(self) -> Vault:
        return Vault(self.secrets.encryption_keys)

    @cached_property
    def ledger(self) -> LedgerBook:
        return LedgerBook(self.database, self.control)

    @cached_property
    def hours(self) -> LedgerClose:
        return LedgerClose(self.database, Documents(self.database), self.ledger)

    @cached_property
    def rollups(self) -> Rollups:
        return Rollups(self.database)

    @property
    def grant(self) -> Grant:
        """The function that grants the credits of the first organization."""
        return self.ledger.begin

    def close(self) -> None:
        """Close the objects that were opened."""
        if "services" in self.__dict__:
            self.services.close()
        if "raw_database" in self.__dict__:
            self.raw_database.close()
        if "threads" in self.__dict__:
            self.threads.close()
        if "passwords" in self.__dict__:
            self.passwords.close()


@contextmanager
def opened(url: str = "", states: StateLog | None = None) -> Iterator[Installation]:
    """Open an installation and close it at the end of the block."""
    installation = Installation(url, states)
    try:
        yield installation
    finally:
        installation.close()


def check_scope(installation: Installation, organization: str = "", project: str = "") -> None:
    """Raise NotFound for the id of an unknown organization or project, instead of an empty and misleading list."""
    if organization:
        find_organization(installation.database, organization)
    if project:
        find_project(installation.database, project)


def address_of(installation: Installation) -> str:
    """Return the URL of the gateway, without a trailing slash."""
    server = installation.settings.server
    return server.public_url.rstrip("/") or f"http://{reachable(server.host)}:{server.port}"


def reachable(host: str) -> str:
    """Return an address at which a server that listens at `host` can be reached from here."""
    if host in ("", "0.0.0.0", "::", "[::]"):
        return "127.0.0.1"
    if ":" in host and not host.startswith("["):
        return f"[{host}]"
    return host
