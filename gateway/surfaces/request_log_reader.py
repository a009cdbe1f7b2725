"""Access to the request log for a signed-in visitor: permissions, filters, and the format of an entry.

The management API, its exports and the pages read the log only through this module.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from gateway.accounts import keys
from gateway.accounts.keys import list_keys
from gateway.accounts.projects import list_projects
from gateway.billing.usage_rows import UPSTREAM_ERROR
from gateway.clock import to_iso
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.metering.log.records import LoggedRequest, find_request, input_of, output_of
from gateway.metering.log.search import LogFilter, LogPage, LogScope, search
from gateway.metering.models import BYOK
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import format_usd
from gateway.surfaces.http import LABEL_LENGTH, Inbound
from gateway.surfaces.validation_schemas import Body, Counted, Moment, OneOf, TextField
from gateway.surfaces.visitor import MANAGERS, Visitor

MOST = 100
# A developer with more keys than this is searched for by member instead.
MOST_KEYS = 50
MOST_TAGS = 5
CURSOR = re.compile(r"[0-9a-f]{32}")
MODES = ("credits", "api-keys")
CREDENTIAL_REFUSALS = (401, 403)  # statuses with which a provider rejects a credential
# Cost components that have a column in the usage row.
COMPONENTS = {
    "inputCost": "input_nusd",
    "outputCost": "output_nusd",
    "cachedInputCost": "cached_nusd",
    "cacheWriteInputCost": "cache_write_nusd",
}


class LogsQuery(Body):
    projectId = TextField(1, 80)
    apiKeyId = TextField(1, 80)
    model = TextField(1, 255)
    provider = TextField(1, 80)
    status = Counted(100, 599)
    errorCode = TextField(1, 64)
    source = TextField(1, 255)
    requestId = TextField(1, LABEL_LENGTH)
    metadata = TextField(3, 400)
    retained = OneOf(("true", "false"), load_default="false")
    first = Moment(data_key="from")
    last = Moment(data_key="to")


class LogsPageQuery(LogsQuery):
    cursor = TextField(1, 80)
    limit = Counted(1, MOST, load_default=50)


def filter_of(given: Mapping[str, Any], inbound: Inbound) -> LogFilter:
    """Return the filter of a LogsQuery, in which `metadata` may be repeated. Raises InvalidRequest."""
    source = given.get("source")
    first = given.get("first")
    last = given.get("last")
    if first is not None and last is not None and first > last:
        raise InvalidRequest("'from' must not be later than 'to'.", param="from")
    return LogFilter(
        model=given.get("model", ""),
        provider=given.get("provider", ""),
        status=given.get("status", 0),
        error=given.get("errorCode", ""),
        source="" if source == "unknown" else source,
        label=given.get("requestId", ""),
        tags=read_tags([value for name, value in parse_qsl(inbound.query) if name == "metadata"]),
        from_us=first,
        to_us=last,
        retained=given.get("retained") == "true",
    )


def scopes_of(visitor: Visitor, project_id: str = "", key_id: str = "") -> list[LogScope]:
    """Return the scopes that the visitor may see: whole projects as owner or admin, otherwise requests of their own
    keys; optionally limited to one project or key. An invisible key is reported as missing. Raises NotFound, Forbidden
    (project)."""
    database = visitor.services.store.database
    if project_id:
        found = [visitor.project(project_id)]
    else:
        found = list_projects(database, list(visitor.memberships))
    if key_id:
        return _scopes_of_key(visitor, [project.id for project in found], key_id)
    scopes = []
    for project in found:
        mine = visitor.member(project.organization_id)
        if mine.role in MANAGERS:
            scopes.append(LogScope(project.id))
            continue
        own = list_keys(database, project_ids=[project.id], member_id=mine.id, deleted=True)
        if own:
            scopes.append(LogScope(project.id, mine.id, tuple(key.id for key in own) if len(own) <= MOST_KEYS else ()))
    return scopes


def _scopes_of_key(visitor: Visitor, project_ids: list[str], key_id: str) -> list[LogScope]:
    try:
        key = keys.find(visitor.services.store.database, key_id, deleted=True)
    except NotFound:
        return []
    mine = visitor.memberships.get(key.organization_id)
    if mine is None or key.project_id not in project_ids or mine.role not in MANAGERS and key.member_id != mine.id:
        return []
    return [LogScope(key.project_id, "" if mine.role in MANAGERS else mine.id, (key.id,))]


def read_page(visitor: Visitor, given: Mapping[str, Any], inbound: Inbound, limit: int) -> LogPage:
    """Return the page of a LogsPageQuery."""
    scopes = scopes_of(visitor, given.get("projectId", ""), given.get("apiKeyId", ""))
    before = read_cursor(given.get("cursor", ""))
    return search(visitor.services.store.database, scopes, filter_of(given, inbound), before, limit)


def find_one(visitor: Visitor, ident: str) -> LoggedRequest:
    """Return a request by its id, else the newest visible one with that x-request-id. Raises NotFound, also for another
    organization's request, and Forbidden for one that a developer's own keys did not send."""
    database = visitor.services.store.database
    if CURSOR.fullmatch(ident):
        found = find_request(database, ident)
    else:
        found = None
    if found is None and len(ident) <= LABEL_LENGTH:
        labelled = search(database, scopes_of(visitor), LogFilter(label=ident), None, 1).found
        found = labelled[0] if labelled else None
    if found:
        mine = visitor.memberships.get(f"org_{found.owner.organization.hex()}")
    else:
        mine = None
    if found is None or mine is None:
        raise NotFound(f"The log has no request {ident}: the id is unknown, or the entry has expired.")
    if mine.role not in MANAGERS and found.owner.member != raw_id(mine.id):
        raise Forbidden("No permission for this request: developers see requests of keys that they created.")
    return found


def read_cursor(text: str) -> bytes | None:
    """Return the position of a page; None for the first. Raises InvalidRequest."""
    if not text:
        return None
    if not CURSOR.fullmatch(text):
        raise InvalidRequest("The cursor is invalid; use the cursor that the previous page returned.", param="cursor")
    return bytes.fromhex(text)


def write_cursor(page: LogPage) -> str | None:
    if page.following is None:
        return None
    return page.following.hex()


def read_tags(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of texts like "team:search". Raises InvalidRequest."""
    tags: list[tuple[str, str]] = []
    for text in given:
        name, separator, value = text.partition(":")
        if not separator or not name.strip() or len(tags) == MOST_TAGS:
            text = f"Send metadata as name:value, such as team:search, at most {MOST_TAGS} times."
            raise InvalidRequest(text, param="metadata")
        tags.append((name.strip().lower(), value.strip()))
    return tuple(tags)


