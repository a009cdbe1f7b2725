"""`doctor` and `re-rate`: check the ledger for consistency, and price a period again."""

import click

from gateway.accounts.discounts import Discounts
from gateway.billing import rerating
from gateway.billing.reconciliation import doctor as examine
from gateway.billing.rerating import Report
from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import MANAGE
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest
from gateway.files.file_rows import FileRows
from gateway.money import format_usd
from gateway.operator import running
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, is_json, print_json, print_note, print_table, read_time
from gateway.runtime.plurals import many, plural
from gateway.store.documents import Documents
from gateway.store.installation_identity import key_beside_data
from gateway.telemetry.presence import read_presence
from gateway.worker.installation_state import VERSION_DIGITS

# Check that a command has the same database and catalogue as the running gateway; otherwise results would mislead.

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


@click.command()
@AS_JSON
@FORCE
@click.pass_context
def doctor(ctx: click.Context, force: bool) -> int:
    """Update the rollups and close past hours, then compare ledger, balances, counters, leases, usage rows and rollups;
    and usage rows with those in ClickHouse, if there is one. Read the newest files, and check their object store.

    The exit status is 1 if there is any difference or problem.
    """
    installation = ctx.with_resource(opened())
    check_same(installation, force)
    beside = key_beside_data(installation.settings)
    if beside is not None:
        click.echo(
            f"Warning: a backup of the data folder contains both the encrypted data and its key ({beside}). Move the "
            "key elsewhere and set GATEWAY_ENCRYPTION_KEY_FILE.",
            err=True,
        )
    installation.rollups.catch_up()
    installation.hours.close()
    differences = examine(installation.database)
    if installation.settings.analytics.clickhouse_url:
        differences += installation.services.billing.usage_sink.check()
    if installation.settings.files.s3_bucket_url or FileRows(installation.database).totals()[0]:
        differences += installation.services.engine.files.check()
    if is_json():
        print_json({"agree": not differences, "differences": differences})
    else:
        summary = f"{many(len(differences), 'difference')}." if differences else "The books agree."
        for line in [*differences, summary]:
            click.echo(line)
    return int(bool(differences))


@click.command("re-rate")
@AS_JSON
@click.option("--from", "start", required=True, help="Start: ISO date or time (default: UTC), inclusive.")
@click.option("--to", "end", required=True, help="End: ISO date or time, exclusive.")
@click.option(
    "--prices",
    type=click.Choice(["then", "now"]),
    default="then",
    show_default=True,
    help="The prices at the time of each request, or the current prices.",
)
@FORCE
@click.option("--post", is_flag=True, help="Post the differences to the credits, once for each period and catalogue.")
@click.pass_context
def re_rate(ctx: click.Context, start: str, end: str, prices: str, post: bool, force: bool) -> None:
    """Price the usage of a period again and report the differences. Changes nothing without --post.

    --prices then uses the discounts that were billed, --prices now the current discounts.
    """
    from_us = read_time(start)
    to_us = read_time(end)
    if to_us <= from_us:
        raise InvalidRequest("--to must be later than --from.")
    installation = ctx.with_resource(opened())
    check_same(installation, force)
    catalogue = installation.catalogue
    now_us = installation.database.now_us() if prices == "now" else None
    discounts = Discounts(installation.database, installation.control)
    report = rerating.rerate(installation.database, catalogue, from_us, to_us, now_us=now_us, discounts=discounts)
    _print(report)
    if not post:
        return
    reference = f"{from_us}:{to_us}:{prices}:{catalogue.version[:16]}"
    posted = rerating.post(installation.ledger, report, reference)
    for organization, nusd in posted.items():
        print_note(f"Posted {format_usd(nusd)} USD to {organization}.")
    if not posted:
        print_note("There was nothing to post.")


def _print(report: Report) -> None:
    rows = [
        (
            place.organization,
            place.mapping,
            "credits" if place.billed else "own key",
            line.rows,
            *(format_usd(nusd) for nusd in (line.recorded_nusd, line.rated_nusd, line.difference_nusd)),
        )
        for place, line in sorted(report.lines.items())
    ]
    header = ("ORGANIZATION", "SERVED BY", "PAID BY", "ROWS", "BILLED", "PRICED AGAIN", "DIFFERENCE")
    print_table(header, rows, "There is no usage to price again.")
    for reason, count in sorted(report.left.items()):
        print_note(f"{many(count, 'row')} {plural(count, 'was', 'were')} not priced again: {reason}.")
