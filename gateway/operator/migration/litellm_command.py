"""`migrate litellm`: models, keys, teams and budgets of LiteLLM, with a report of what has no counterpart."""

import csv
import io
import os
from pathlib import Path

import click

from gateway.accounts.organizations import list_organizations
from gateway.errors import Conflict
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.migration.litellm_accounts import (
    AccountMigration,
    AccountPlan,
    IssuedKey,
    plan_accounts,
    read_rows,
)
from gateway.operator.migration.litellm_models import ModelMigration, ModelPlan, read_config, write_toml
from gateway.operator.migration.report import MigrationReport
from gateway.operator.output import AS_JSON, is_json, only_one, print_json, printable
from gateway.surfaces.visitors.tabular import write_cell

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
REPORT, SETTINGS, TOKENS = "report.md", "gateway.toml", "keys.csv"
HEADER = ("name", "former key", "id", "key")


@click.command("litellm")
@AS_JSON
@click.option("--keys", "keys_file", type=FILE, help="The answer of GET /key/list?return_full_object=true.")
@click.option("--teams", "teams_file", type=FILE, help="The answer of GET /team/list.")
@click.option("--budgets", "budgets_file", type=FILE, help="The answer of GET /budget/list.")
@click.option("--output", type=FOLDER, default="litellm-migration", show_default=True, help="Where to write the files.")
@click.option("--organization", default="", help="The organization of keys and teams; default: the only one.")
@click.option("--apply", is_flag=True, help="Make teams and keys. Without it nothing is changed here.")
@click.argument("config", type=FILE)
def litellm(
    config: Path,
    keys_file: Path | None,
    teams_file: Path | None,
    budgets_file: Path | None,
    output: Path,
    organization: str,
    apply: bool,
) -> None:
    """Read CONFIG, LiteLLM's config.yaml, and exports of its management API.

    Writes a part of gateway.toml with providers, models and aliases, and a report, into the folder of --output. With
    --apply it makes the teams and keys and writes the new keys into keys.csv there.
    """
    report = MigrationReport()
    content = read_config(config)
    rows = read_rows(keys_file, "keys"), read_rows(teams_file, "teams"), read_rows(budgets_file, "budgets")
    with opened() as installation:
        models = ModelMigration(installation.catalogue, report).read(content)
        accounts = plan_accounts(*rows, report, installation.clock.now_us())
        issued: list[IssuedKey] = []
        if apply and (accounts.keys or accounts.teams):
            check_scope(installation, organization)
            known = [(info.id, info.name) for info in list_organizations(installation.database)]
            chosen = organization or only_one("organization", known)
            if (output / TOKENS).exists():
                raise Conflict(f"{output / TOKENS} exists already; move it away, since it holds keys.")
            issued = AccountMigration(installation.services, chosen, models.names, report).apply(accounts)
    _write_files(output, models, issued, report)
    _show(output, models, accounts, issued, report, apply)


def _write_files(output: Path, models: ModelPlan, issued: list[IssuedKey], report: MigrationReport) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / REPORT).write_text(report.write())
    _write_private(output / SETTINGS, write_toml(models))
    for name, secret in models.secrets.items():
        _write_private(output / name, secret)
    if issued:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(HEADER)
        rows = ((key.name, key.before, key.key_id, key.token) for key in issued)
        writer.writerows(map(write_cell, row) for row in rows)
        _write_private(output / TOKENS, table.getvalue())


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _show(
    output: Path,
    models: ModelPlan,
    accounts: AccountPlan,
    issued: list[IssuedKey],
    report: MigrationReport,
    applied: bool,
) -> None:
    sections = report.sections()
    if is_json():
        print_json({**sections, "aliases": models.aliases, "keyIds": [key.key_id for key in issued]})
        return
    click.echo(printable(report.write()))
    click.echo(f"{output / SETTINGS}: providers, models and aliases, to be merged into your gateway.toml")
    click.echo(f"{output / REPORT}: this report")
    if issued:
        click.echo(f"{output / TOKENS}: {len(issued)} new keys; they are stored nowhere else")
    elif not applied and (accounts.keys or accounts.teams):
        click.echo("Nothing was changed; --apply makes the teams and keys.")
