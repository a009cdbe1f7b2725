"""Access to the request log for a signed-in visitor: permissions and filters.

The management API, its exports and the pages read the log only through this module.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from gateway.accounts import keys
from gateway.accounts.keys import list_keys
from gateway.accounts.members import find_member
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.teams import list_teams
from gateway.callers.permissions import Permission
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.metering.log.archived_requests import find_logged, search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogPage, LogScope, search_current
from gateway.metering.usage_table import raw_id
from gateway.surfaces.visitors.report_windows import RANGES, length_of
from gateway.surfaces.visitors.validation_schemas import Body, IsoTime, OneOf, QueryFlag, QueryInteger, TextField, Usd
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import LABEL_LENGTH, Inbound

MAX_PAGE_SIZE = 100
# A developer with more keys than this is searched for by member instead.
MAX_KEYS = 50
MAX_TAGS = 5
MAX_DURATION_MS = 86_400_000
CURSOR = re.compile(r"[0-9a-f]{32}")


class LogsQuery(Body):
    projectId = TextField(1, 80)
    apiKeyId = TextField(1, 80)
    userId = TextField(1, 80)
    model = TextField(1, 255)
    provider = TextField(1, 80)
    status = QueryInteger(100, 599)
    errorCode = TextField(1, 64)
    operation = TextField(1, 24, about="What was called: chat, embeddings, images.")
    source = TextField(1, 255)
    requestId = TextField(1, LABEL_LENGTH)
    metadata = TextField(3, 400)
    session = TextField(1, 64)
    retained = QueryFlag(load_default="false")
    failed = QueryFlag(load_default="false")
    noError = QueryFlag(load_default="false")
    noSession = QueryFlag(load_default="false")
    minDurationMs = QueryInteger(1, MAX_DURATION_MS, about="An upstream call took at least so many milliseconds.")
    minCost = Usd(about="An upstream call cost at least so many US dollars.")
    timeRange = OneOf(tuple(RANGES))
    first = IsoTime(data_key="from")
    last = IsoTime(data_key="to")


class LogsPageQuery(LogsQuery):
    cursor = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=50)


def filter_of(fields: Mapping[str, Any], inbound: Inbound, now_us: int) -> LogFilter:
    """Return the filter of a LogsQuery, in which `metadata` may be repeated. `timeRange`, a time until now, overrides
    `from` and `to`. Raises InvalidRequest."""
    source = fields.get("source")
    first = fields.get("first")
    last = fields.get("last")
    if "timeRange" in fields:
        first = now_us - length_of(fields["timeRange"])
        last = None
    if first is not None and last is not None and first > last:
        raise InvalidRequest("'from' must not be later than 'to'.", param="from")
    return LogFilter(
        model=fields.get("model", ""),
        provider=fields.get("provider", ""),
        status=fields.get("status", 0),
        error=fields.get("errorCode", ""),
        operation=fields.get("operation", ""),
        source="" if source == "unknown" else source,
        label=fields.get("requestId", ""),
        tags=read_tags([value for name, value in parse_qsl(inbound.query) if name == "metadata"]),
        from_us=first,
        to_us=last,
        retained=fields.get("retained") == "true",
        session=fields.get("session", ""),
        failed=fields.get("failed") == "true",
        no_error=fields.get("noError") == "true",
        no_session=fields.get("noSession") == "true",
        min_ms=fields.get("minDurationMs", 0),
        min_nusd=fields.get("minCost") or 0,
    )


def scopes_of(
    visitor: Visitor,
    project_id: str = "",
    key_id: str = "",
    user_id: str = "",
    permission: Permission = "logs:read",
) -> list[LogScope]:
    """Return the scopes that the visitor may see with a permission: whole projects as owner or admin, otherwise
    requests of their own keys; optionally limited to one project, key or person. An invisible key or person has no
    requests. Raises NotFound, Forbidden (project)."""
    database = visitor.services.store.database
    projects = [visitor.project(project_id, permission)] if project_id else visitor.projects()
    if key_id:
        return _scopes_of_key(visitor, [project.id for project in projects], key_id, permission)
    scopes = []
    for project in projects:
        for member_id in _members_in(visitor, project, user_id, permission):
            if not member_id:
                scopes.append(LogScope(project.id))
                continue
            own = list_keys(database, project_ids=[project.id], member_id=member_id, deleted=True)
            if own:
                keys_of = tuple(key.id for key in own) if len(own) <= MAX_KEYS else ()
                scopes.append(LogScope(project.id, member_id, keys_of))
    return scopes


def _members_in(visitor: Visitor, project: ProjectInfo, user_id: str, permission: Permission) -> list[str]:
    """Return the members to search for in a project: "" stands for all members."""
    wanted = ""
    if user_id:
        try:
            wanted = find_member(visitor.services.store.database, project.organization_id, user_id).id
        except NotFound:
            return []
    seen = visible_members(visitor, project.organization_id, project.id, permission)
    if "" in seen:
        return [wanted]
    return sorted(seen & {wanted} if wanted else seen)


def visible_members(visitor: Visitor, organization_id: str, project_id: str, permission: Permission) -> set[str]:
    """Return the members of a project that a permission of the visitor covers: "" stands for all."""
    mine = visitor.member(organization_id)
    reach = visitor.reach(organization_id, permission)
    if reach.whole or project_id in reach.projects:
        return {""}
    seen = {mine.id} if reach.own else set()
    if reach.teams:
        listed = list_teams(visitor.services.store.database, organization_id)
        seen.update(member_id for team in listed if team.id in reach.teams for member_id in team.member_ids)
    return seen


def _scopes_of_key(visitor: Visitor, project_ids: list[str], key_id: str, permission: Permission) -> list[LogScope]:
    try:
        key = keys.find(visitor.services.store.database, key_id, deleted=True)
    except NotFound:
        return []
    if key.organization_id not in visitor.memberships or key.project_id not in project_ids:
        return []
    seen = visible_members(visitor, key.organization_id, key.project_id, permission)
    if "" in seen:
        return [LogScope(key.project_id, "", (key.id,))]
    return [LogScope(key.project_id, key.member_id, (key.id,))] if key.member_id in seen else []


def read_page(visitor: Visitor, fields: Mapping[str, Any], inbound: Inbound, limit: int) -> LogPage:
    """Return the page of a LogsPageQuery."""
    scopes = scopes_of(visitor, fields.get("projectId", ""), fields.get("apiKeyId", ""), fields.get("userId", ""))
    before = read_cursor(fields.get("cursor", ""))
    filters = filter_of(fields, inbound, visitor.services.clock.now_us())
    return search_log(visitor.services.store.database, scopes, filters, before, limit)


def find_newest(visitor: Visitor, key_id: str = "") -> LoggedRequest | None:
    """Return the newest request that the visitor may see, optionally of one key; None without any."""
    return search_current(visitor.services.store.database, scopes_of(visitor, key_id=key_id), LogFilter())


def find_one(visitor: Visitor, ident: str) -> LoggedRequest:
    """Return a request by its id, else the newest visible one with that x-request-id. Raises NotFound, also for another
    organization's request, and Forbidden for one that a developer's own keys did not send."""
    database = visitor.services.store.database
    request = find_logged(database, ident) if CURSOR.fullmatch(ident) else None
    if request is None and len(ident) <= LABEL_LENGTH:
        request = search_current(database, scopes_of(visitor), LogFilter(label=ident))
    membership = visitor.memberships.get(f"org_{request.owner.organization.hex()}") if request else None
    if request is None or membership is None:
        raise NotFound(f"The log has no request {ident}: the id is unknown, or the entry has expired.")
    reach = visitor.reach(membership.organization_id, "logs:read")
    if not reach.whole and not (reach.own and request.owner.member == raw_id(membership.id)):
        raise Forbidden("No permission for this request: developers see requests of keys that they created.")
    return request


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


def read_tags(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of texts like "team:search". Raises InvalidRequest."""
    tags: list[tuple[str, str]] = []
    for text in texts:
        name, separator, value = text.partition(":")
        if not separator or not name.strip() or len(tags) == MAX_TAGS:
            text = f"Send metadata as name:value, such as team:search, at most {MAX_TAGS} times."
            raise InvalidRequest(text, param="metadata")
        tags.append((name.strip().lower(), value.strip()))
    return tuple(tags)
