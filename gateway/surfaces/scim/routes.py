"""The operations of SCIM below `/scim/v2`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from gateway.accounts.member_attributes import ENTERPRISE
from gateway.accounts.members import load_members
from gateway.accounts.provisioning.provisioned_users import ProvisionedUsers
from gateway.accounts.provisioning.user_rows import ProvisionedUser, StaleVersion, UserLookup, UserValues
from gateway.admin.erasure import erasing
from gateway.errors import Conflict, Forbidden, NotFound
from gateway.runtime.threads import compute_if
from gateway.surfaces.scim import group_views, patches, scim_call
from gateway.surfaces.scim.attributes import (
    CORE_GROUP,
    CORE_USER,
    ENTERPRISE_USER,
    RESOURCE_TYPES,
    SCHEMAS,
    USERS,
    ScimAttribute,
    ScimSchema,
)
from gateway.surfaces.scim.attributes import GROUP as GROUP_ATTRIBUTES
from gateway.surfaces.scim.attributes import USER as USER_ATTRIBUTES
from gateway.surfaces.scim.group_views import select_groups
from gateway.surfaces.scim.resources import document_of, etag_of, project, show_user, values_of
from gateway.surfaces.scim.scim_answers import (
    LIST_URN,
    PATCH_URN,
    SEARCH_URN,
    ScimList,
    ScimListQuery,
    ScimMeta,
    ScimPatch,
    ScimResourceTypeDocument,
    ScimSchemaDocument,
    ScimSearch,
    ScimSelection,
    ScimServiceProviderConfig,
)
from gateway.surfaces.scim.scim_call import ERRORS, MAX_BODY_BYTES, MAX_RESULTS, MEDIA, ScimCall, answer_client
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.http import About, HeaderParameter, Operation, Outbound, Surface

# `/scim/v2/Users`: the members of the organization.

CHANGE_ATTEMPTS = 5  # of a change without If-Match that another change overtakes


def list_users(call: ScimCall) -> Outbound:
    """List the users, all or those that fulfil a filter."""
    query = scim_call.read_query(call)
    return scim_call.reply_list(call, query, *select_users(call, query))


def select_users(call: ScimCall, query: scim_call.ScimQuery) -> tuple[int, list[scim_call.Json]]:
    """Return how many users fulfil a query, and those of the page."""
    users = _users(call)
    show = partial(show_user, base_url=call.base_url)
    with call.services.background.reports.turn(call.organization_id):
        if query.node is None:
            total, page = users.page(call.organization_id, UserLookup(), query.start - 1, query.count)
        else:
            pieces = users.scan(call.organization_id, _lookup_of(query))
            total, page = scim_call.select(USERS, query, pieces, show)
    return total, [project(USERS, show(user), query.attributes, query.excluded) for user in page]


def find_user(call: ScimCall) -> Outbound:
    """Return one user."""
    return _reply(call, _users(call).find(call.organization_id, call.resource_id))


def create_user(call: ScimCall) -> Outbound:
    """Create a user: a member of the organization without a password. A member that no identity provider manages yet is
    taken over."""
    body = call.body()
    document: patches.Document = {"active": True}
    patches.assign(USERS, document, body)
    return _reply(call, _users(call).create(call.client, values_of(document)), 201)


def replace_user(call: ScimCall) -> Outbound:
    """Replace the attributes of a user. A user without `active` stays as before."""
    body = call.body()

    def change(before: ProvisionedUser) -> UserValues:
        document: patches.Document = {"active": before.active}
        patches.assign(USERS, document, body)
        return values_of(document)

    return _change(call, change)


def patch_user(call: ScimCall) -> Outbound:
    """Change attributes of a user. A user with `active` false loses access everywhere before the response."""
    operations = compute_if(call.is_long(), patches.read_operations, call.body())

    def change(before: ProvisionedUser) -> UserValues:
        document = document_of(before)
        for operation in operations:
            patches.apply(USERS, document, operation)
        return values_of(document)

    return _change(call, change)


def delete_user(call: ScimCall) -> Outbound:
    """Remove a user from the organization and revoke the user's API keys. The account and its other memberships stay;
    with `retention.erase_removed`, the personal data in this organization are erased."""
    users = _users(call)
    version = ""
    if call.inbound.header("if-match"):
        user = users.find(call.organization_id, call.resource_id)
        call.check_precondition(etag_of(user))
        version = user.version
    database = call.services.store.database

    def erase(removed: ProvisionedUser, now: int) -> None:
        [member] = load_members([call.resource_id])
        words = (removed.user_name, removed.external_id, removed.email, removed.account_email, removed.account_name)
        erasing(database, member, actor=call.client.actor, words=words)(now)

    erases = call.services.settings.retention.erase_removed
    users.delete(call.client, call.resource_id, version, erase if erases else None)
    return call.reply(None, 204)


def _change(call: ScimCall, change: Callable[[ProvisionedUser], UserValues]) -> Outbound:
    """Apply a change to the user in the path. Without If-Match it is repeated when another change overtakes it."""
    users = _users(call)
    for _ in range(CHANGE_ATTEMPTS):
        before = users.find(call.organization_id, call.resource_id)
        is_bound = call.check_precondition(etag_of(before))
        stated = compute_if(call.is_long(), change, before)
        try:
            return _reply(call, users.update(call.client, before, stated))
        except StaleVersion:
            if is_bound:
                raise
    raise Conflict("The user is changed by too many requests at the same time; try again.")


def _reply(call: ScimCall, user: ProvisionedUser, status: int = 200) -> Outbound:
    given = call.selection()
    shown = show_user(user, call.base_url)
    location = shown["meta"]["location"] if status == 201 else ""
    shown = project(USERS, shown, given.get("attributes", ""), given.get("excludedAttributes", ""))
    return call.reply(shown, status, etag_of(user), location)


def _users(call: ScimCall) -> ProvisionedUsers:
    return call.services.management.provisioned_users


def _lookup_of(query: scim_call.ScimQuery) -> UserLookup:
    known = query.equalities()
    return UserLookup(
        id=known.get("id", ""),
        user_name=known.get("username", ""),
        external_id=known.get("externalid", ""),
    )


# `/scim/v2/ServiceProviderConfig`, `ResourceTypes` and `Schemas`: the abilities of the surface.

CONFIG_URN = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
DOCUMENTATION = "/docs"
Documents = Sequence[ScimResourceTypeDocument] | Sequence[ScimSchemaDocument]


def show_config(call: ScimCall) -> Outbound:
    """Return which optional parts of SCIM the gateway supports."""
    root = call.inbound.base_url.rstrip("/")
    config: ScimServiceProviderConfig = {
        "schemas": [CONFIG_URN],
        "documentationUri": root + DOCUMENTATION,
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": MAX_BODY_BYTES},
        "filter": {"supported": True, "maxResults": MAX_RESULTS},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": True},
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "SCIM token",
                "description": "A token that an owner or admin creates in the settings of the organization.",
                "specUri": "https://www.rfc-editor.org/rfc/rfc6750",
                "primary": True,
            }
        ],
        "meta": {"resourceType": "ServiceProviderConfig", "location": f"{call.base_url}/ServiceProviderConfig"},
    }
    return call.reply(config)


def list_types(call: ScimCall) -> Outbound:
    """Return the types of resources."""
    return _reply_all(call, [kind.describe(call.base_url) for kind in RESOURCE_TYPES])


def find_type(call: ScimCall) -> Outbound:
    """Return one type of resources."""
    return _reply_one(call, [kind.describe(call.base_url) for kind in RESOURCE_TYPES])


def list_schemas(call: ScimCall) -> Outbound:
    """Return the schemas with their attributes."""
    return _reply_all(call, [schema.describe(call.base_url) for schema in SCHEMAS])


def find_schema(call: ScimCall) -> Outbound:
    """Return one schema with its attributes."""
    return _reply_one(call, [schema.describe(call.base_url) for schema in SCHEMAS])


def _reply_all(call: ScimCall, documents: Documents) -> Outbound:
    if any(name.lower() == "filter" for name in call.inbound.arguments()):
        # RFC 7644, section 4: these lists have no filters, so that clients always see all of them.
        raise Forbidden("This list has no filter.")
    count = len(documents)
    body: ScimList = {
        "schemas": [LIST_URN],
        "totalResults": count,
        "startIndex": 1,
        "itemsPerPage": count,
        "Resources": list(documents),
    }
    return call.reply(body)


def _reply_one(call: ScimCall, documents: Documents) -> Outbound:
    for document in documents:
        if document["id"] == call.resource_id:
            return call.reply(document)
    raise NotFound(f"There is no schema or resource type {call.resource_id[:80]}.")


# JSON schemas of users and groups for the API description, made from the attribute table, and of lists.

JSON_TYPES = {"boolean": "boolean", "complex": "object"}


def describe_value(attribute: ScimAttribute) -> dict[str, Any]:
    """Return the JSON schema of an attribute."""
    described: dict[str, Any] = {
        "type": JSON_TYPES.get(attribute.type, "string"),
        "description": attribute.description,
    }
    if attribute.parts:
        described["properties"] = {part.name: describe_value(part) for part in attribute.parts}
    if attribute.multi:
        return {"type": "array", "items": described}
    return described


def _resource(schema: ScimSchema, urns: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of an answer. Only the attributes that no query can leave out are required."""
    members = {attribute.name: describe_value(attribute) for attribute in schema.attributes}
    members["schemas"] = {"type": "array", "items": {"enum": list(urns)}}
    members["id"] = {"type": "string"}
    members["externalId"] = {"type": "string"}
    members["meta"] = describe_answer(ScimMeta)
    return {"title": f"Scim{schema.name}", "type": "object", "properties": members, "required": ["schemas", "id"]}


