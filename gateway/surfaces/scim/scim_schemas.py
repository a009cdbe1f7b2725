"""JSON schemas of users and groups for the API description, made from the attribute table, and of lists."""

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
from gateway.surfaces.scim.scim_answers import ScimList, ScimMeta, ScimResourceTypeDocument, ScimSchemaDocument

TYPES = {"boolean": "boolean", "complex": "object"}


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
    members = {attribute.name: describe_value(attribute) for attribute in schema.attributes}
    members["schemas"] = {"type": "array", "items": {"enum": list(urns)}}
    members["id"] = {"type": "string"}
    members["externalId"] = {"type": "string"}
    members["meta"] = describe_answer(ScimMeta)
    return {"title": f"Scim{schema.name}", "type": "object", "properties": members, "required": ["schemas", "id"]}


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
RESOURCE_LIST = _list("ScimResourceList", {"anyOf": [USER_SHAPE, GROUP_SHAPE]})
SCHEMA_LIST = _list("ScimSchemaList", describe_answer(ScimSchemaDocument))
RESOURCE_TYPE_LIST = _list("ScimResourceTypeList", describe_answer(ScimResourceTypeDocument))
