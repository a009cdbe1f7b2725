"""`catalogue` and `check-catalogue`: the model catalogue's files."""

import importlib
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gateway.catalogue import loader
from gateway.catalogue.catalogue import day_of
from gateway.catalogue.entries import Mapping
from gateway.catalogue.environment_credentials import missing_variables
from gateway.catalogue.offered_models import ListComparison, ProposedEntry, compare, propose, write_entries
from gateway.configuration import settings
from gateway.configuration.settings import Settings
from gateway.errors import InvalidRequest, NotFound
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_findings, print_note, print_table
from gateway.providers.model_lists import fetch_models
from gateway.providers.protocol import Target
from gateway.runtime.plurals import many
from gateway.worker import extensions
from gateway.worker.services import Services
from gateway.worker.wiring import build as wiring_build

# `catalogue sync`: compares a provider's own model list with the catalogue, and proposes entries.

HEADER = ("DIFFERENCE", "MODEL", "DETAILS")
# Folder of a catalogue → the kind of its entries.
ENTRY_KINDS = {"providers": "mappings", "models": "models"}
ADVICE = "Reload the gateway (SIGHUP) to serve it."


@click.command()
@click.argument("provider")
@click.option(
    "--output", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="Write the proposed entries into files of this folder, for a review.",
)  # fmt: skip
@click.option("--apply", "applies", is_flag=True, help="Write complete entries into GATEWAY_CATALOGUE_PATH.")
@AS_JSON
@click.pass_context
def sync(ctx: click.Context, provider: str, folder: Path | None, applies: bool) -> None:
    """Request a provider's model list with the configured key, and print new, changed and removed models.

    Nothing is written without --output or --apply. Entries without a price, and those of models that are gone, are
    proposed as comments and never applied.
    """
    settings = ctx.with_resource(opened()).settings
    services = wiring_build(settings)
    ctx.call_on_close(services.close)
    catalogue = services.routing.catalogue.current()
    day = day_of(services.clock.now_us())
    offered = fetch_models(services.routing.transport, _target(services, provider))
    comparison = compare(catalogue, provider, offered, day)
    name = catalogue.providers[provider].name
    print_table(
        HEADER, _rows(comparison), f"The catalogue agrees with {many(len(offered), 'model')} that {name} lists."
    )
    entries = propose(comparison, day)
    if folder is not None:
        for path in _write(folder, provider, entries):
            print_note(f"Written: {path}")
    if applies:
        _apply(settings, provider, [entry for entry in entries if entry.ready])


def _target(services: Services, provider_id: str) -> Target:
    """Return the target of a call with the first key of the environment."""
    catalogue = services.routing.catalogue.current()
    provider = catalogue.provider(provider_id)
    if provider is None:
        raise NotFound(f"There is no provider {provider_id}.")
    credentials = services.routing.credentials.platform().get(provider_id)
    if not credentials:
        variables = missing_variables(provider, services.settings.environment)
        raise NotFound(f"There is no key for {provider.name}: set {variables or 'its key in the environment'}.")
    return services.routing.credentials.target(Mapping(provider_id, "", ""), provider, credentials[0])


def _rows(comparison: ListComparison) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for new in comparison.new:
        if new.offered.prices:
            price = ", ".join(f"{name} {text}" for name, text in new.offered.prices.items())
        elif new.nearest is not None:
            price = f"no price in the list; the nearest model is {new.nearest.model}"
        else:
            price = "no price in the list"
        rows.append(("new", new.offered.external_id, price))
    for change in comparison.changed:
        fields = ", ".join(f"{name}: {old or '-'} → {value}" for name, (old, value) in change.fields.items())
        rows.append(("changed", change.mapping.key.partition("/")[2], fields))
    rows += (("gone", mapping.key.partition("/")[2], "") for mapping in comparison.gone)
    rows += (("unnamed", ident, "cannot be an id of the catalogue") for ident in comparison.unnamed)
    return rows


def _write(folder: Path, provider: str, entries: Sequence[ProposedEntry]) -> list[Path]:
    """Write the entries as files of a catalogue folder, and return the files. Existing files are refused."""
    files = {folder / kind / f"{provider}.toml": write_entries(entries, of) for kind, of in ENTRY_KINDS.items()}
    files = {path: text for path, text in files.items() if text}
    for path in files:
        if path.exists():
            raise InvalidRequest(f"{path} exists; choose another folder.")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(files)


def _apply(settings: Settings, provider: str, entries: Sequence[ProposedEntry]) -> None:
    """Append the entries to the operator's files. They are checked in a copy of the folder first."""
    path = settings.catalogue.path
    if not path:
        raise InvalidRequest("Set GATEWAY_CATALOGUE_PATH to the folder of your catalogue files, which --apply extends.")
    folder = Path(path)
    changes = {kind: _additions(folder / kind / f"{provider}.toml", of, entries) for kind, of in ENTRY_KINDS.items()}
    changes = {kind: text for kind, text in changes.items() if text}
    if not changes:
        print_note("There is nothing to apply.")
        return
    with tempfile.TemporaryDirectory() as place:
        trial = Path(place) / "catalogue"
        if folder.exists():
            shutil.copytree(folder, trial)
        _append(trial, provider, changes)
        problems = loader.find_problems(replace(loader.sources_of(settings), path=str(trial)))
    if problems:
        raise InvalidRequest("The entries were not applied:\n" + "\n".join(problems))
    _append(folder, provider, changes)
    print_note(f"Applied to {folder}. {ADVICE}")


def _additions(path: Path, kind: str, entries: Sequence[ProposedEntry]) -> str:
    """Return the TOML of entries that the operator's file does not have; the others are named."""
    present: set[tuple[str, str]] = set()
    if path.exists():
        rows = tomllib.loads(path.read_text("utf-8")).get(kind, [])
        present = {(row.get("model") or row.get("id", ""), row.get("region", "")) for row in rows}
    for entry in entries:
        if entry.kind == kind and entry.key in present:
            print_note(f"Not applied: {entry.key[0]} has an entry in {path}.")
    return write_entries([entry for entry in entries if entry.key not in present], kind)


def _append(folder: Path, provider: str, changes: dict[str, str]) -> None:
    """Extend the files; each is replaced as a whole."""
    for kind, text in changes.items():
        path = folder / kind / f"{provider}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text("utf-8").rstrip() + "\n\n" if path.exists() else ""
        fresh = path.with_suffix(".new")
        fresh.write_text(before + text, "utf-8")
        fresh.replace(path)


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
