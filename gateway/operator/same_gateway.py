"""Check that a command has the same database and catalogue as the running gateway; otherwise results would mislead."""

import click

from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import MANAGE
from gateway.control.version import Control
from gateway.errors import Conflict
from gateway.operator import running
from gateway.operator.installation_commands import Installation
from gateway.operator.status import VERSION_DIGITS
from gateway.store.documents import Documents
from gateway.telemetry.presence import read_presence

FORCE = click.option("--force", is_flag=True, help="Run even if the catalogue or database differs from the gateway's.")


def check_same(installation: Installation, force: bool) -> None:
    """Raise Conflict if the gateway uses another catalogue or database than this command. `force` skips the check.

    The database is compared only by `./manage`, and only if no worker uses the command's database.
    """
    if force:
        return
    workers = Control.observer(installation.database).live_epochs()
    if workers:
        _check_catalogue(installation, list(workers))
    elif running.seeks():
        _check_database(installation)


def _check_catalogue(installation: Installation, workers: list[int]) -> None:
    presence = read_presence(Documents(installation.database))
    theirs = {presence[epoch].catalogue for epoch in workers if epoch in presence}
    ours = installation.catalogue.version
    if theirs <= {ours}:
        return
    others = ", ".join(sorted(version[:VERSION_DIGITS] for version in theirs - {ours}))
    raise Conflict(
        f"The gateway serves the catalogue {others}, but this command reads {ours[:VERSION_DIGITS]}. Use the gateway's "
        f"GATEWAY_CATALOGUE_PATH and gateway.toml, or send SIGHUP to the gateway if its files have changed ({MANAGE} "
        "status shows the catalogue of each worker). --force continues with the catalogue of this command."
    )


def _check_database(installation: Installation) -> None:
    ours = running.describe(installation.settings.database)
    others = {}
    for gateway in running.find_gateways():
        try:
            others[running.describe(settings.load(gateway.environment).database)] = gateway.pid
        except SettingsError:
            continue  # Its configuration changed after its start and is now invalid.
    if not others or ours in others:
        return
    theirs = ", ".join(f"{database} (process {pid})" for database, pid in sorted(others.items()))
    raise Conflict(
        f"No gateway uses {ours}; the running gateway uses {theirs}. Unset DATABASE_URL, GATEWAY_DATA_DIR and "
        "GATEWAY_CONFIG to work on that database. --force continues with this one."
    )