USER_SHAPE = _resource(USER_ATTRIBUTES, (CORE_USER, ENTERPRISE))
USER_SHAPE["properties"][ENTERPRISE] = {
    "type": "object",
    "properties": {attribute.name: describe_value(attribute) for attribute in ENTERPRISE_USER.attributes},
}
GROUP_SHAPE = _resource(GROUP_ATTRIBUTES, (CORE_GROUP,))


def _request(shape: dict[str, Any], schema: ScimSchema) -> dict[str, Any]:
    """Return the schema of a request with a resource: the gateway chooses the id."""
    required = sorted(attribute.name for attribute in schema.attributes if attribute.required)
    kept = dict(shape["properties"])
    for chosen in ("id", "meta", "groups"):
        kept.pop(chosen, None)
    return {**shape, "title": f"{shape['title']}Request", "properties": kept, "required": required}


USER_REQUEST = _request(USER_SHAPE, USER_ATTRIBUTES)
GROUP_REQUEST = _request(GROUP_SHAPE, GROUP_ATTRIBUTES)


def _list(title: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list with these items."""
    described = describe_answer(ScimList)
    resources = {"type": "array", "items": item}
    return {**described, "title": title, "properties": {**described["properties"], "Resources": resources}}


USER_LIST = _list("ScimUserList", USER_SHAPE)
GROUP_LIST = _list("ScimGroupList", GROUP_SHAPE)
RESOURCE_LIST = _list("ScimResourceList", {"anyOf": [USER_SHAPE, GROUP_SHAPE]})
SCHEMA_LIST = _list("ScimSchemaList", describe_answer(ScimSchemaDocument))
RESOURCE_TYPE_LIST = _list("ScimResourceTypeList", describe_answer(ScimResourceTypeDocument))


# `/scim/v2/.search`: users and groups in one list.


def search_all(call: ScimCall) -> Outbound:
    """List users and groups that fulfil a filter, the users first."""
    query = scim_call.read_query(call)
    user_count, users = select_users(call, query)
    rest = replace(query, start=max(1, query.start - user_count), count=query.count - len(users))
    group_count, groups = select_groups(call, rest)
    return scim_call.reply_list(call, query, user_count + group_count, [*users, *groups])


TAG = "SCIM"
ROOT = "/scim/v2"
ALWAYS = (400, 401, 404, 410, 429, 503)
OF_CHANGES = (403, 409, 412, 413, 415)
IF_MATCH = HeaderParameter("If-Match", "The ETag that the resource must have; otherwise 412.")
IF_NONE_MATCH = HeaderParameter("If-None-Match", "An ETag that the client knows; the response is then 304.")


def _operation(
    method: str,
    path: str,
    view: Callable[[ScimCall], Outbound],
    summary: str,
    *,
    answer: Any = None,
    request: type | dict[str, Any] | None = None,
    query: type | None = None,
    headers: tuple[HeaderParameter, ...] = (),
    success: int = 200,
    example: dict[str, Any] | None = None,
) -> Operation:
    refused = ALWAYS if method == "GET" else tuple(sorted((*ALWAYS, *OF_CHANGES)))
    about = About(
        summary,
        TAG,
        request,
        query,
        answer,
        (success,),
        refused,
        "provisioning",
        MEDIA,
        headers=headers,
        example=example,
    )
    body: Literal["json", "none"] = "json" if request else "none"
    return Operation(method, ROOT + path, answer_client(view), body=body, about=about)


USER_EXAMPLE = {
    "schemas": [CORE_USER],
    "userName": "ada@example.com",
    "name": {"givenName": "Ada", "familyName": "Lovelace"},
    "emails": [{"value": "ada@example.com", "primary": True}],
}
GROUP_EXAMPLE = {"schemas": [CORE_GROUP], "displayName": "Research"}
PATCH_EXAMPLE = {
    "schemas": [PATCH_URN],
    "Operations": [{"op": "replace", "path": "displayName", "value": "Ada Lovelace"}],
}
SEARCH_EXAMPLE = {"schemas": [SEARCH_URN], "filter": 'displayName eq "Research"', "count": 10}
USER_PATH = "/Users/<resource_id>"
GROUP_PATH = "/Groups/<resource_id>"
OPERATIONS: tuple[Operation, ...] = (
    _operation("GET", "/ServiceProviderConfig", show_config, "Show the service provider configuration",
               answer=ScimServiceProviderConfig),
    _operation("GET", "/ResourceTypes", list_types, "List resource types",
               answer=RESOURCE_TYPE_LIST),
    _operation("GET", "/ResourceTypes/<resource_id>", find_type, "Show a resource type",
               answer=ScimResourceTypeDocument),
    _operation("GET", "/Schemas", list_schemas, "List schemas", answer=SCHEMA_LIST),
    _operation("GET", "/Schemas/<resource_id>", find_schema, "Show a schema",
               answer=ScimSchemaDocument),
    _operation("GET", "/Users", list_users, "List users", answer=USER_LIST, query=ScimListQuery),
    _operation("POST", "/Users", create_user, "Create a user", answer=USER_SHAPE,
               request=USER_REQUEST, example=USER_EXAMPLE, query=ScimSelection, success=201),
    _operation("GET", USER_PATH, find_user, "Show a user", answer=USER_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", USER_PATH, replace_user, "Replace a user", answer=USER_SHAPE,
               request=USER_REQUEST, example=USER_EXAMPLE, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", USER_PATH, patch_user, "Change a user", answer=USER_SHAPE, request=ScimPatch,
               example=PATCH_EXAMPLE, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", USER_PATH, delete_user, "Delete a user", headers=(IF_MATCH,), success=204),
    _operation("GET", "/Groups", group_views.list_groups, "List groups", answer=GROUP_LIST, query=ScimListQuery),
    _operation("POST", "/Groups", group_views.create_group, "Create a group", answer=GROUP_SHAPE,
               request=GROUP_REQUEST, example=GROUP_EXAMPLE, query=ScimSelection, success=201),
    _operation("GET", GROUP_PATH, group_views.find_group, "Show a group", answer=GROUP_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", GROUP_PATH, group_views.replace_group, "Replace a group", answer=GROUP_SHAPE,
               request=GROUP_REQUEST, example=GROUP_EXAMPLE, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", GROUP_PATH, group_views.patch_group, "Change a group", answer=GROUP_SHAPE,
               request=ScimPatch, example=PATCH_EXAMPLE, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", GROUP_PATH, group_views.delete_group, "Delete a group", headers=(IF_MATCH,), success=204),
    _operation("POST", "/.search", search_all, "Search users and groups", answer=RESOURCE_LIST,
               request=ScimSearch, example=SEARCH_EXAMPLE),
    _operation("POST", "/Users/.search", list_users, "Search users", answer=USER_LIST,
               request=ScimSearch, example=SEARCH_EXAMPLE),
    _operation("POST", "/Groups/.search", group_views.list_groups, "Search groups", answer=GROUP_LIST,
               request=ScimSearch, example=SEARCH_EXAMPLE),
)  # fmt: skip
SURFACE = Surface("scim", ERRORS, OPERATIONS, prefixes=("/scim",))
