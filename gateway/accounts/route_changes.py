"""The routes of organizations: drafts, versions, and which version is published."""

import json
import re
from typing import Any

import peewee
from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import check_quota, commit
from gateway.accounts.known_names import KnownNames
from gateway.callers.models import Project
from gateway.catalogue.catalogue import Catalogue
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.neutral.request import AUTO, SMART, is_marked
from gateway.routes.route_book import SMART_NAMES, called_by, is_route_name
from gateway.routes.route_document import (
    RouteDocument,
    RouteInStore,
    load_stored,
    named_models,
    read_document,
    write_document,
)
from gateway.store.database import WHOLE, Base, Database, ListSlice, TimeField

MAX_ROUTES = 100  # of an organization
MAX_ALIASES = 8  # of a route
MAX_VERSIONS = 50  # that are kept of a route; the published one is never removed
CHAT = "chat"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
RESERVED = frozenset((AUTO, SMART, "custom", "check", "savings", "simulation"))


class ModelRoute(Base):
    """A route. `aliases` is a JSON list; `draft` the JSON of the document that the next version will have, `published`
    the version in force, 0 for none."""

    id = peewee.CharField(40, primary_key=True)
    organization_id = peewee.CharField(40)
    name = peewee.CharField(64)
    project_id = peewee.CharField(40, default="")
    aliases = peewee.TextField()
    draft = peewee.TextField()
    draft_by = peewee.CharField(80)
    draft_at = TimeField()
    published = peewee.IntegerField(default=0)
    published_by = peewee.CharField(80, default="")
    published_at = TimeField(null=True)
    created_at = TimeField()

    class Meta:
        table_name = "model_route"


class ModelRouteVersion(Base):
    """A version of a route, which never changes."""

    route_id = peewee.CharField(40)
    version = peewee.IntegerField()
    document = peewee.TextField()
    created_by = peewee.CharField(80)
    created_at = TimeField()

    class Meta:
        table_name = "model_route_version"
        primary_key = peewee.CompositeKey("route_id", "version")


class StoredRoute(Struct, frozen=True):
    """A route with its draft. `latest` is its newest version, 0 without one; `in_force` is the published document."""

    id: str
    organization_id: str
    name: str
    project_id: str
    aliases: tuple[str, ...]
    draft: RouteInStore
    draft_by: str
    draft_at_us: int
    published: int
    published_by: str
    published_at_us: int | None
    latest: int
    in_force: RouteInStore | None
    created_at_us: int


class RouteVersion(Struct, frozen=True):
    version: int
    document: RouteInStore
    created_by: str
    created_at_us: int


def check_targets(document: RouteDocument, known: KnownNames) -> None:
    """InvalidRequest for a target that no request could name."""
    for model, place in named_models(document).items():
        param = f"document.{place}"
        if is_route_name(model):
            raise InvalidRequest(f"The target {model!r} is a route; a route ends at models.", param=param)
        if model != AUTO:
            known.check_requested_model(model, param)
            _check_chats(model, known.catalogue, param)
    if document.reference == AUTO:
        raise InvalidRequest("The reference is a model with a price.", param="document.reference")


def _check_chats(model: str, catalogue: Catalogue, param: str) -> None:
    """InvalidRequest for a model of the catalogue that serves no chats, such as one for images alone."""
    entry = catalogue.find_version(model) or catalogue.find_version(model.rpartition("/")[2].partition(":")[0])
    if entry is not None and not any(CHAT in mapping.operations for mapping in entry.mappings):
        text = f"{model} serves no chat requests, and routes choose models for these only."
        raise InvalidRequest(text, param=param, code="route_serves_chat")


def check_names(name: str, aliases: tuple[str, ...], replaces_models: bool, catalogue: Catalogue) -> None:
    """InvalidRequest for a name that no route can have, and for an alias that is a model without `replaces_models`."""
    if not NAME.fullmatch(name) or name in RESERVED - {SMART}:
        raise InvalidRequest(
            "The name of a route has at most 64 lower-case letters, digits, dots, dashes and underscores.", param="name"
        )
    if len(aliases) > MAX_ALIASES:
        raise InvalidRequest(f"A route has at most {MAX_ALIASES} aliases.", param="aliases")
    for alias in aliases:
        if not ALIAS.fullmatch(alias) or alias.lower() in RESERVED | SMART_NAMES or is_marked(alias):
            raise InvalidRequest(f"{alias[:64]!r} cannot be the alias of a route.", param="aliases")
        model = catalogue.find_version(alias)
        if model is not None and not replaces_models:
            raise InvalidRequest(
                f"The alias {alias!r} is a name of the model {model.id}. Requests for it would use the route; set "
                "replacesModels to allow that.",
                param="aliases",
                code="route_replaces_model",
            )


def put_route(
    database: Database,
    control: Control,
    organization_id: str,
    name: str,
    document: RouteDocument,
    aliases: tuple[str, ...],
    project_id: str,
    *,
    actor: str,
) -> StoredRoute:
    """Create a route with a draft, or replace the draft, the aliases and the project of the one of this name. New
    aliases apply with the next request. InvalidRequest, NotFound, Conflict."""
    text = write_document(document)

    def work(now: int) -> StoredRoute:
        if project_id:
            known = Project.select().where(Project.id == project_id, Project.organization == organization_id)
            if not known.exists():
                raise NotFound(f"There is no project {project_id} in this organization.")
        row = _row_of(organization_id, name)
        _check_free(organization_id, name, aliases)
        fields = {
            "project_id": project_id,
            "aliases": json.dumps(list(aliases)),
            "draft": text,
            "draft_by": actor,
            "draft_at": now,
        }
        if row is None:
            check_quota(ModelRoute.select().where(ModelRoute.organization_id == organization_id), MAX_ROUTES, "routes")
            ident = ids.new("route")
            ModelRoute.insert(id=ident, organization_id=organization_id, name=name, created_at=now, **fields).execute()
        else:
            ModelRoute.update(**fields).where(ModelRoute.id == row.id).execute()
        stored = _find(organization_id, name)
        _audit("route.update", stored, actor, now)
        return stored

    return commit(database, control, work)


