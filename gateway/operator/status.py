"""`status`: the state of the installation, from the reports of its workers and jobs in the database."""

from collections import Counter
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from gateway.build_stamp import full_version
from gateway.catalogue.environment_credentials import is_configured, missing_variables
from gateway.clock import SECOND_US
from gateway.configuration.settings import MANAGE, Server
from gateway.errors import Unavailable
from gateway.metering.clickhouse.clickhouse_http import read_address
from gateway.metering.clickhouse.sink import read_progress
from gateway.operator.installation_commands import Installation, opened, reachable
from gateway.operator.output import AS_JSON, is_json, print_json, print_table, show_time
from gateway.operator.running import describe
from gateway.store import migrations
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.outage_journal import kept_bytes, list_set_aside
from gateway.worker import accepted_configuration
from gateway.worker.installation_state import VERSION_DIGITS, ReportedWorkers, read_workers
from gateway.worker.recurring_jobs import read_reports

# The status of the gateway on this node, for commands that cannot reach the database.

TIMEOUT_S = 5.0
MAX_BYTES = 2_000


def read_readiness(server: Server) -> tuple[int, str] | None:
    """Return status and lines of `/readyz` of the gateway on this host; None if none answers on its port."""
    try:
        with closing(HTTPConnection(reachable(server.host).strip("[]"), server.port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/readyz", headers={"accept": "text/plain"})
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return None


DAY_S = 86_400


@click.command()
@AS_JSON
@click.option(
    "--all", "every", is_flag=True, help="List providers without a key as well, with the settings that each needs."
)
@click.pass_context
def status(ctx: click.Context, every: bool) -> int:
    """Show running nodes and workers, versions, providers, cooldowns and jobs.

    The exit status is 1 if no worker is running, the last run of a job failed or the catalogue's files have mistakes.
    """
    installation = ctx.with_resource(opened())
    report = examine(installation)
    if is_json():
        print_json(report)
    else:
        _show(report, every)
    well = (
        not report["database"]["error"]
        and report["workers"]
        and not report["mistakes"]
        and not any(job["error"] for job in report["jobs"])
    )
    if well:
        return 0
    return 1


def examine(installation: Installation) -> dict[str, Any]:
    """Return the status as JSON values; without the database, what the configuration and this node's files say.

    Reads no rows from a database that still needs migrations.
    """
    database = _database(installation)
    behind = bool(database["pending"] or database["error"])
    state = ReportedWorkers((), (), ())
    jobs: list[dict[str, Any]] = []
    if not behind:
        state = read_workers(installation.database)
        jobs = _list_jobs(installation)
    cooldowns = [to_builtins(one) for one in state.cooldowns]
    return {
        "version": installation.settings.server.version or full_version(),
        "database": database,
        "node": _node(installation) if database["error"] else None,
        "analytics": None if behind else _sink(installation),
        "catalogue": installation.catalogue.version[:VERSION_DIGITS],
        "mistakes": list(installation.accepted.problems),
        "nodes": dict(sorted(Counter(worker.node for worker in state.workers).items())),
        "workers": [worker._asdict() for worker in state.workers],
        "providers": _providers(installation),
        "identities": _show_identities(state),
        "cooldowns": cooldowns,
        "resting": cooldowns,  # the name in earlier releases
        "jobs": jobs,
    }


def _database(installation: Installation) -> dict[str, Any]:
    """Return the database's URL without a password, its migrations (`pending` and those of newer releases), and the
    records that workers of this node keep for it."""
    chosen = installation.settings.database
    state = migrations.SchemaState("", (), ())
    error = None
    try:
        state = migrations.read_state(installation.existing_database)
    except Unavailable as unavailable:
        error = unavailable.message
    return {
        "kind": chosen.scheme,
        "address": describe(chosen),
        "error": error,
        "replica": _replica(installation.existing_database) if not error else None,
        "kept_bytes": kept_bytes(Path(chosen.data_dir) / "journal"),
        "expired_files": [str(path) for path in list_set_aside(Path(chosen.data_dir) / "journal")],
        "migration": state.newest or None,
        "pending": list(state.pending),
        "ahead": list(state.ahead),
    }


def _replica(database: Database) -> dict[str, Any] | None:
    """Return whether reports are read from the replica, and its lag in seconds (null: it does not answer); null without
    a replica."""
    if database.replica is None:
        return None
    return {"used": database.replica.is_usable(), "lag_s": database.replica.measured_s}


def _describe_replica(replica: dict[str, Any]) -> str:
    if replica["lag_s"] is None:
        return "does not answer; reports are read from the primary"
    if replica["lag_s"] > DAY_S:
        return "far behind, or no worker runs; reports are read from the primary"
    if not replica["used"]:
        return f"{replica['lag_s']:.0f} s behind; reports are read from the primary"
    return f"{replica['lag_s']:.0f} s behind; reports are read from it"


def _node(installation: Installation) -> dict[str, Any]:
    """Return what the gateway of this node answers to readiness probes; `ready` is null if none answers."""
    answer = read_readiness(installation.settings.server)
    if answer is None:
        return {"ready": None, "says": None}
    return {"ready": answer[0] == HTTPStatus.OK, "says": answer[1]}


def _describe_node(node: dict[str, Any]) -> str:
    if node["ready"] is None:
        return "No gateway answers on this host at its port."
    state = "serves" if node["ready"] else "does not serve"
    return f"The gateway of this host {state}: {'; '.join(node['says'].splitlines())}"


def _sink(installation: Installation) -> dict[str, Any] | None:
    """Return where usage rows are delivered, and until when they were (null: nothing yet); null without a place."""
    chosen = installation.settings.analytics
    if not chosen.clickhouse_url:
        return None
    address = read_address(chosen.clickhouse_url)
    database = installation.database
    state = read_progress(Documents(database), address, chosen.table)
    if state is None:
        return {"address": address.shown, "delivered_until": None, "behind_s": None}
    behind_s = max(0, database.now_us() - state.cursor_us) // SECOND_US
    return {"address": address.shown, "delivered_until": show_time(state.cursor_us), "behind_s": behind_s}


def _describe_sink(sink: dict[str, Any]) -> str:
    if sink["delivered_until"] is None:
        return f"{sink['address']}; nothing was delivered yet"
    return f"{sink['address']}; usage rows delivered until {sink['delivered_until']}, {sink['behind_s']} s ago"


def _providers(installation: Installation) -> list[dict[str, Any]]:
    environment = installation.settings.environment
    return [
        {
            "provider": provider.id,
            "configured": is_configured(provider, environment),
            "keyless": not provider.key_required,
            "needs": missing_variables(provider, environment) or None,
        }
        for provider in installation.catalogue.providers.values()
    ]


def _show_identities(state: ReportedWorkers) -> list[dict[str, Any]]:
    """Return the workload identities of each worker: source and expiry of the token, and the last failure."""
    return [
        {
            "node": one.node,
            "worker": one.worker,
            "provider": one.provider,
            "source": one.source or None,
            "expires": show_time(one.expires_us or None),
            "failure": one.failure or None,
        }
        for one in state.identities
    ]


def _list_jobs(installation: Installation) -> list[dict[str, Any]]:
    reports = read_reports(Documents(installation.database))
    return [
        {
            "job": report.name,
            "last_run": show_time(report.at_us),
            "last_success": show_time(report.good_us or None),
            "error": report.error or None,
        }
        for report in reports.values()
    ]


def _describe_migration(database: dict[str, Any]) -> str:
    pending = database["pending"]
    ahead = database["ahead"]
    migration = database["migration"] or "none"
    if database["error"]:
        return "unknown"
    if pending:
        return f"{migration}; {len(pending)} pending: run {MANAGE} migrate"
    if ahead:
        return f"{migration}; from a newer release: {', '.join(ahead)}"
    return migration


def _show(report: dict[str, Any], every: bool) -> None:
    facts = [("version", report["version"]), ("database", report["database"]["address"])]
    if report["analytics"]:
        facts.append(("clickhouse", _describe_sink(report["analytics"])))
    if report["database"]["replica"]:
        facts.append(("replica", _describe_replica(report["database"]["replica"])))
    facts += [("migration", _describe_migration(report["database"])), ("catalogue", report["catalogue"])]
    print_table(("WHAT", "IS"), facts, "")
    if report["database"]["error"]:
        click.echo("The database is down: workers, jobs and cooldowns are unknown.")
        click.echo(_describe_node(report["node"]))
    if report["database"]["kept_bytes"]:
        click.echo("Workers of this node keep usage records in local files until the database is back.")
    for path in report["database"]["expired_files"]:
        click.echo(f"Usage records that waited for too long were not posted: {path}")
    if report["mistakes"]:
        count = accepted_configuration.count_of(report["mistakes"])
        click.echo(
            f"The catalogue's files have {count}; the previous version is used. List them: {MANAGE} config check"
        )
    click.echo()
    rows = [
        (row["node"], row["epoch"], row["version"], row["catalogue"], "yes" if row["leads"] else "")
        for row in report["workers"]
    ]
    print_table(
        ("NODE", "WORKER", "VERSION", "CATALOGUE", "LEADS"),
        rows,
        "No worker is running: the gateway does not serve this database.",
    )
    click.echo()
    ready = [row["provider"] for row in report["providers"] if row["configured"] and not row["keyless"]]
    click.echo(f"Providers with a key: {', '.join(ready) or 'none'}.")
    open_ones = [row["provider"] for row in report["providers"] if row["configured"] and row["keyless"]]
    click.echo(f"Providers that need no key: {', '.join(open_ones) or 'none'}.")
    missing = [row for row in report["providers"] if not row["configured"]]
    if every:
        print_table(
            ("PROVIDER", "NEEDS"), [(row["provider"], row["needs"]) for row in missing], "Every provider is configured."
        )
    else:
        click.echo(f"Providers without a key: {len(missing)} (status --all shows what each needs).")
    click.echo()
    if report["identities"]:
        identities = [tuple(row.values()) for row in report["identities"]]
        print_table(("NODE", "WORKER", "PROVIDER", "WORKLOAD IDENTITY", "EXPIRES", "FAILURE"), identities, "")
        click.echo()
    cooldowns = [tuple(row.values()) for row in report["cooldowns"]]
    print_table(("NODE", "PROVIDER", "COOLDOWN", "MODELS AND KEYS"), cooldowns, "No cooldown at any worker.")
    click.echo()
    jobs = [tuple(row.values()) for row in report["jobs"]]
    print_table(("JOB", "LAST RUN", "LAST SUCCESS", "ERROR"), jobs, "No job has run yet.")
