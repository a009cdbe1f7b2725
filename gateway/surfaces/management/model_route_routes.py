"""`/orgs/…/routes`: model names that choose the model of each request by rules, with drafts and versions."""

from typing import Any

from marshmallow import fields, validate

from gateway.accounts import route_changes
from gateway.accounts.projects import find_project
from gateway.accounts.route_changes import MAX_ALIASES, RouteVersion, StoredRoute
from gateway.callers.throttle import ThrottleGate
from gateway.clock import DAY_US
from gateway.errors import NotFound
from gateway.metering.route_usage import sum_savings
from gateway.reports.route_simulation import simulate_route
from gateway.reports.simulated_days import MAX_DAYS
from gateway.routes.compiled import compile_route
from gateway.routes.route_book import called_by
from gateway.routes.route_document import RouteDocument, RouteInStore, read_document
from gateway.routes.route_sentences import sentences_of
from gateway.store.database import ListSlice
from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    Body,
    NameList,
    QueryInteger,
    StrictBody,
    StrictBoolean,
    TextField,
    WholeNumber,
    describe_field,
)
from gateway.surfaces.web.answer_structs import Answer, JsonObject, Time, Usd
from gateway.surfaces.web.http import Operation

TAG = "Routes"
DEFAULT_DAYS = 30
EXAMPLE = {
    "rules": [{"name": "sub-agents", "when": {"agent": "sub"}, "use": "claude-haiku-5-5"}],
    "otherwise": "claude-sonnet-5-5",
}
DOCUMENT = "The rules of the route, and the target of all other requests, as docs/routes.md describes them."
ALIASES = "Further model names that call the route, beside dynamic/ and its name."
PROJECT = "Id of the only project that may call the route; none: every project of the organization."
REPLACES = "Allows aliases that are names of models: requests for these models then use the route."
REQUESTED = "Only requests of these model names, as callers wrote them; none: all chat requests."
SIMULATED_DAYS = 7
ABOUT_DAYS = f"Of how many days; default: {SIMULATED_DAYS}."
MAX_REQUESTED = 100
MAX_VERSION = 1_000_000_000
PER_MINUTE = 20  # dry runs of an organization
VERSION = "An earlier version to publish again; none: the draft."


def _document_field() -> fields.Dict:
    return fields.Dict(keys=fields.String(), required=True, metadata=describe_field(DOCUMENT, examples=[EXAMPLE]))


class RouteBody(StrictBody):
    """A route. Absent members have their defaults, also in a route that exists."""

    document = _document_field()
    aliases = NameList(MAX_ALIASES, 128, load_default=list, about=ALIASES, example=("house-default",))
    projectId = TextField(1, 40, allow_none=True, load_default=None, about=PROJECT)
    replacesModels = StrictBoolean(load_default=False, about=REPLACES)


class RouteCheckBody(StrictBody):
    document = _document_field()


class RouteSimulationBody(StrictBody):
    """A document, and the stored requests with which it is tried."""

    document = _document_field()
    days = WholeNumber(1, MAX_DAYS, load_default=SIMULATED_DAYS, about=ABOUT_DAYS)
    requested = NameList(MAX_REQUESTED, 255, load_default=list, about=REQUESTED, example=("smart",))
    projectId = TextField(1, 40, allow_none=True, load_default=None, about="Only requests of this project.")


class PublishBody(StrictBody):
    version = fields.Integer(
        strict=True,
        validate=validate.Range(1, MAX_VERSION),
        allow_none=True,
        load_default=None,
        metadata=describe_field(VERSION, examples=[None]),
    )


class SavingsQuery(Body):
    days = QueryInteger(1, 366, about=f"Of how many days; default: {DEFAULT_DAYS}.")


class RouteAnswer(Answer):
    """A route. `names` are the model names that call it; `rules` are the sentences of the draft, and `publishedRules`
    those of the published version. `publishedVersion` null: no version is published. `leftOut` and `publishedLeftOut`
    are places of the documents that a later release wrote: requests use the route without them here."""

    columns = ("id", "names", "project_id", "published_version", "latest_version")
    id: str
    organization_id: str
    project_id: str | None
    names: list[str]
    aliases: list[str]
    document: JsonObject
    rules: list[str]
    left_out: list[str]
    changed_by: str
    changed_at: Time
    published_version: int | None
    published_rules: list[str]
    published_left_out: list[str]
    published_by: str | None
    published_at: Time | None
    latest_version: int
    created_at: Time


