"""`catalogue` and `check-catalogue`: the model catalogue's files."""

import importlib

import click

from gateway.catalogue import loader
from gateway.configuration import settings
from gateway.errors import NotFound
from gateway.operator.catalogue_sync import sync
from gateway.operator.output import AS_JSON, print_findings
from gateway.worker import extensions


@click.command("check-catalogue")
@AS_JSON
@click.pass_context
def check_catalogue(ctx: click.Context) -> None:
    """Print every mistake in the catalogue's files; exit status 1 if there is one."""
    own = settings.load()
    extensions.install(own.server.extensions)
    problems = loader.find_problems(loader.sources_of(own))
    print_findings(problems, "The catalogue is valid.")
    ctx.exit(1 if problems else 0)


@click.group()
def catalogue() -> None:
    """The model catalogue."""


@catalogue.command()
@AS_JSON
@click.pass_context
def build(ctx: click.Context) -> None:
    """Build the snapshot of models and prices from the open data sets (requires requirements-dev.txt)."""
    # Imported by name, because the data sets are development dependencies.
    try:
        module = importlib.import_module("gateway.catalogue.build")
    except ImportError as error:
        raise NotFound(f"{error.name} is not installed. Install requirements-dev.txt first.") from None
    ctx.exit(module.main())


catalogue.add_command(check_catalogue, "check")
catalogue.add_command(sync)
