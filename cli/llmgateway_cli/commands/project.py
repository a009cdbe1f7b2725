"""The commands `add`, `dev` and `upgrade`, which work in the folder of a project."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from llmgateway_cli.agents.programs import replace_process
from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import replace_file
from llmgateway_cli.projects.installation import resolve_command
from llmgateway_cli.projects.manifest import READABLE, Manifest, read_manifest, require_manifest
from llmgateway_cli.projects.pieces import NAMES, missing_package_file, read_piece
from llmgateway_cli.projects.upgrades import Upgrade, find_upgrade, product_packages

PACKAGES = "package.json"
DEPENDENCIES = frozenset((PACKAGES, "requirements.txt"))
DEFAULT_PORT = 3000


@click.command(cls=ClientCommand)
@click.argument("kind", metavar="[tool|route]", required=False)
@click.argument("name", required=False)
@click.option("-y", "--yes", is_flag=True, help="Replace existing files without asking.")
@json_option
@pass_context
def add(context: ClientContext, /, kind: str | None, name: str | None, yes: bool) -> None:
    """Add a tool (weather, search, calculator) or a route (generate, chat) to the project in this folder."""
    folder = Path.cwd()
    manifest = require_manifest(folder)
    kind = _choose(context, "What should be added?", kind, tuple(NAMES), "`add tool NAME` or `add route NAME`")
    name = _choose(context, f"Which {kind}?", name, NAMES[kind], f"`add {kind} NAME`")
    piece = read_piece(kind, name, manifest.definition, manifest.values)
    place = folder / piece.path
    if place.exists() and not context.output.confirm(f"{piece.path} exists. Replace it?", yes):
        return
    package = missing_package_file(piece.path, folder)
    if package:
        replace_file(folder / package, "", READABLE)
    replace_file(place, piece.text, READABLE)
    if context.output.as_json:
        context.output.document({"kind": kind, "name": name, "path": piece.path})
    context.output.success(f"Wrote {piece.path}.")
    if piece.use:
        context.output.info(piece.use)


def _choose(context: ClientContext, question: str, given: str | None, names: Sequence[str], option: str) -> str:
    """Return the given name, or the one that the user chooses. Raises CliError for an unknown name."""
    if given is None:
        return context.output.choose(question, [(name, name) for name in names], option)
    if given not in names:
        raise CliError(f"{given!r} cannot be added.", f"Choose one of: {', '.join(names)}.")
    return given


@click.command(cls=ClientCommand)
@click.option("-p", "--port", type=IntegerOption(1, 65535), help=f"PORT of the project (default: {DEFAULT_PORT}).")
@pass_context
def dev(context: ClientContext, /, port: int | None) -> None:
    """Start the project in this folder."""
    folder = Path.cwd()
    environment = dict(context.settings.environment)
    if port is not None or "PORT" not in environment:
        environment["PORT"] = str(port or DEFAULT_PORT)
    manifest = read_manifest(folder)
    command = _npm_script(folder) if manifest is None else list(manifest.definition.dev)
    program = resolve_command(command, folder, environment)
    context.output.info(f"Starting `{' '.join(command)}` with PORT={environment['PORT']}.")
    replace_process(program, environment)


def _npm_script(folder: Path) -> list[str]:
    """Return the command that runs the script `dev` of a package. Raises CliError without one."""
    path = folder / PACKAGES
    try:
        members = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        members = None
    if not isinstance(members, dict):
        raise CliError(
            f"{folder} is not a project: it has neither llmgateway.json nor a readable {PACKAGES}.",
            "Go to a project's folder, or make one with `llmgateway init`.",
        )
    scripts = members.get("scripts")
    if not isinstance(scripts, dict) or not scripts.get("dev"):
        raise CliError(f"{path} has no script `dev`.", 'Add one, for example "dev": "node server.js".')
    return ["npm", "run", "dev"]


@click.command(cls=ClientCommand)
@click.option("--check", is_flag=True, help="Show what would change without changing it.")
@json_option
@pass_context
def upgrade(context: ClientContext, /, check: bool) -> None:
    """Update the project in this folder to the newest template.

    Files that you have changed stay as they are.
    """
    folder = Path.cwd()
    manifest = read_manifest(folder)
    if manifest is None:
        _list_packages(context, folder)
        return
    upgrade = find_upgrade(manifest)
    if not check:
        upgrade.apply()
    if context.output.as_json:
        context.output.document(
            {"from": upgrade.client, "to": upgrade.newest, "replaced": upgrade.replaced, "added": upgrade.added}
            | {"kept": upgrade.kept, "applied": not check}
        )
        return
    _report(context, manifest, upgrade, check)


def _report(context: ClientContext, manifest: Manifest, upgrade: Upgrade, check: bool) -> None:
    for path in upgrade.replaced:
        context.output.data(f"{'would replace' if check else 'replaced'}  {path}")
    for path in upgrade.added:
        context.output.data(f"{'would add' if check else 'added'}  {path}")
    for path in upgrade.kept:
        context.output.data(f"kept  {path}")
    if upgrade.kept:
        context.output.warning("You changed the files marked `kept`, and their template changed too. Compare them.")
    if not upgrade.replaced and not upgrade.added:
        context.output.success(f"{manifest.name} is up to date with the client {upgrade.newest}.")
        return
    if check:
        context.output.info("Run `llmgateway upgrade` to apply this.")
    elif not DEPENDENCIES.isdisjoint(upgrade.replaced):
        context.output.info("The dependencies changed. Install them again.")


def _list_packages(context: ClientContext, folder: Path) -> None:
    """List the gateway's packages of a project that `init` did not make."""
    packages = product_packages(folder)
    if context.output.as_json:
        context.output.document([{"name": name, "version": version} for name, version in packages])
        return
    if not packages:
        context.output.warning(f"{folder} has no llmgateway.json and uses no package of the gateway.")
        return
    for name, version in packages:
        context.output.data(f"{name}  {version}")
    context.output.info("Upgrade these packages with npm or pip; `llmgateway init` did not make this project.")