class RouteVersionAnswer(Answer):
    """A version, which never changes. `leftOut` are places of its document that a later release wrote."""

    columns = ("version", "created_at", "created_by", "rules")
    version: int
    document: JsonObject
    rules: list[str]
    left_out: list[str]
    created_by: str
    created_at: Time


class RouteCheckAnswer(Answer):
    """A document that can be published: its rules as sentences, and the models that it names."""

    columns = ("rules", "models")
    rules: list[str]
    models: list[str]


class SimulatedChoiceAnswer(Answer):
    """The requests that a rule would have sent to a model: `changed` of them used another one."""

    rule: str
    model: str
    requests: int
    changed: int
    cost: Usd
    new_cost: Usd


class RouteSimulationAnswer(Answer):
    """The choices of a route for the stored requests of [`since`, `until`), each evaluated alone. `undecided`
    are those with a rule about something that is not stored, such as headers; they count at their cost. `complete` is
    false if the days have more usage than is read; `since` is later then."""

    since: Time
    until: Time
    complete: bool
    requests: int
    undecided: int
    changed: int
    cost: Usd
    new_cost: Usd
    choices: list[SimulatedChoiceAnswer]


class RouteSavingsAnswer(Answer):
    """The calls that a rule of a version sent to a model. `alternative_cost` is the cost of the same usage at the
    reference model of the route, `saved` what that is above the cost; `average_ms` is their average duration."""

    columns = ("route", "version", "rule", "model", "requests", "failed", "cost", "alternative_cost", "saved")
    route: str
    version: int
    rule: str
    model: str
    requests: int
    failed: int
    average_ms: int
    finish_reasons: JsonObject
    cost: Usd
    alternative_cost: Usd
    saved: Usd


def list_all(call: ManagedCall[str]) -> list[RouteAnswer]:
    """The routes of the organization, by name."""

    def read(part: ListSlice) -> list[RouteAnswer]:
        return list(map(_show, route_changes.list_routes(call.database, call.subject, part)))

    return call.page.read(read)


def show(call: ManagedCall[str]) -> RouteAnswer:
    """A route with its draft."""
    return _show(route_changes.find_route(call.database, call.subject, call.params["route_name"]))


def put(call: ManagedCall[str]) -> RouteAnswer:
    """Set the draft of the route of this name, which you choose, its aliases and its project. Requests use the draft
    once it is published."""
    given = call.fields
    name = call.params["route_name"]
    document = _read(call, given["document"])
    aliases = tuple(dict.fromkeys(given["aliases"]))
    catalogue = call.services.routing.catalogue.current()
    route_changes.check_names(name, aliases, given["replacesModels"], catalogue)
    stored = route_changes.put_route(
        *call.stores, call.subject, name, document, aliases, given["projectId"] or "", actor=call.actor
    )
    return _show(stored)


def check(call: ManagedCall[str]) -> RouteCheckAnswer:
    """Check a document without storing it."""
    document = _read(call, call.fields["document"])
    return RouteCheckAnswer(sentences_of(document), list(document.models()))


def simulate(call: ManagedCall[str]) -> RouteSimulationAnswer:
    """Try a document with the stored requests of the last days: which models it would have chosen, and what they would
    have cost. Nothing is stored."""
    fields = call.fields
    project_id = fields["projectId"] or ""
    if project_id and find_project(call.database, project_id).organization_id != call.subject:
        raise NotFound(f"There is no project {project_id} in this organization.")
    call.management.throttle.take(ThrottleGate("dry runs of routes", call.subject, PER_MINUTE, 60))
    route = compile_route("dry run", 0, _read(call, fields["document"]), project_id)
    prices = call.services.engine.chat.routes.prices
    requested = frozenset(fields["requested"])
    done = simulate_route(call.database, call.subject, route, prices, fields["days"], requested)
    return RouteSimulationAnswer.of(done, choices=[SimulatedChoiceAnswer.of(one) for one in done.choices])


def publish(call: ManagedCall[str]) -> RouteAnswer:
    """Publish the draft as a new version, or an earlier version again. All nodes use it within a second; a request
    that has begun keeps its version."""
    version = call.fields["version"]
    name = call.params["route_name"]
    if version is None:
        _read(call, route_changes.find_route(call.database, call.subject, name).draft.value)
    return _show(route_changes.publish_route(*call.stores, call.subject, name, version, actor=call.actor))


def list_versions(call: ManagedCall[str]) -> list[RouteVersionAnswer]:
    """The versions of a route, the newest first."""
    found = route_changes.list_versions(call.database, call.subject, call.params["route_name"])
    return [_show_version(version) for version in found]


