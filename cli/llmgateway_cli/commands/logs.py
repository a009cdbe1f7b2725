"""`logs`: the requests that the gateway served, or those that end while the command runs."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from llmgateway_cli.account_lists import key_id_of, project_id_of
from llmgateway_cli.catalogue import check_provider, find_entry, read_models
from llmgateway_cli.command_lines import ClientCommand, suggestion
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError, SignedOut
from llmgateway_cli.limit_options import key_path
from llmgateway_cli.settings import KEY_VARIABLE
from llmgateway_cli.tables import GAP, INDENT, Column, choose_columns, clean, padded, shortened
from llmgateway_cli.values import NO_VALUE, show_usd

Entry = dict[str, Any]
PATH = "/logs"
PAGE = 100
MAX_REQUESTS = 1_000
FOLLOW_INTERVAL_S = 1.0
MAX_SEEN = 20 * PAGE
MAX_FAILURES = 5
MAX_PAGES = 20
COLUMNS = (
    Column("AT"),
    Column("STATUS", number=True),
    Column("MODEL", shorten=True),
    Column("PROVIDER", shorten=True, rank=3),
    Column("TOKENS", number=True, rank=2),
    Column("MS", number=True, rank=4),
    Column("COST", number=True),
    Column("ERROR", shorten=True, rank=1),
)
# Widths of the lines of --follow, in which the later rows are unknown when the first is printed.
WIDTHS = (19, 6, 28, 14, 13, 7, 11, 24)
TIME_WIDTH = 8
WIDE = 80


class LogQuery:
    """A search in the request log of the service."""

    def __init__(self, context: ClientContext, filters: dict[str, str | int]) -> None:
        self._context = context
        self._filters = {name: value for name, value in filters.items() if value}

    def newest(self, limit: int) -> Iterator[Entry]:
        """Yield the newest requests, newest first. A page may be empty and still have a next one."""
        cursor = ""
        count = 0
        for _ in range(MAX_PAGES):
            query = {**self._filters, "limit": min(PAGE, limit - count)}
            if cursor:
                query["cursor"] = cursor
            answer = self._context.client.management("GET", PATH, query=query)
            for entry in read_entries(answer):
                yield entry
                count += 1
            cursor = answer.get("next") or ""
            if not cursor or count >= limit:
                return


@click.command(cls=ClientCommand)
@click.option("-p", "--project", default="", help="Only this project, by id or name.")
@click.option("-k", "--api-key", default="", metavar="KEY", help="Only this API key, by id or description.")
@click.option("-m", "--model", default="", help="Only this model, as requested or as served.")
@click.option("--provider", default="", help="Only requests that called this provider.")
@click.option("--status", type=IntegerOption(100, 599), help="Only this HTTP status.")
@click.option("--error", "code", default="", help="Only this error code.")
@click.option("--source", default="", help="Only this application; unknown for requests without one.")
@click.option("--request-id", default="", help="Only the request with this x-request-id.")
@click.option(
    "--from", "start", default="", metavar="TIME", help="From this time, e.g. 2026-01-31 or 2026-01-31T14:00."
)
@click.option("--to", "end", default="", metavar="TIME", help="Before this time.")
@click.option(
    "-n", "--limit", type=IntegerOption(1, MAX_REQUESTS), default=50, show_default=True, help="How many requests."
)
@click.option("-f", "--follow", is_flag=True, help="Print new requests when they end, until Ctrl-C.")
@json_option
@pass_context
def logs(context: ClientContext, /, limit: int, follow: bool, start: str, end: str, **given: Any) -> None:
    """List requests, newest first; with --follow newest last. A request is listed when it has ended."""
    if follow and end:
        raise CliError("--follow and --to exclude each other.", "Leave out --to.")
    filters = {
        "projectId": project_id_of(context, given["project"]) if given["project"] else "",
        "apiKeyId": key_id_of(context, given["api_key"]) if given["api_key"] else "",
        "model": given["model"],
        "provider": given["provider"],
        "status": given["status"],
        "errorCode": given["code"],
        "source": given["source"],
        "requestId": given["request_id"],
        "from": read_moment(start, "--from"),
        "to": read_moment(end, "--to"),
    }
    query = LogQuery(context, filters)
    if follow:
        follow_log(context, query, limit)
        return
    entries = list(query.newest(limit))
    empty = f"No requests match. Requests with {KEY_VARIABLE} appear when they have ended."
    if not entries:
        check_filters(context, filters)
    context.output.listing(entries, COLUMNS, [row_of(entry) for entry in entries], empty)


def check_filters(context: ClientContext, filters: Mapping[str, str | int]) -> None:
    """Raise CliError if nothing could match, because the service knows no such key, provider or model."""
    if filters["apiKeyId"]:
        context.client.management("GET", key_path(str(filters["apiKeyId"])))
    provider = str(filters["provider"])
    model = str(filters["model"])
    if not provider and not model:
        return
    entries = read_models(context.client)
    if provider:
        check_provider(entries, provider)
    if model and find_entry(entries, model) is None:
        near = suggestion(model, [entry["id"] for entry in entries])
        context.output.warning(f"The service lists no model {model!r}.{near}")


def read_entries(answer: Any) -> list[Entry]:
    """Return the requests of one page. Raises CliError for an answer without a list."""
    entries = answer.get("logs") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise CliError("The service answered without a list of requests.", "`llmgateway doctor` checks the address.")
    return entries


def read_moment(text: str, option: str) -> str:
    """Return a time as ISO 8601 in UTC, "" for none. Raises CliError if it cannot be read."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(f"{option} {text} is not a time.", "Write it as 2026-01-31 or 2026-01-31T14:00 (UTC).") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def follow_log(context: ClientContext, query: LogQuery, limit: int) -> None:
    """Print the newest requests and then others as they end, oldest first, until Ctrl-C. A lost connection is reported
    and tried again."""
    rows = list(query.newest(max(limit, PAGE)))
    shown = rows[:limit][::-1]
    seen = dict.fromkeys(entry["id"] for entry in rows)
    if not context.output.as_json:
        context.output.data(line_of([column.title for column in COLUMNS], context.output.width))
    failures = 0
    while True:
        for entry in shown:
            print_entry(context, entry)
        context.output.flush()
        time.sleep(FOLLOW_INTERVAL_S)
        try:
            shown = [entry for entry in query.newest(PAGE) if entry["id"] not in seen][::-1]
            failures = 0
        except SignedOut:
            raise
        except CliError as error:
            failures += 1
            if failures == MAX_FAILURES:
                raise
            context.output.warning(f"{error.message} Trying again.")
            shown = []
        seen |= dict.fromkeys(entry["id"] for entry in shown)
        seen = dict.fromkeys(list(seen)[-MAX_SEEN:])


