"""The operations of SCIM below `/scim/v2`."""

from collections.abc import Callable
from typing import Any, Literal

from gateway.surfaces.http import About, HeaderParameter, Operation, Outbound, Surface
from gateway.surfaces.scim import discovery_views, group_views, search_views, user_views
from gateway.surfaces.scim.attributes import CORE_GROUP, CORE_USER
from gateway.surfaces.scim.scim_answers import (
    ScimResourceTypeDocument,
    ScimSchemaDocument,
    ScimServiceProviderConfig,
)
from gateway.surfaces.scim.scim_call import ERRORS, MEDIA, ScimCall, answer_client
from gateway.surfaces.scim.scim_requests import (
    PATCH_URN,
    SEARCH_URN,
    ScimListQuery,
    ScimPatch,
    ScimSearch,
    ScimSelection,
)
from gateway.surfaces.scim.scim_schemas import (
    GROUP_LIST,
    GROUP_REQUEST,
    GROUP_SHAPE,
    RESOURCE_LIST,
    RESOURCE_TYPE_LIST,
    SCHEMA_LIST,
    USER_LIST,
    USER_REQUEST,
    USER_SHAPE,
)

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


ADA = {
    "schemas": [CORE_USER],
    "userName": "ada@example.com",
    "name": {"givenName": "Ada", "familyName": "Lovelace"},
    "emails": [{"value": "ada@example.com", "primary": True}],
}
RESEARCH = {"schemas": [CORE_GROUP], "displayName": "Research"}
RENAME = {
    "schemas": [PATCH_URN],
    "Operations": [{"op": "replace", "path": "displayName", "value": "Ada Lovelace"}],
}
SEARCH = {"schemas": [SEARCH_URN], "filter": 'displayName eq "Research"', "count": 10}
USER = "/Users/<resource_id>"
GROUP = "/Groups/<resource_id>"
OPERATIONS: tuple[Operation, ...] = (
    _operation("GET", "/ServiceProviderConfig", discovery_views.show_config, "Show the service provider configuration",
               answer=ScimServiceProviderConfig),
    _operation("GET", "/ResourceTypes", discovery_views.list_types, "List resource types",
               answer=RESOURCE_TYPE_LIST),
    _operation("GET", "/ResourceTypes/<resource_id>", discovery_views.find_type, "Show a resource type",
               answer=ScimResourceTypeDocument),
    _operation("GET", "/Schemas", discovery_views.list_schemas, "List schemas", answer=SCHEMA_LIST),
    _operation("GET", "/Schemas/<resource_id>", discovery_views.find_schema, "Show a schema",
               answer=ScimSchemaDocument),
    _operation("GET", "/Users", user_views.list_users, "List users", answer=USER_LIST, query=ScimListQuery),
    _operation("POST", "/Users", user_views.create_user, "Create a user", answer=USER_SHAPE,
               request=USER_REQUEST, example=ADA, query=ScimSelection, success=201),
    _operation("GET", USER, user_views.find_user, "Show a user", answer=USER_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", USER, user_views.replace_user, "Replace a user", answer=USER_SHAPE,
               request=USER_REQUEST, example=ADA, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", USER, user_views.patch_user, "Change a user", answer=USER_SHAPE, request=ScimPatch,
               example=RENAME, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", USER, user_views.delete_user, "Delete a user", headers=(IF_MATCH,), success=204),
    _operation("GET", "/Groups", group_views.list_groups, "List groups", answer=GROUP_LIST, query=ScimListQuery),
    _operation("POST", "/Groups", group_views.create_group, "Create a group", answer=GROUP_SHAPE,
               request=GROUP_REQUEST, example=RESEARCH, query=ScimSelection, success=201),
    _operation("GET", GROUP, group_views.find_group, "Show a group", answer=GROUP_SHAPE, query=ScimSelection,
               headers=(IF_NONE_MATCH,)),
    _operation("PUT", GROUP, group_views.replace_group, "Replace a group", answer=GROUP_SHAPE,
               request=GROUP_REQUEST, example=RESEARCH, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("PATCH", GROUP, group_views.patch_group, "Change a group", answer=GROUP_SHAPE,
               request=ScimPatch, example=RENAME, query=ScimSelection, headers=(IF_MATCH,)),
    _operation("DELETE", GROUP, group_views.delete_group, "Delete a group", headers=(IF_MATCH,), success=204),
    _operation("POST", "/.search", search_views.search_all, "Search users and groups", answer=RESOURCE_LIST,
               request=ScimSearch, example=SEARCH),
    _operation("POST", "/Users/.search", user_views.list_users, "Search users", answer=USER_LIST,
               request=ScimSearch, example=SEARCH),
    _operation("POST", "/Groups/.search", group_views.list_groups, "Search groups", answer=GROUP_LIST,
               request=ScimSearch, example=SEARCH),
)  # fmt: skip
SURFACE = Surface("scim", ERRORS, OPERATIONS, prefixes=("/scim",))
