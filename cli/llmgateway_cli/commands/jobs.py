"""`jobs`: batches, videos and background responses, with their progress, cost, errors and results."""

import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import click

from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.commands.files import checked_id, download, download_from, output_option, upload
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.file_transfer import write_pieces
from llmgateway_cli.job_views import (
    BATCHES,
    MESSAGE_BATCHES,
    VIDEOS,
    JobView,
    LineFailure,
    failures_in,
    failures_of_check,
    place_of,
    view,
)
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_many, show_number, show_second, show_usd

PATH = BATCHES
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations")
LISTED = {"batch": BATCHES, "message_batch": MESSAGE_BATCHES, "video": VIDEOS}
WATCH_S = 2.0
TOO_MANY = 429
MAX_FAILURES = 30  # questions in succession that fail while a job is followed
BAR_WIDTH = 24
COLUMNS = (
    Column("JOB"),
    Column("STATUS"),
    Column("DONE", number=True),
    Column("FAILED", number=True, rank=2),
    Column("COST", number=True),
    Column("BOUND", number=True, rank=3),
    Column("ABOUT", shorten=True, rank=4),
    Column("CREATED", rank=1),
)
ERROR_COLUMNS = (Column("LINE", number=True), Column("CUSTOM ID", shorten=True), Column("ERROR"), Column("MESSAGE"))
job_argument = click.argument("job")


@click.group(cls=ClientGroup)
def jobs() -> None:
    """Send batches, follow jobs of every kind with their progress and cost, and download results and errors."""


@jobs.command("list")
@click.option("--kind", type=click.Choice([*LISTED]), help="Only jobs of this kind.")
@click.option("-n", "--limit", type=IntegerOption(1, 100), default=20, show_default=True, help="How many jobs.")
@json_option
@pass_context
def list_jobs(context: ClientContext, kind: str | None, limit: int) -> None:
    """List batches, message batches and videos, newest first. Background responses have no list."""
    listed = []
    for path in [LISTED[kind]] if kind else LISTED.values():
        listed += list_of(context.client.gateway("GET", path, query={"limit": limit}), "data")
    listed.sort(key=lambda job: view(job).created_s or 0, reverse=True)
    listed = listed[:limit]
    context.output.listing(listed, COLUMNS, [_row(view(job)) for job in listed], "There are no jobs.")