def print_entry(context: ClientContext, entry: Entry) -> None:
    """Print one request of --follow: a line of text, or one JSON document in a line."""
    if context.output.as_json:
        context.output.data(json.dumps(entry, ensure_ascii=False))
    else:
        context.output.data(line_of(row_of(entry), context.output.width))


def line_of(cells: Sequence[str], width: int | None) -> str:
    """Return a line of the columns that fit the terminal; a narrow one shows the time without date."""
    parts = []
    widths = list(WIDTHS)
    shown = list(range(len(COLUMNS)))
    if width is not None and width < WIDE:
        cells = [cells[0].rpartition(" ")[2], *cells[1:]]
        widths[0] = TIME_WIDTH
    if width is not None:
        shown, widths = choose_columns(COLUMNS, widths, width + INDENT)
    for number, size in zip(shown, widths, strict=True):
        column = COLUMNS[number]
        text = clean(cells[number])
        if column.shorten:
            text = shortened(text, size)
        parts.append(padded(text, size, column.number))
    if not parts:
        return "  ".join(filter(None, map(clean, cells)))
    return (" " * GAP).join(parts).rstrip()


def row_of(entry: Entry) -> tuple[str, ...]:
    """Return the row of a request."""
    at = str(entry.get("createdAt") or "")[:19].replace("T", " ")
    tokens = ""
    if entry.get("attempts"):
        tokens = f"{entry.get('inputTokens', 0)}/{entry.get('outputTokens', 0)}"
    return (
        at,
        str(entry.get("status") or ""),
        str(entry.get("model") or NO_VALUE),
        str(entry.get("provider") or NO_VALUE),
        tokens,
        str(entry.get("durationMs", "")),
        show_usd(entry.get("cost")),
        str(entry.get("error") or ""),
    )
