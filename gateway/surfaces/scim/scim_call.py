"""Requests and responses of SCIM: the token, the body, preconditions, errors in the form of RFC 7644, and lists."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from msgspec import Struct

from gateway.accounts.provisioning.scim_tokens import is_scim_token
from gateway.accounts.provisioning.user_rows import ProvisioningClient, StaleVersion
from gateway.callers.throttle import ThrottleGate
from gateway.errors import GatewayError, InvalidRequest, RequestTooLarge, Unauthenticated, UnsupportedMediaType
from gateway.neutral.json_weight import has_more_parts
from gateway.runtime.threads import compute, compute_if, work_for
from gateway.surfaces.scim.attributes import ScimResourceType
from gateway.surfaces.scim.filters import FilterNode, equalities, matches, parse_filter
from gateway.surfaces.scim.scim_answers import (
    ERROR_URN,
    LIST_URN,
    SCIM_TYPES,
    ScimError,
    ScimList,
    ScimListQuery,
    ScimSearch,
    ScimSelection,
    read_members,
)
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.http import SAFE_METHODS, ErrorFormat, Inbound, Outbound
from gateway.surfaces.web.http_responses import PRIVATE
from gateway.worker.services import Services

MEDIA = "application/scim+json"
SEARCH = "/.search"  # the end of the paths that read with a POST (RFC 7644, section 3.4.3)
REQUESTS = 1_500  # of one token in a minute: identity providers expect 25 a second
MINUTE_S = 60
CHANGES = 100_000  # of an organization in a day: each leaves an entry in the audit log
DAY_S = 86_400
MAX_BODY_BYTES = 2 << 20
MAX_PARTS = 60_000  # of a body: 10,000 members with three attributes each
THREAD_BYTES = 8_192  # bytes of a body that is read in a thread
CHALLENGE = ("WWW-Authenticate", 'Bearer realm="scim"')


def error_body(error: GatewayError, request_id: str) -> ScimError:
    """Return an error in the form of SCIM."""
    body: ScimError = {"schemas": [ERROR_URN], "status": str(error.status), "detail": error.message}
    if error.code in SCIM_TYPES:
        body["scimType"] = SCIM_TYPES[error.code]
    return body


ERRORS = ErrorFormat(
    "scim",
    error_body,
    describe_answer(ScimError),
    media=MEDIA,
)


class ScimCall(Struct, frozen=True):
    """A request with a valid token. `base_url` is the address of the surface."""

    services: Services
    inbound: Inbound
    client: ProvisioningClient
    base_url: str

    @property
    def organization_id(self) -> str:
        return self.client.organization_id

    @property
    def resource_id(self) -> str:
        """Return the id in the path."""
        return self.inbound.params["resource_id"]

    def body(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises UnsupportedMediaType, RequestTooLarge or InvalidRequest."""
        kind = self.inbound.header("content-type").lower()
        if MEDIA not in kind and "application/json" not in kind:
            raise UnsupportedMediaType(f"Send the body as {MEDIA}.")
        raw = self.inbound.body
        if len(raw) > MAX_BODY_BYTES:
            raise RequestTooLarge(f"The body has at most {MAX_BODY_BYTES:,} bytes.")
        if has_more_parts(raw, MAX_PARTS):
            raise RequestTooLarge(f"The body has more than {MAX_PARTS:,} parts; split it into several requests.")
        return compute_if(len(raw) > THREAD_BYTES, _read_object, raw)

    def selection(self) -> ScimSelection:
        """Return the parameters that select attributes."""
        return read_members(ScimSelection, self.inbound.arguments())

    def is_long(self) -> bool:
        """Return whether work on the body belongs into a thread."""
        return len(self.inbound.body) > THREAD_BYTES

    def check_precondition(self, etag: str) -> bool:
        """Compare If-Match with the entity tag of the resource; return whether the header is present. Raises
        StaleVersion."""
        stated = self.inbound.header("if-match")
        if stated and not _names_tag(stated, etag):
            raise StaleVersion
        return bool(stated)

    def reply(self, shown: Any, status: int = 200, etag: str = "", location: str = "") -> Outbound:
        """Return a resource or a message. A GET whose If-None-Match names the entity tag gets 304."""
        headers = [("Content-Type", MEDIA), *PRIVATE, ("x-request-id", self.inbound.shown_id)]
        if etag:
            headers.append(("ETag", etag))
        if location:
            headers.append(("Location", location))
        known = self.inbound.header("if-none-match")
        if etag and known and self.inbound.method == "GET" and _names_tag(known, etag):
            return Outbound(304, headers[1:], b"")
        if shown is None:
            return Outbound(status, headers[1:], b"")
        return Outbound(status, headers, orjson.dumps(shown))


