"""The commands `init` and `list`: new projects from templates."""

import re
import shutil
from pathlib import Path

import click

from llmgateway_cli.command_lines import ClientCommand, suggestion
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import PRIVATE, replace_file
from llmgateway_cli.projects.installation import install
from llmgateway_cli.projects.manifest import READABLE, Manifest, digest_of
from llmgateway_cli.projects.templates import DEFAULT, TEMPLATES, Template
from llmgateway_cli.settings import DEFAULT_TEMPLATE
from llmgateway_cli.tables import Column

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
EXAMPLE = ".env.example"
LOCAL = ".env.local"


@click.command("list", cls=ClientCommand)
@json_option
@pass_context
def list_templates(context: ClientContext) -> None:
    """List the templates of `init`."""
    members = ("name", "description", "category")
    listed = [{**{name: getattr(each, name) for name in members}, "path": each.name} for each in TEMPLATES.values()]
    rows = [(each.name, each.category, each.language, each.description) for each in TEMPLATES.values()]
    columns = (Column("NAME"), Column("CATEGORY"), Column("LANGUAGE"), Column("DESCRIPTION", shorten=True))
    context.output.listing(listed, columns, rows)


@click.command(cls=ClientCommand)
@click.argument("directory", required=False)
@click.option("-t", "--template", metavar="NAME", help=f"One of `llmgateway list` (default: {DEFAULT}).")
@click.option("-n", "--name", help="The project's name (default: that of its folder).")
@click.option("--no-install", is_flag=True, help="Write the files only.")
@click.option("-y", "--yes", is_flag=True, help="Use a folder that is not empty without asking.")
@json_option
@pass_context
def init(
    context: ClientContext,
    /,
    directory: str | None,
    template: str | None,
    name: str | None,
    no_install: bool,
    yes: bool,
) -> None:
    """Create a project from a template.

    Without DIRECTORY, the project gets a new folder of its name here.
    """
    chosen = choose_template(context, template)
    if directory is None and name is None:
        name = context.output.ask("The project's name:", "a directory or -n NAME")
    folder = Path(directory or name or "").expanduser().resolve()
    name = name or folder.name.lower()
    if not NAME.fullmatch(name):
        raise CliError(
            f"{name!r} cannot be a project's name.", "Use lower-case letters, digits, dots, hyphens and underscores."
        )
    if not _may_use(context, folder, yes):
        return
    write_project(context, chosen, folder, name)
    context.output.success(f"Made {name} from the template {chosen.name} in {folder}.")
    if not no_install:
        _install(context, chosen, folder)
    if context.output.as_json:
        context.output.document({"name": name, "template": chosen.name, "path": str(folder)})
        return
    context.output.info(f"Next: cd {folder}, put an API key into {LOCAL} (`llmgateway keys create`), `llmgateway dev`.")


def choose_template(context: ClientContext, name: str | None) -> Template:
    """Return the named template, else that of the configuration, else the default one. Raises CliError."""
    template_name = name or context.settings.stored.get(DEFAULT_TEMPLATE) or DEFAULT
    template = TEMPLATES.get(template_name)
    if template is None:
        near = suggestion(template_name, TEMPLATES)
        raise CliError(f"There is no template {template_name!r}.{near}", f"Choose one of: {', '.join(TEMPLATES)}.")
    return template


def write_project(context: ClientContext, template: Template, folder: Path, name: str) -> None:
    """Write the files of a project. A new folder appears complete or not at all. Raises CliError."""
    values = {"name": name, "gateway_url": context.settings.gateway_url}
    is_new = not folder.exists()
    place = folder.with_name(f".{folder.name}.partial") if is_new else folder
    manifest = Manifest(place, name, template.name, "", values)
    try:
        for path, text in template.read_files(values).items():
            replace_file(place / path, text, READABLE)
            manifest.digests[path] = digest_of(text)
        if not (place / LOCAL).exists():
            replace_file(place / LOCAL, (place / EXAMPLE).read_text("utf-8"), PRIVATE)
        manifest.save()
        if is_new:
            place.rename(folder)
    except OSError as error:
        raise CliError(f"{folder} cannot be made: {error.strerror}.") from None
    finally:
        if is_new:
            shutil.rmtree(place, ignore_errors=True)


def _may_use(context: ClientContext, folder: Path, yes: bool) -> bool:
    if folder.exists() and not folder.is_dir():
        raise CliError(f"{folder} is a file.", "Choose another directory.")
    if not folder.exists() or not any(folder.iterdir()):
        return True
    question = f"{folder} is not empty. Write the project's files into it, over files of the same names?"
    return context.output.confirm(question, yes)


def _install(context: ClientContext, template: Template, folder: Path) -> None:
    """Install the dependencies; the project stays when that fails."""
    try:
        install(folder, template.language, context.settings.environment, context.output)
    except CliError as error:
        raise CliError(f"The project was made, but {error.message}", error.remedy) from None