def publish_route(
    database: Database, control: Control, organization_id: str, name: str, version: int | None, *, actor: str
) -> StoredRoute:
    """Publish the draft as a new version, or an earlier `version` again. A draft that equals the newest version is
    that version. NotFound; InvalidRequest for a draft with parts of a later release, which would be lost."""

    def work(now: int) -> StoredRoute:
        before = _find(organization_id, name)
        number = _add_version(before, actor, now) if version is None else version
        if version is not None and not _versions(before.id).where(ModelRouteVersion.version == version).exists():
            raise NotFound(f"The route {name!r} has no version {version}.")
        ModelRoute.update(published=number, published_by=actor, published_at=now).where(
            ModelRoute.id == before.id
        ).execute()
        after = _find(organization_id, name)
        _audit("route.publish", after, actor, now)
        return after

    return commit(database, control, work)


def delete_route(database: Database, control: Control, organization_id: str, name: str, *, actor: str) -> None:
    """Delete a route with its versions. NotFound."""

    def work(now: int) -> None:
        before = _find(organization_id, name)
        ModelRouteVersion.delete().where(ModelRouteVersion.route_id == before.id).execute()
        ModelRoute.delete().where(ModelRoute.id == before.id).execute()
        _audit("route.delete", before, actor, now)

    commit(database, control, work)


def list_routes(database: Database, organization_id: str, part: ListSlice = WHOLE) -> list[StoredRoute]:
    """Return the routes of an organization by name."""

    def read() -> list[StoredRoute]:
        query = ModelRoute.select().where(ModelRoute.organization_id == organization_id).order_by(ModelRoute.name)
        return [_stored(row) for row in part.narrow(query, ModelRoute.name)]

    return database.read(read)


def find_route(database: Database, organization_id: str, name: str) -> StoredRoute:
    """Return a route of an organization. NotFound."""
    return database.read(lambda: _find(organization_id, name))


def list_versions(database: Database, organization_id: str, name: str) -> list[RouteVersion]:
    """Return the versions of a route, the newest first. NotFound."""

    def read() -> list[RouteVersion]:
        route = _find(organization_id, name)
        rows = _versions(route.id).order_by(ModelRouteVersion.version.desc())
        return [RouteVersion(row.version, load_stored(row.document), row.created_by, row.created_at) for row in rows]

    return database.read(read)


def _add_version(before: StoredRoute, actor: str, now: int) -> int:
    text = write_document(read_document(before.draft.value))
    newest = _versions(before.id).where(ModelRouteVersion.version == before.latest).first()
    if newest is not None and newest.document == text:
        return before.latest
    number = before.latest + 1
    ModelRouteVersion.insert(
        route_id=before.id, version=number, document=text, created_by=actor, created_at=now
    ).execute()
    ModelRouteVersion.delete().where(
        ModelRouteVersion.route_id == before.id,
        ModelRouteVersion.version <= number - MAX_VERSIONS,
        ModelRouteVersion.version != before.published,
    ).execute()
    return number


def _versions(route_id: str) -> Any:
    return ModelRouteVersion.select().where(ModelRouteVersion.route_id == route_id)


def _check_free(organization_id: str, name: str, aliases: tuple[str, ...]) -> None:
    """Conflict for a name by which another route of the organization is called."""
    others = ModelRoute.select().where(ModelRoute.organization_id == organization_id, ModelRoute.name != name)
    for other in others:
        taken = set(called_by(name, list(aliases))) & set(called_by(other.name, json.loads(other.aliases)))
        if taken:
            raise Conflict(f"The route {other.name!r} has the alias {min(taken)!r}.", param="aliases")


def _row_of(organization_id: str, name: str) -> ModelRoute | None:
    row: ModelRoute | None = ModelRoute.get_or_none(
        ModelRoute.organization_id == organization_id, ModelRoute.name == name
    )
    return row


def _find(organization_id: str, name: str) -> StoredRoute:
    row = _row_of(organization_id, name)
    if row is None:
        raise NotFound(f"There is no route {name[:64]!r} in this organization.")
    return _stored(row)


def _stored(row: ModelRoute) -> StoredRoute:
    latest = _versions(row.id).order_by(ModelRouteVersion.version.desc()).first()
    in_force = _versions(row.id).where(ModelRouteVersion.version == row.published).first()
    return StoredRoute(
        row.id,
        row.organization_id,
        row.name,
        row.project_id,
        tuple(json.loads(row.aliases)),
        load_stored(row.draft),
        row.draft_by,
        row.draft_at,
        row.published,
        row.published_by,
        row.published_at,
        0 if latest is None else latest.version,
        None if in_force is None else load_stored(in_force.document),
        row.created_at,
    )


def _audit(action: str, stored: StoredRoute, actor: str, now: int) -> None:
    draft = stored.draft.document
    detail = {
        "name": stored.name,
        "project_id": stored.project_id,
        "aliases": list(stored.aliases),
        "published": stored.published,
        "rules": 0 if draft is None else len(draft.rules),
        "models": [] if draft is None else list(draft.models()),
    }
    audit.append(action, stored.id, actor=actor, at_us=now, organization_id=stored.organization_id, detail=detail)