@jobs.command("send")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--endpoint", type=click.Choice(ENDPOINTS), required=True, help="The endpoint of all lines.")
@click.option("--up-to-limit", is_flag=True, help="Reserve nothing for the whole, and run until a limit refuses.")
@click.option("-w", "--watch", is_flag=True, help="Follow the job to its end.")
@json_option
@pass_context
def send_job(context: ClientContext, path: Path, endpoint: str, up_to_limit: bool, watch: bool) -> None:
    """Send the requests in the JSON lines of the file at PATH as a batch. With --watch the command fails unless the job
    is completed."""
    file = text_of(upload(context, path, "batch"), "id")
    body: dict[str, Any] = {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"}
    if up_to_limit:
        body["metadata"] = {"up_to_limit": "true"}
    job = object_of(context.client.gateway("POST", BATCHES, body=body))
    if watch:
        _end(context, _follow(context, job))
    else:
        _show(context, job)


@jobs.command("show")
@job_argument
@json_option
@pass_context
def show_job(context: ClientContext, job: str) -> None:
    """Show a job, with the reasons of one that failed."""
    _show(context, _find(context, job))


@jobs.command("watch")
@job_argument
@json_option
@pass_context
def watch_job(context: ClientContext, job: str) -> None:
    """Follow a job to its end, with a progress bar."""
    _show(context, _follow(context, _find(context, job)))


@jobs.command("wait")
@job_argument
@click.option("--timeout", type=IntegerOption(1, 604_800), help="Give up after so many seconds.")
@json_option
@pass_context
def wait_for_job(context: ClientContext, job: str, timeout: int | None) -> None:
    """Wait for the end of a job. The command fails unless the job is completed."""
    _end(context, _follow(context, _find(context, job), timeout))


def _end(context: ClientContext, job: dict[str, Any]) -> None:
    """Show a job that has ended. Raises CliError unless it is completed."""
    _show(context, job)
    ended = view(job)
    if not ended.succeeded:
        raise CliError(f"The job {ended.id} is {ended.status}.", f"See `llmgateway jobs errors {ended.id}`.")


@jobs.command("cancel")
@job_argument
@json_option
@pass_context
def cancel_job(context: ClientContext, job: str) -> None:
    """Cancel a job; what ran is billed. A video is cancelled where its provider supports that."""
    place = place_of(job)
    if place.startswith(VIDEOS):
        if not view(_find(context, job)).is_running:
            raise CliError(f"The video {job} has ended and cannot be cancelled.")
        context.client.gateway("DELETE", place)
        _show(context, _find(context, job))
        return
    _show(context, object_of(context.client.gateway("POST", f"{place}/cancel")))


@jobs.command("errors")
@job_argument
@click.option("-n", "--limit", type=IntegerOption(1, 100_000), default=50, show_default=True, help="How many errors.")
@json_option
@pass_context
def list_errors(context: ClientContext, job: str, limit: int) -> None:
    """List the errors of a batch that has ended, by line."""
    shown = _find(context, job)
    found = failures_of_check(shown)
    if not found:
        path = _path_of_errors(shown)
        if path:
            found = list(islice(failures_in(context.client.gateway_download(path)), limit + 1))
    rows = [_row_of(failure) for failure in found[:limit]]
    context.output.listing(
        [failure._asdict() for failure in found[:limit]], ERROR_COLUMNS, rows, f"No line of {job} has an error."
    )
    if len(found) > limit:
        context.output.info(f"There are more than {show_many(limit, 'error')}: --limit shows more.")


def _path_of_errors(job: dict[str, Any]) -> str:
    """Return the address of the file with the errors of a job, "" for one without errors. Raises CliError."""
    ident = text_of(job, "id")
    place = place_of(ident)
    if not place.startswith((BATCHES, MESSAGE_BATCHES)):
        raise CliError(f"The job {ident} has no lines.", f"See `llmgateway jobs show {ident}`.")
    if view(job).is_running:
        raise CliError(
            f"The job {ident} is {view(job).status}; its errors can be read once it has ended.",
            f"Follow it with `llmgateway jobs watch {ident}`.",
        )
    if place.startswith(MESSAGE_BATCHES):
        return f"{place}/results"
    file = job.get("error_file_id")
    return f"/v1/files/{checked_id(file)}/content" if isinstance(file, str) else ""


@jobs.command("download")
@job_argument
@click.option("--errors", is_flag=True, help="The lines that failed, instead of those that succeeded.")
@output_option
@json_option
@pass_context
def download_job(context: ClientContext, job: str, errors: bool, output: Path | None) -> None:
    """Download the results of a batch, a video, or the object of a response."""
    shown = _find(context, job)
    place = place_of(job)
    if errors and not place.startswith(BATCHES):
        raise CliError(f"The job {job} has no file of errors.", f"List them with `llmgateway jobs errors {job}`.")
    if view(shown).is_running:
        raise _nothing_yet(job, shown, "error" if errors else "output")
    if place.startswith(MESSAGE_BATCHES):
        download_from(context, f"{place}/results", job, output or Path(f"{job}_output.jsonl"))
    elif place.startswith(VIDEOS):
        download_from(context, f"{place}/content", job, output or Path(f"{job}.mp4"))
    elif place.startswith(BATCHES):
        kind = "error" if errors else "output"
        file = shown.get(f"{kind}_file_id")
        if not isinstance(file, str):
            raise _nothing_yet(job, shown, kind)
        download(context, file, output or Path(f"{job}_{kind}.jsonl"))
    else:
        path = output or Path(f"{job}.json")
        text = json.dumps(shown, indent=2, ensure_ascii=False).encode()
        size = write_pieces(iter([text]), path)
        context.output.success(f"Wrote {path} ({show_number(size)} bytes).")


def _nothing_yet(job: str, shown: dict[str, Any], kind: str) -> CliError:
    remedy = f"Show the job with `llmgateway jobs show {job}`, or follow it with `llmgateway jobs watch {job}`."
    return CliError(f"The job {job} is {view(shown).status} and has no {kind} file.", remedy)


def _find(context: ClientContext, job: str) -> dict[str, Any]:
    return object_of(context.client.gateway("GET", place_of(job)))


def _follow(context: ClientContext, job: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Return the job at its end; show its progress until then. A service that is away for a while is asked again.
    Raises CliError."""
    ident = text_of(job, "id")
    deadline = time.monotonic() + timeout_s if timeout_s else None
    failures = 0
    with context.output.live() as bar:
        while view(job).is_running:
            bar.show(_progress(view(job)))
            if deadline is not None and time.monotonic() >= deadline:
                raise CliError(f"The job {ident} is still {view(job).status}.", "It continues; wait again later.")
            time.sleep(WATCH_S)
            try:
                job, failures = _find(context, ident), 0
            except CliError as error:
                failures += 1
                if failures > MAX_FAILURES or (
                    isinstance(error, HttpError) and error.status < 500 and error.status != TOO_MANY
                ):
                    raise
    return job


def _progress(job: JobView) -> str:
    """Return a bar with the finished part of a job, and its cost."""
    if job.status == "validating":
        return "The lines are checked."
    filled = BAR_WIDTH * job.done // max(1, job.total)
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    text = f"[{bar}] {job.done:,}/{job.total:,} {job.status}"
    if job.failed:
        text += f", {job.failed:,} failed"
    if job.cost is not None:
        text += f", {show_usd(job.cost)}"
    if job.bound is not None:
        text += f" of at most {show_usd(job.bound)}"
    return text


def _show(context: ClientContext, job: dict[str, Any]) -> None:
    if context.output.as_json:
        context.output.document(job)
        return
    names = ("Job", "Status", "Done", "Failed", "Cost", "Bound", "About", "Created")
    rows = list(zip(names, _row(view(job)), strict=True))
    for name, member in (("Output file", "output_file_id"), ("Error file", "error_file_id")):
        if job.get(member):
            rows.append((name, text_of(job, member)))
    if job.get("provider_batches"):
        rows += [("At provider", _of_provider(part)) for part in list_of(job, "provider_batches")]
    context.output.fields(rows)
    for failure in failures_of_check(job) if "errors" in job else ():
        line = f"line {failure.line}: " if failure.line else ""
        context.output.warning(f"{line}{failure.message}")
    error = job.get("error")
    if isinstance(error, dict) and error.get("message"):
        context.output.warning(str(error["message"]))


def _of_provider(part: dict[str, Any]) -> str:
    """Return a batch of a provider that serves lines of a job, with the provider's id."""
    done = int(part.get("succeeded") or 0) + int(part.get("failed") or 0)
    place = f"{text_of(part, 'provider')}/{text_of(part, 'model')}"
    progress = f"{show_number(done)}/{show_number(part.get('total'))} {text_of(part, 'status')}"
    return f"{place} {progress} {part.get('id') or NO_VALUE}"


def _row(job: JobView) -> list[str]:
    return [
        job.id,
        job.status,
        f"{show_number(job.done)}/{show_number(job.total)}",
        show_number(job.failed) if job.failed else NO_VALUE,
        NO_VALUE if job.cost is None else show_usd(job.cost),
        show_usd(job.bound) if job.bound else NO_VALUE,
        job.about,
        show_second(job.created_s),
    ]


def _row_of(failure: LineFailure) -> list[str]:
    line = NO_VALUE if failure.line is None else show_number(failure.line)
    return [line, failure.custom_id or NO_VALUE, failure.error or NO_VALUE, failure.message or NO_VALUE]