def show_request(one: LoggedRequest) -> dict[str, Any]:
    """Return a request as lists show it."""
    last = one.last
    served = one.served
    owner = one.owner
    payload = one.payload
    return {
        "id": one.request_id,
        "requestId": one.label or None,
        "requestCount": one.requests,
        "createdAt": to_iso(one.at_us),
        "projectId": f"proj_{owner.project.hex()}",
        "apiKeyId": f"key_{owner.api_key.hex()}",
        "operation": one.operation or None,
        "path": one.path or None,
        "model": one.asked,
        "served": f"{served.provider}/{served.served}" if served else None,
        "provider": last.provider if last else None,
        "status": one.status,
        "error": one.error or None,
        "finish": one.finish or None,
        "streamed": one.streamed,
        "cached": one.cached,
        "mode": MODES[one.byok] if last else None,
        "source": one.source or None,
        "attempts": len(one.attempts),
        "inputTokens": one.input_tokens,
        "outputTokens": one.output_tokens,
        "durationMs": one.duration_ms,
        "cost": format_usd(one.cost_nusd),
        "dataStorageCost": format_usd(one.storage_nusd),
        "discountSavings": format_usd(one.discount_nusd),
        "metadata": one.tags,
        "retained": payload is not None,
        "requestBytes": payload.sent_bytes if payload else None,
        "responseBytes": payload.answer_bytes if payload else None,
        "expiresAt": to_iso(payload.expires_at) if payload else None,
    }


def show_attempt(record: UsageRecord, for_operator: bool = False) -> dict[str, Any]:
    """Return one upstream call with its cost by components, which add up to its cost. Only the operator sees why a
    provider rejected the platform's credential."""
    details = record.details
    parts = {name: getattr(record, column) for name, column in COMPONENTS.items()}
    parts |= {f"{_camel(name)}Cost": nusd for name, nusd in details.get("nusd", {}).items()}
    return {
        "number": record.attempt,
        "startedAt": to_iso(record.at),
        "provider": record.provider,
        "model": record.served,
        "region": details.get("region"),
        "status": record.status,
        "error": record.error,
        "upstreamError": details.get(UPSTREAM_ERROR) if for_operator or _is_tenants(record) else None,
        "finish": record.finish or None,
        "mode": MODES[record.mode == BYOK],
        "usageBasis": record.usage_basis,
        "durationMs": record.duration_ms,
        "timeToFirstTokenMs": record.ttft_ms or None,
        "inputTokens": input_of(record),
        "cachedTokens": record.cache_read,
        "cacheWriteTokens": record.cache_write,
        "outputTokens": output_of(record),
        "reasoningTokens": record.reasoning,
        "cost": format_usd(record.cost_nusd),
        "costs": {name: format_usd(nusd) for name, nusd in parts.items() if nusd or name in COMPONENTS},
        "dataStorageCost": format_usd(record.storage_nusd or 0),
        "discountSavings": format_usd(record.discount_nusd or 0),
        "priceVersion": record.price_version or None,
    }


def _is_tenants(record: UsageRecord) -> bool:
    """Return whether the provider's error text concerns the tenant, not the operator's account."""
    return record.status not in CREDENTIAL_REFUSALS or record.mode == BYOK


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