def answer_client(respond: Callable[[ScimCall], Outbound]) -> Callable[[Services, Inbound], Outbound]:
    """Return a handler that checks the token and its rate before it calls `respond`."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        token = _token_of(inbound)
        try:
            info = services.accounts.scim_tokens.find(token)
        except Unauthenticated as error:
            error.headers = (CHALLENGE,)
            raise
        work_for(info.organization_id)
        gates = [ThrottleGate("SCIM requests", info.id, REQUESTS, MINUTE_S)]
        if inbound.method not in SAFE_METHODS and not inbound.path.endswith(SEARCH):
            gates.append(ThrottleGate("SCIM changes in a day", info.organization_id, CHANGES, DAY_S))
        services.accounts.throttle.take(*gates)
        services.accounts.scim_tokens.note_use(info)
        client = ProvisioningClient(info.organization_id, info.id, info.by_owner)
        return respond(ScimCall(services, inbound, client, f"{inbound.base_url.rstrip('/')}/scim/v2"))

    handle.__doc__ = respond.__doc__
    return handle


def _token_of(inbound: Inbound) -> str:
    """Return the SCIM token. Raises Unauthenticated for another credential: each works on its surface only."""
    scheme, _, token = inbound.header("authorization").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not is_scim_token(token):
        text = "Send a SCIM token of your organization as 'Authorization: Bearer llmgscim_…'."
        raise Unauthenticated(text, code="invalid_scim_token", headers=(CHALLENGE,))
    return token


def _names_tag(header: str, etag: str) -> bool:
    """Return whether a list of entity tags names this one; weak and strong ones are compared alike."""
    stated = [tag.strip().removeprefix("W/") for tag in header.split(",")[:100]]
    return "*" in stated or etag.removeprefix("W/") in stated


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    return body


# Lists of users and groups: filters, paging and the selection of attributes.

WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
MAX_RESULTS = 200  # resources of one page
DEFAULT_RESULTS = 100
Json = dict[str, Any]


class ScimQuery(Struct, frozen=True):
    """The query of a list. `start` counts from 1; `node` is the filter, None without."""

    node: FilterNode | None
    start: int
    count: int
    attributes: str
    excluded: str

    def equalities(self) -> dict[str, str]:
        """Return the texts that attributes must equal, by lower-case path."""
        if self.node is None:
            return {}
        return equalities(self.node)


def read_query(call: ScimCall) -> ScimQuery:
    """Return the query of a list: the parameters of a GET, or the body of a search. Raises InvalidRequest."""
    given: ScimListQuery | ScimSearch
    if call.inbound.method == "GET":
        given = read_members(ScimListQuery, call.inbound.arguments())
    else:
        given = read_members(ScimSearch, call.body())
    text = _read_text("filter", given.get("filter")).strip()
    node = parse_filter(text) if text else None
    start = max(1, _read_number("startIndex", given.get("startIndex"), 1))
    count = min(MAX_RESULTS, max(0, _read_number("count", given.get("count"), DEFAULT_RESULTS)))
    selected = _read_text("attributes", given.get("attributes"))
    excluded = _read_text("excludedAttributes", given.get("excludedAttributes"))
    return ScimQuery(node, start, count, selected, excluded)


def select(
    kind: ScimResourceType, query: ScimQuery, pieces: Iterable[Sequence[Any]], show: Callable[[Any], Json]
) -> tuple[int, list[Any]]:
    """Return how many resources of all pieces fulfil the filter, and those of the page."""
    node = query.node
    total = 0
    page: list[Any] = []
    for piece in pieces:
        matching = list(piece) if node is None else compute(_filter, kind, node, piece, show)
        for resource in matching:
            total += 1
            if total >= query.start and len(page) < query.count:
                page.append(resource)
    return total, page


def reply_list(call: ScimCall, query: ScimQuery, total: int, shown: list[Json]) -> Outbound:
    """Return the response with a page of resources."""
    body: ScimList = {
        "schemas": [LIST_URN],
        "totalResults": total,
        "startIndex": query.start,
        "itemsPerPage": len(shown),
        "Resources": shown,
    }
    return call.reply(body)


def _filter(kind: ScimResourceType, node: FilterNode, piece: Sequence[Any], show: Callable[[Any], Json]) -> list[Any]:
    return [resource for resource in piece if matches(node, kind, show(resource))]


def _read_text(name: str, value: Any) -> str:
    """Return a text, or the names in a list joined by commas."""
    value = value or ""
    if isinstance(value, list):
        value = ",".join(name for name in value if isinstance(name, str))
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a text.", param=name)
    return value


def _read_number(name: str, value: Any, usual: int) -> int:
    if value is None or value == "":
        return usual
    text = str(value)[:12]
    if not WHOLE.fullmatch(text):
        raise InvalidRequest(f"{name} must be a whole number.", param=name)
    return int(text)
