"""`files`: files that the gateway stores for requests and batches."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_transfer import FileForm, write_pieces
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_number, show_second

PATH = "/v1/files"
UPLOADS = "/v1/uploads"
PART_BYTES = 32 << 20  # a larger file is uploaded in parts of this size
PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
MAX_FILES = 10_000
COLUMNS = (
    Column("FILE"),
    Column("NAME", shorten=True),
    Column("PURPOSE", rank=2),
    Column("BYTES", number=True),
    Column("CREATED", rank=3),
    Column("EXPIRES", rank=1),
)
file_argument = click.argument("file")
output_option = click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it (default: its name)."
)


@click.group(cls=ClientGroup)
def files() -> None:
    """Store, list, download and delete files of the API key's project."""


@files.command("list")
@click.option("--purpose", type=click.Choice([*PURPOSES, "batch_output"]), help="Only files with this purpose.")
@click.option("-n", "--limit", type=IntegerOption(1, MAX_FILES), default=100, show_default=True, help="How many files.")
@json_option
@pass_context
def list_files(context: ClientContext, purpose: str | None, limit: int) -> None:
    """List files, newest first."""
    query: dict[str, str | int] = {"limit": limit}
    if purpose:
        query["purpose"] = purpose
    listed = list_of(context.client.gateway("GET", PATH, query=query), "data")
    context.output.listing(listed, COLUMNS, list(map(_row, listed)), "There are no files.")


@files.command("upload")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--purpose", type=click.Choice(PURPOSES), default="user_data", show_default=True, help="Its purpose.")
@json_option
@pass_context
def upload_file(context: ClientContext, path: Path, purpose: str) -> None:
    """Store the file at PATH and print its id."""
    _show(context, upload(context, path, purpose))


@files.command("show")
@file_argument
@json_option
@pass_context
def show_file(context: ClientContext, file: str) -> None:
    """Show a file."""
    _show(context, object_of(context.client.gateway("GET", f"{PATH}/{checked_id(file)}")))


@files.command("download")
@file_argument
@output_option
@json_option
@pass_context
def download_file(context: ClientContext, file: str, output: Path | None) -> None:
    """Download the content of a file."""
    shown = object_of(context.client.gateway("GET", f"{PATH}/{checked_id(file)}"))
    download(context, file, output or _new_path(text_of(shown, "filename"), file))


@files.command("delete")
@file_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_context
def delete_file(context: ClientContext, file: str, yes: bool) -> None:
    """Delete a file."""
    if not context.output.confirm(f"Delete {file}?", yes):
        return
    deleted = context.client.gateway("DELETE", f"{PATH}/{checked_id(file)}")
    if context.output.as_json:
        context.output.document(deleted)
    context.output.success(f"Deleted {file}.")


def upload(context: ClientContext, path: Path, purpose: str) -> dict[str, Any]:
    """Store a file and return it. Raises CliError for one that cannot be read."""
    if not path.is_file():
        raise CliError(f"There is no file {path}.", "Name an existing file.")
    size = path.stat().st_size
    if size > PART_BYTES:
        return _upload_in_parts(context, path, purpose, size)
    with context.output.progress(f"Uploading {path.name}"):
        return object_of(context.client.gateway_upload(PATH, FileForm({"purpose": purpose}, "file", path)))


def _upload_in_parts(context: ClientContext, path: Path, purpose: str, size: int) -> dict[str, Any]:
    """Store a file that is too large for one form; an upload that fails is cancelled."""
    about = {"bytes": size, "filename": path.name, "mime_type": "application/octet-stream", "purpose": purpose}
    upload_id = text_of(object_of(context.client.gateway("POST", UPLOADS, body=about)), "id")
    place = f"{UPLOADS}/{checked_id(upload_id)}"
    starts = range(0, size, PART_BYTES)
    parts = []
    try:
        for number, start in enumerate(starts, 1):
            form = FileForm({}, "data", path, start, min(PART_BYTES, size - start))
            with context.output.progress(f"Uploading part {number} of {len(starts)} of {path.name}"):
                parts.append(text_of(object_of(context.client.gateway_upload(f"{place}/parts", form)), "id"))
        done = context.client.gateway("POST", f"{place}/complete", body={"part_ids": parts})
    except (CliError, KeyboardInterrupt):
        with suppress(CliError):
            context.client.gateway("POST", f"{place}/cancel")
        raise
    return object_of(done, "file")


def download(context: ClientContext, ident: str, path: Path) -> None:
    """Write the content of a file. Raises CliError where that is not possible."""
    download_from(context, f"{PATH}/{checked_id(ident)}/content", ident, path)


def download_from(context: ClientContext, address: str, ident: str, path: Path) -> None:
    """Write what an address of the inference API answers. Raises CliError where that is not possible."""
    try:
        size = write_pieces(context.client.gateway_download(address), path)
    except OSError as error:
        raise CliError(f"{path} could not be written: {error.strerror}.", "Choose another one with --output.") from None
    if context.output.as_json:
        context.output.document({"file": ident, "path": str(path), "bytes": size})
    context.output.success(f"Wrote {path} ({show_number(size)} bytes).")


def _new_path(name: str, ident: str) -> Path:
    """Return a path in this folder for a file with the name that its owner gave it, who may be somebody else: it hides
    nothing, and replaces nothing. Raises CliError."""
    path = Path(Path(name).name.lstrip(".") or ident)
    if os.path.lexists(path):
        raise CliError(f"{path} already exists.", "Choose another path, or this one, with --output.")
    return path


def checked_id(ident: str) -> str:
    """Return an id that can be part of an address. Raises CliError."""
    if not ident.replace("_", "").replace("-", "").isalnum() or not ident.isascii():
        raise CliError(f"{ident!r} is no id.", "List the ids with `llmgateway files list` or `llmgateway jobs list`.")
    return ident


def _show(context: ClientContext, file: dict[str, Any]) -> None:
    if context.output.as_json:
        context.output.document(file)
        return
    context.output.fields(
        list(zip(("File", "Name", "Purpose", "Bytes", "Created", "Expires"), _row(file), strict=True))
    )


def _row(file: dict[str, Any]) -> list[str]:
    expires = file.get("expires_at")
    return [
        text_of(file, "id"),
        text_of(file, "filename"),
        text_of(file, "purpose"),
        show_number(file.get("bytes")),
        show_second(file.get("created_at")),
        show_second(expires) if expires else NO_VALUE,
    ]
