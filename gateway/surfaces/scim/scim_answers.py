"""Answers of SCIM (RFC 7643, RFC 7644) except for users and groups, which the attribute table describes."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from gateway.surfaces.answer_structs import JsonObject, Url

LIST_URN = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR_URN = "urn:ietf:params:scim:api:messages:2.0:Error"
# Error codes of the gateway → scimType (RFC 7644, table 9).
SCIM_TYPES = {
    "invalid_filter": "invalidFilter",
    "invalid_path": "invalidPath",
    "no_target": "noTarget",
    "read_only": "mutability",
    "invalid_value": "invalidValue",
    "invalid_parameters": "invalidValue",
    "invalid_json": "invalidSyntax",
    "too_many": "tooMany",
    "user_exists": "uniqueness",
    "member_exists": "uniqueness",
    "group_exists": "uniqueness",
}


class ScimError(TypedDict):
    schemas: list[Annotated[str, Meta(extra_json_schema={"enum": [ERROR_URN]})]]
    status: str
    scimType: NotRequired[Annotated[str, Meta(extra_json_schema={"enum": sorted(set(SCIM_TYPES.values()))})]]
    detail: str


class ScimMeta(TypedDict):
    resourceType: str
    location: Url


class ScimList(TypedDict):
    schemas: list[Annotated[str, Meta(extra_json_schema={"enum": [LIST_URN]})]]
    totalResults: int
    startIndex: int
    itemsPerPage: int
    Resources: list[Any]


class ScimAttributeDocument(TypedDict):
    name: str
    type: str
    multiValued: bool
    description: str
    required: bool
    caseExact: bool
    mutability: str
    returned: str
    uniqueness: str
    canonicalValues: NotRequired[list[str]]
    referenceTypes: NotRequired[list[str]]
    subAttributes: NotRequired[list[JsonObject]]


class ScimSchemaDocument(TypedDict):
    schemas: list[str]
    id: str
    name: str
    description: str
    attributes: list[ScimAttributeDocument]
    meta: ScimMeta


class ScimSchemaExtension(TypedDict):
    schema: str
    required: bool


class ScimResourceTypeDocument(TypedDict):
    schemas: list[str]
    id: str
    name: str
    endpoint: str
    description: str
    schema: str
    schemaExtensions: NotRequired[list[ScimSchemaExtension]]
    meta: ScimMeta


class ScimAbility(TypedDict):
    supported: bool


class ScimBulkAbility(ScimAbility):
    maxOperations: int
    maxPayloadSize: int


class ScimFilterAbility(ScimAbility):
    maxResults: int


class ScimAuthenticationScheme(TypedDict):
    type: str
    name: str
    description: str
    specUri: Url
    primary: bool


class ScimServiceProviderConfig(TypedDict):
    schemas: list[str]
    documentationUri: Url
    patch: ScimAbility
    bulk: ScimBulkAbility
    filter: ScimFilterAbility
    changePassword: ScimAbility
    sort: ScimAbility
    etag: ScimAbility
    authenticationSchemes: list[ScimAuthenticationScheme]
    meta: ScimMeta
