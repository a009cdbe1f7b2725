"""JSON schemas of SCIM messages, for the API description. Those of users and groups come from the attribute table."""

from typing import Any

from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.scim.attributes import (
    CORE_GROUP,
    CORE_USER,
    ENTERPRISE,
    ENTERPRISE_USER,
    GROUP,
    USER,
    ScimAttribute,
    ScimSchema,
)
from gateway.surfaces.scim.scim_answers import (
    ScimList,
    ScimListedResource,
    ScimResourceTypeDocument,
    ScimSchemaDocument,
)
from gateway.surfaces.shapes import named, one_of

TYPES = {"boolean": "boolean", "complex": "object"}
PATCH_URN = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


def describe_value(attribute: ScimAttribute) -> dict[str, Any]:
    """Return the JSON schema of an attribute."""
    described: dict[str, Any] = {
        "type": TYPES.get(attribute.type, "string"),
        "description": attribute.description,
    }
    if attribute.parts:
        described["properties"] = {part.name: describe_value(part) for part in attribute.parts}
    if attribute.multi:
        return {"type": "array", "items": described}
    return described


def _resource(schema: ScimSchema, urns: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of an answer. Only the attributes that no query can leave out are required."""
    members: dict[str, Any] = {attribute.name: describe_value(attribute) for attribute in schema.attributes}
    members["externalId"] = "string"
    members["meta"] = {"type": "object"}
    return named(f"Scim{schema.name}", members, schemas=[one_of(*urns)], id="string")


USER_SHAPE = _resource(USER, (CORE_USER, ENTERPRISE))
USER_SHAPE["properties"][ENTERPRISE] = {
    "type": "object",
    "properties": {attribute.name: describe_value(attribute) for attribute in ENTERPRISE_USER.attributes},
}
GROUP_SHAPE = _resource(GROUP, (CORE_GROUP,))


def _request(shape: dict[str, Any], schema: ScimSchema) -> dict[str, Any]:
    """Return the schema of a request with a resource: the gateway chooses the id."""
    required = sorted(attribute.name for attribute in schema.attributes if attribute.required)
    kept = dict(shape["properties"])
    for chosen in ("id", "meta", "groups"):
        kept.pop(chosen, None)
    return {**shape, "title": f"{shape['title']}Request", "properties": kept, "required": required}


USER_REQUEST = _request(USER_SHAPE, USER)
GROUP_REQUEST = _request(GROUP_SHAPE, GROUP)


def _list(title: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list with these items."""
    described = describe_answer(ScimList)
    resources = {"type": "array", "items": item}
    return {**described, "title": title, "properties": {**described["properties"], "Resources": resources}}


USER_LIST = _list("ScimUserList", USER_SHAPE)
GROUP_LIST = _list("ScimGroupList", GROUP_SHAPE)
RESOURCE_LIST = _list("ScimResourceList", {**describe_answer(ScimListedResource), "additionalProperties": True})
SEARCH_URN = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
SEARCH = named(
    "ScimSearch",
    {
        "schemas": [one_of(SEARCH_URN)],
        "filter": "string",
        "startIndex": "integer",
        "count": "integer",
        "attributes": ["string"],
        "excludedAttributes": ["string"],
    },
)
PATCH_OPERATION = named(
    "ScimPatchOperation",
    {"path": "string", "value": {"description": "The value, or an object with attributes where there is no path."}},
    op=one_of("add", "replace", "remove", "Add", "Replace", "Remove"),
)
PATCH = named("ScimPatch", {"schemas": [one_of(PATCH_URN)]}, Operations=[PATCH_OPERATION])
SCHEMA_LIST = _list("ScimSchemaList", describe_answer(ScimSchemaDocument))
RESOURCE_TYPE_LIST = _list("ScimResourceTypeList", describe_answer(ScimResourceTypeDocument))
