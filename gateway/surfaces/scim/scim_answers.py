"""Answers of SCIM (RFC 7643, RFC 7644) except for users and groups, which the attribute table describes."""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar, cast

from msgspec import Meta

from gateway.surfaces.web.answer_structs import JsonObject, Url

# Requests of SCIM (RFC 7644) as types, except for users and groups, which the attribute table describes.
#
# Names of members are read in any case. The readers check the values, since identity providers vary them.

PATCH_URN = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
SEARCH_URN = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
Filter = Annotated[str, Meta(description='A filter such as userName eq "ada@example.com".')]
Start = Annotated[int, Meta(description="The first resource of the page, from 1.")]
Count = Annotated[int, Meta(description="Resources of the page, at most 200.")]
SELECTED = "Attributes to return"
EXCLUDED = "Attributes to leave out"
ADD = "add"
REPLACE = "replace"
REMOVE = "remove"
# Entra ID capitalizes the names.
PATCH_NAMES = (ADD, REPLACE, REMOVE, *(name.capitalize() for name in (ADD, REPLACE, REMOVE)))

Request = TypeVar("Request")


class ScimSelection(TypedDict, total=False):
    """Parameters of each operation that returns resources."""

    attributes: Annotated[str, Meta(description=f"{SELECTED}, separated by commas.")]
    excludedAttributes: Annotated[str, Meta(description=f"{EXCLUDED}, separated by commas.")]


class ScimListQuery(ScimSelection, total=False):
    """Parameters of a list."""

    filter: Filter
    startIndex: Start
    count: Count


class ScimSearch(TypedDict, total=False):
    """The body of a search."""

    schemas: list[Annotated[str, Meta(extra_json_schema={"enum": [SEARCH_URN]})]]
    filter: Filter
    startIndex: Start
    count: Count
    attributes: Annotated[list[str], Meta(description=f"{SELECTED}.")]
    excludedAttributes: Annotated[list[str], Meta(description=f"{EXCLUDED}.")]


class _PathAndValue(TypedDict, total=False):
    path: str
    value: Annotated[Any, Meta(description="The value, or an object with attributes where there is no path.")]


class ScimPatchOperation(_PathAndValue):
    """An operation of a PATCH."""

    op: Annotated[str, Meta(extra_json_schema={"enum": PATCH_NAMES})]


class _Schemas(TypedDict, total=False):
    schemas: list[Annotated[str, Meta(extra_json_schema={"enum": [PATCH_URN]})]]


class ScimPatch(_Schemas):
    """The body of a PATCH."""

    Operations: list[ScimPatchOperation]


def read_members(kind: type[Request], given: Mapping[str, Any]) -> Request:
    """Return the members that a type names; all others have no effect."""
    names = {name.lower(): name for name in kind.__annotations__}
    return cast(Request, {names[name.lower()]: value for name, value in given.items() if name.lower() in names})


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
