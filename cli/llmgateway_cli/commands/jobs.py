"""`jobs`: batches of requests, with their progress and cost."""

import time
from pathlib import Path
from typing import Any

import click

from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.commands.files import checked_id, download, output_option, upload
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_number, show_second, show_usd

PATH = "/v1/batches"
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations")
RUNNING = ("validating", "in_progress", "finalizing", "cancelling")
WATCH_S = 2.0
BAR_WIDTH = 24
COLUMNS = (
    Column("JOB"),
    Column("STATUS"),
    Column("DONE", number=True),
    Column("FAILED", number=True, rank=2),
    Column("COST", number=True),
    Column("BOUND", number=True, rank=3),
    Column("ENDPOINT", shorten=True, rank=4),
    Column("CREATED", rank=1),
)
job_argument = click.argument("job")


@click.group(cls=ClientGroup)
def jobs() -> None:
    """Send batches of requests, follow their progress and cost, and download the results."""


@jobs.command("list")
@click.option("-n", "--limit", type=IntegerOption(1, 100), default=20, show_default=True, help="How many jobs.")
@json_option
@pass_context
def list_jobs(context: ClientContext, limit: int) -> None:
    """List batches, newest first."""
    listed = list_of(context.client.gateway("GET", PATH, query={"limit": limit}), "data")
    context.output.listing(listed, COLUMNS, list(map(_row, listed)), "There are no jobs.")


@jobs.command("send")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--endpoint", type=click.Choice(ENDPOINTS), required=True, help="The endpoint of all lines.")
@click.option("--up-to-limit", is_flag=True, help="Reserve nothing for the whole, and run until a limit refuses.")
@click.option("-w", "--watch", is_flag=True, help="Follow the job to its end.")
@json_option
@pass_context
def send_job(context: ClientContext, path: Path, endpoint: str, up_to_limit: bool, watch: bool) -> None:
    """Send the requests in the JSON lines of the file at PATH as a batch."""
    file = text_of(upload(context, path, "batch"), "id")
    body: dict[str, Any] = {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"}
    if up_to_limit:
        body["metadata"] = {"up_to_limit": "true"}
    job = object_of(context.client.gateway("POST", PATH, body=body))
    _show(context, _follow(context, job) if watch else job)


@jobs.command("show")
@job_argument
@json_option
@pass_context
def show_job(context: ClientContext, job: str) -> None:
    """Show a batch, with the errors of its lines."""
    _show(context, _find(context, job))


@jobs.command("watch")
@job_argument
@json_option
@pass_context
def watch_job(context: ClientContext, job: str) -> None:
    """Follow a batch to its end."""
    _show(context, _follow(context, _find(context, job)))


@jobs.command("cancel")
@job_argument
@json_option
@pass_context
def cancel_job(context: ClientContext, job: str) -> None:
    """Cancel a batch; what ran is billed."""
    _show(context, object_of(context.client.gateway("POST", f"{PATH}/{checked_id(job)}/cancel")))


@jobs.command("download")
@job_argument
@click.option("--errors", is_flag=True, help="The lines that failed, instead of those that succeeded.")
@output_option
@json_option
@pass_context
def download_job(context: ClientContext, job: str, errors: bool, output: Path | None) -> None:
    """Download the results of a batch."""
    shown = _find(context, job)
    kind = "error" if errors else "output"
    file = shown.get(f"{kind}_file_id")
    if not isinstance(file, str):
        remedy = "Show the job with `llmgateway jobs show`, or follow it with `llmgateway jobs watch`."
        raise CliError(f"The job {job} is {text_of(shown, 'status')} and has no {kind} file.", remedy)
    download(context, file, output or Path(f"{job}_{kind}.jsonl"))


def _find(context: ClientContext, job: str) -> dict[str, Any]:
    return object_of(context.client.gateway("GET", f"{PATH}/{checked_id(job)}"))


def _follow(context: ClientContext, job: dict[str, Any]) -> dict[str, Any]:
    """Return the job at its end; print a line for each change until then."""
    last = ""
    while text_of(job, "status") in RUNNING:
        line = _progress(job)
        if line != last and not context.output.as_json:
            context.output.info(line)
        last = line
        time.sleep(WATCH_S)
        job = _find(context, text_of(job, "id"))
    return job


def _progress(job: dict[str, Any]) -> str:
    """Return a bar with the finished part of a job, and its cost."""
    counts = _counts(job)
    done = counts["completed"] + counts["failed"]
    filled = BAR_WIDTH * done // max(1, counts["total"])
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    costs = object_of(job, "cost_details")
    cost = f"{show_usd(costs.get('cost'))} of at most {show_usd(costs.get('bound'))}"
    return f"[{bar}] {done}/{counts['total']} {text_of(job, 'status')}, {counts['failed']} failed, {cost}"


def _counts(job: dict[str, Any]) -> dict[str, int]:
    counts = object_of(job, "request_counts")
    return {name: int(counts.get(name) or 0) for name in ("total", "completed", "failed")}


def _show(context: ClientContext, job: dict[str, Any]) -> None:
    if context.output.as_json:
        context.output.document(job)
        return
    names = ("Job", "Status", "Done", "Failed", "Cost", "Bound", "Endpoint", "Created")
    rows = list(zip(names, _row(job), strict=True))
    for name, member in (("Output file", "output_file_id"), ("Error file", "error_file_id")):
        if job.get(member):
            rows.append((name, text_of(job, member)))
    if job.get("provider_batches"):
        rows += [("At provider", _of_provider(part)) for part in list_of(job, "provider_batches")]
    context.output.fields(rows)
    errors = job.get("errors")
    for error in list_of(errors, "data") if errors else ():
        line = f"line {error['line']}: " if error.get("line") else ""
        context.output.warning(f"{line}{error.get('message')}")


def _of_provider(part: dict[str, Any]) -> str:
    """Return a batch of a provider that serves lines of a job, with the provider's id."""
    done = int(part.get("succeeded") or 0) + int(part.get("failed") or 0)
    place = f"{text_of(part, 'provider')}/{text_of(part, 'model')}"
    progress = f"{show_number(done)}/{show_number(part.get('total'))} {text_of(part, 'status')}"
    return f"{place} {progress} {part.get('id') or NO_VALUE}"


def _row(job: dict[str, Any]) -> list[str]:
    counts = _counts(job)
    costs = object_of(job, "cost_details")
    return [
        text_of(job, "id"),
        text_of(job, "status"),
        f"{show_number(counts['completed'] + counts['failed'])}/{show_number(counts['total'])}",
        show_number(counts["failed"]) if counts["failed"] else NO_VALUE,
        show_usd(costs.get("cost")),
        show_usd(costs.get("bound")),
        text_of(job, "endpoint"),
        show_second(job.get("created_at")),
    ]
