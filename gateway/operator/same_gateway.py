"""Whether a command sees what the gateway that runs sees, for those whose answer would mislead where it does not."""

import click

from gateway.configuration import settings
from gateway.configuration.settings import MANAGE, SettingsError
from gateway.control.version import Control
from gateway.errors import Conflict
from gateway.operator import running
from gateway.operator.installation_commands import Installation
from gateway.operator.status import SHOWN
from gateway.store.documents import Documents
from gateway.telemetry.presence import read_presence

FORCE = click.option("--force", is_flag=True, help="Also with another catalogue or database than the gateway's.")


def check_same(installation: Installation, force: bool) -> None:
    """Conflict where workers of this database serve another catalogue than this command has, or where none serves from
    it and a gateway runs here on another one (`./manage` looks for that); nothing is checked with `force`."""
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
    others = ", ".join(sorted(one[:SHOWN] for one in theirs - {ours}))
    raise Conflict(
        f"The gateway serves the catalogue {others}, and this command reads {ours[:SHOWN]}: give it the gateway's own "
        f"GATEWAY_CATALOGUE_PATH and gateway.toml, or SIGHUP to the gateway where its files were changed ({MANAGE} "
        "status tells the catalogue of each worker); --force goes on with the one that was read."
    )


def _check_database(installation: Installation) -> None:
    ours = running.describe(installation.settings.database)
    others = {}
    for gateway in running.find_gateways():
        try:
            others[running.describe(settings.load(gateway.environment).database)] = gateway.pid
        except SettingsError:
            continue  # It runs on what it read when it started.
    if not others or ours in others:
        return
    theirs = ", ".join(f"{database} (process {pid})" for database, pid in sorted(others.items()))
    raise Conflict(
        f"No gateway serves from {ours}; the one that runs here uses {theirs}: leave DATABASE_URL, GATEWAY_DATA_DIR "
        "and GATEWAY_CONFIG unset to work on that; --force goes on with this one."
    )