def delete(call: ManagedCall[str]) -> None:
    """Delete a route with its versions. Requests for its names are refused, or use the model of that name."""
    route_changes.delete_route(*call.stores, call.subject, call.params["route_name"], actor=call.actor)


def list_savings(call: ManagedCall[str]) -> list[RouteSavingsAnswer]:
    """Sum what routes saved, by route, version, rule and model: the cost of the same usage at the reference model,
    less the cost. Calls at a reference model without a known price save nothing."""
    days = call.fields.get("days", DEFAULT_DAYS)
    found = sum_savings(call.database, call.subject, call.database.now_us() - days * DAY_US)
    return [
        RouteSavingsAnswer.of(
            one,
            average_ms=one.duration_ms // (one.requests or 1),
            finish_reasons=one.finishes,
            cost=one.cost_nusd,
            alternative_cost=one.reference_nusd,
            saved=one.reference_nusd - one.cost_nusd,
        )
        for one in found
    ]


def _read(call: ManagedCall[str], value: Any) -> RouteDocument:
    document = read_document(value)
    _check_targets(call, document)
    return document


def _check_targets(call: ManagedCall[str], document: RouteDocument) -> None:
    route_changes.check_targets(document, call.visitor.names_known_to(call.subject))


def _show(route: StoredRoute) -> RouteAnswer:
    return RouteAnswer.of(
        route,
        id=route.name,
        project_id=route.project_id or None,
        names=list(called_by(route.name, list(route.aliases))),
        aliases=list(route.aliases),
        document=route.draft.value,
        rules=_sentences(route.draft),
        left_out=list(route.draft.left_out),
        changed_by=route.draft_by,
        changed_at=route.draft_at_us,
        published_version=route.published or None,
        published_rules=_sentences(route.in_force),
        published_left_out=[] if route.in_force is None else list(route.in_force.left_out),
        published_by=route.published_by or None,
        published_at=route.published_at_us,
        latest_version=route.latest,
        created_at=route.created_at_us,
    )


def _sentences(stored: RouteInStore | None) -> list[str]:
    return [] if stored is None or stored.document is None else sentences_of(stored.document)


def _show_version(version: RouteVersion) -> RouteVersionAnswer:
    return RouteVersionAnswer.of(
        version,
        document=version.document.value,
        rules=_sentences(version.document),
        left_out=list(version.document.left_out),
        created_at=version.created_at_us,
    )


ROUTES = "/orgs/<organization_id>/routes"
ROUTE = f"{ROUTES}/<route_name>"
READ = in_organization("rules:read")
WRITE = in_organization("rules:write")

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ROUTES, list_all, "List routes", tag=TAG, who=READ, scope="rules:read", query=ListPageQuery,
            inside="routes", commands=("routes list",)),
    managed("POST", f"{ROUTES}/check", check, "Check the document of a route", tag=TAG, who=READ, scope="rules:read",
            request=RouteCheckBody, inside="check", commands=("routes check <document>",)),
    managed("POST", f"{ROUTES}/simulation", simulate, "Simulate a route over the last days", tag=TAG, who=READ,
            scope="rules:read", request=RouteSimulationBody, inside="simulation",
            commands=("routes simulate <document> --days=days --requested=requested --project=projectId",)),
    managed("GET", f"{ROUTES}/savings", list_savings, "Sum the savings of routes", tag=TAG, who=READ,
            scope="rules:read", query=SavingsQuery, inside="savings", commands=("routes savings --days=days",)),
    managed("GET", ROUTE, show, "Show a route", tag=TAG, who=READ, scope="rules:read", inside="route",
            commands=("routes show <route_name> -> document",)),
    managed("PUT", ROUTE, put, "Set the draft of a route", tag=TAG, who=WRITE, scope="rules:write", request=RouteBody,
            inside="route", audit="route.update",
            commands=("routes set <route_name> <document> --alias=aliases --project=projectId "
                      "--replaces-models=replacesModels",)),
    managed("POST", f"{ROUTE}/publish", publish, "Publish a version of a route", tag=TAG, who=WRITE,
            scope="rules:write", request=PublishBody, inside="route", audit="route.publish",
            commands=("routes publish <route_name> --version=version",)),
    managed("GET", f"{ROUTE}/versions", list_versions, "List the versions of a route", tag=TAG, who=READ,
            scope="rules:read", inside="versions", commands=("routes versions <route_name>",)),
    managed("DELETE", ROUTE, delete, "Delete a route", tag=TAG, who=WRITE, scope="rules:write",
            message="Route deleted.", audit="route.delete", commands=("routes delete <route_name>",)),
)  # fmt: skip
