"""The operations of SCIM below `/scim/v2`."""

from collections.abc import Callable
from typing import Any, Literal

from marshmallow import fields

from gateway.surfaces.http import About, HeaderParameter, Operation, Outbound, Surface
from gateway.surfaces.scim import discovery_views, group_views, search_views, shapes, user_views
from gateway.surfaces.scim.scim_answers import (
    ScimResourceTypeDocument,
    ScimSchemaDocument,
    ScimServiceProviderConfig,
)
from gateway.surfaces.scim.scim_call import ERRORS, MEDIA, ScimCall, answer_client
from gateway.surfaces.validation_schemas import Body, describe_field

TAG = "SCIM"
ROOT = "/scim/v2"
ALWAYS = (400, 401, 404, 410, 429, 503)
OF_CHANGES = (403, 409, 412, 413, 415)
IF_MATCH = HeaderParameter("If-Match", "The ETag that the resource must have; otherwise 412.")
IF_NONE_MATCH = HeaderParameter("If-None-Match", "An ETag that the client knows; the response is then 304.")


class ScimSelection(Body):
    attributes = fields.String(metadata=describe_field("Attributes to return, separated by commas."))
    excludedAttributes = fields.String(metadata=describe_field("Attributes to leave out, separated by commas."))


class ScimListQuery(ScimSelection):
    filter = fields.String(metadata=describe_field('A filter such as userName eq "ada@example.com".'))
    startIndex = fields.Integer(metadata=describe_field("The first resource of the page, from 1."))
    count = fields.Integer(metadata=describe_field("Resources of the page, at most 200."))


def _operation(
    method: str,
    path: str,
    view: Callable[[ScimCall], Outbound],
    summary: str,
    *,
    answer: Any = None,
    request: dict[str, Any] | None = None,
    query: type | None = None,
    headers: tuple[HeaderParameter, ...] = (),
    success: int = 200,
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
    )
    body: Literal["json", "none"] = "json" if request else "none"
    return Operation(method, ROOT + path, answer_client(view), body=body, about=about)


USER = "/Users/<resource_id>"
GROUP = "/Groups/<resource_id>"
OPERATIONS: tuple[Operation, ...] = (
    _operation("GET", "/ServiceProviderConfig", discovery_views.show_config, "Show the abilities",
               answer=ScimServiceProviderConfig),
    _operation("GET", "/ResourceTypes", discovery_views.list_types, "List resource types",
               answer=shapes.RESOURCE_TYPE_LIST),
    _operation("GET", "/ResourceTypes/<resource_id>", discovery_views.find_type, "Show a resource type",
               answer=ScimResourceTypeDocument),
    _operation("GET", "/Schemas", discovery_views.list_schemas, "List schemas", answer=shapes.SCHEMA_LIST),
    _operation("GET", "/Schemas/<resource_id>", discovery_views.find_schema, "Show a schema",
               answer=ScimSchemaDocument),
    _operation("GET", "/Users", user_views.list_users, "List users", answer=shapes.USER_LIST, query=ScimListQuery),
    _operation("POST", "/Users", user_views.create_user, "Create a user", answer=shapes.USER_SHAPE,
               request=shapes.USER_REQUEST, query=ScimSelection, success=201),
    _operation("GET", USER, user_views.find_user, "Show a user", answer=shapes.USER_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", USER, user_views.replace_user, "Replace a user", answer=shapes.USER_SHAPE,
               request=shapes.USER_REQUEST, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", USER, user_views.patch_user, "Change a user", answer=shapes.USER_SHAPE, request=shapes.PATCH,
               query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", USER, user_views.delete_user, "Delete a user", headers=(IF_MATCH,), success=204),
    _operation("GET", "/Groups", group_views.list_groups, "List groups", answer=shapes.GROUP_LIST, query=ScimListQuery),
    _operation("POST", "/Groups", group_views.create_group, "Create a group", answer=shapes.GROUP_SHAPE,
               request=shapes.GROUP_REQUEST, query=ScimSelection, success=201),
    _operation("GET", GROUP, group_views.find_group, "Show a group", answer=shapes.GROUP_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", GROUP, group_views.replace_group, "Replace a group", answer=shapes.GROUP_SHAPE,
               request=shapes.GROUP_REQUEST, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", GROUP, group_views.patch_group, "Change a group", answer=shapes.GROUP_SHAPE,
               request=shapes.PATCH, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", GROUP, group_views.delete_group, "Delete a group", headers=(IF_MATCH,), success=204),
    _operation("POST", "/.search", search_views.search_all, "Search users and groups", answer=shapes.RESOURCE_LIST,
               request=shapes.SEARCH),
    _operation("POST", "/Users/.search", user_views.list_users, "Search users", answer=shapes.USER_LIST,
               request=shapes.SEARCH),
    _operation("POST", "/Groups/.search", group_views.list_groups, "Search groups", answer=shapes.GROUP_LIST,
               request=shapes.SEARCH),
)  # fmt: skip
SURFACE = Surface("scim", ERRORS, OPERATIONS, prefixes=("/scim",))
