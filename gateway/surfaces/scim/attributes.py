"""The attributes of users and groups (RFC 7643): one table for reading, filters, PATCH and the schema documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from gateway.accounts.member_attributes import ENTERPRISE
from gateway.surfaces.scim.scim_answers import ScimAttributeDocument, ScimResourceTypeDocument, ScimSchemaDocument

CORE_USER = "urn:ietf:params:scim:schemas:core:2.0:User"
CORE_GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"


class ScimAttribute(Struct, frozen=True):
    """An attribute as RFC 7643, section 7 characterizes it. `parts` are the sub-attributes of a complex one; `kept`: it
    always has a value and cannot be removed."""

    name: str
    description: str
    type: str = "string"
    multi: bool = False
    required: bool = False
    case_exact: bool = False
    mutability: str = "readWrite"
    uniqueness: str = "none"
    words: tuple[str, ...] = ()
    parts: tuple["ScimAttribute", ...] = ()
    references: tuple[str, ...] = ()
    kept: bool = False

    def part(self, name: str) -> "ScimAttribute | None":
        """Return the sub-attribute with a name in any case."""
        key = name.lower()
        return next((part for part in self.parts if part.name.lower() == key), None)

    def describe(self) -> ScimAttributeDocument:
        """Return the attribute as the schema document has it."""
        described: ScimAttributeDocument = {
            "name": self.name,
            "type": self.type,
            "multiValued": self.multi,
            "description": self.description,
            "required": self.required,
            "caseExact": self.case_exact,
            "mutability": self.mutability,
            "returned": "default",
            "uniqueness": self.uniqueness,
        }
        if self.words:
            described["canonicalValues"] = list(self.words)
        if self.references:
            described["referenceTypes"] = list(self.references)
        if self.parts:
            described["subAttributes"] = [part.describe() for part in self.parts]
        return described


@dataclass(frozen=True)
class ScimSchema:
    """A schema: its URN and its attributes."""

    urn: str
    name: str
    description: str
    attributes: tuple[ScimAttribute, ...]

    @cached_property
    def by_name(self) -> Mapping[str, ScimAttribute]:
        """The attributes by their names in lower case."""
        return {attribute.name.lower(): attribute for attribute in self.attributes}

    def describe(self, base_url: str) -> ScimSchemaDocument:
        """Return the schema document."""
        return {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
            "id": self.urn,
            "name": self.name,
            "description": self.description,
            "attributes": [attribute.describe() for attribute in self.attributes],
            "meta": {"resourceType": "Schema", "location": f"{base_url}/Schemas/{self.urn}"},
        }


@dataclass(frozen=True)
class ScimResourceType:
    """A type of resources: its schema and extensions. Values of `discarded` attributes are accepted and not stored,
    because the gateway does not use them."""

    name: str
    path: str
    description: str
    schema: ScimSchema
    extensions: tuple[ScimSchema, ...] = ()
    discarded: frozenset[str] = frozenset()

    def describe(self, base_url: str) -> ScimResourceTypeDocument:
        """Return the resource type document."""
        document: ScimResourceTypeDocument = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
            "id": self.name,
            "name": self.name,
            "endpoint": f"/{self.path}",
            "description": self.description,
            "schema": self.schema.urn,
            "meta": {"resourceType": "ResourceType", "location": f"{base_url}/ResourceTypes/{self.name}"},
        }
        if self.extensions:
            document["schemaExtensions"] = [
                {"schema": extension.urn, "required": False} for extension in self.extensions
            ]
        return document


# Attributes of every resource (RFC 7643, section 3.1). They are not part of the schema documents.
COMMON_ATTRIBUTES = (
    ScimAttribute("id", "The id of the resource.", case_exact=True, mutability="readOnly"),
    ScimAttribute("externalId", "The id that the identity provider uses.", case_exact=True),
    ScimAttribute("schemas", "The schemas of the resource.", multi=True, mutability="readOnly"),
    ScimAttribute(
        "meta",
        "When the resource was created and changed, and its address.",
        "complex",
        mutability="readOnly",
        parts=(
            ScimAttribute("resourceType", "User or Group.", case_exact=True, mutability="readOnly"),
            ScimAttribute("created", "When it was created.", "dateTime", mutability="readOnly"),
            ScimAttribute("lastModified", "When it was changed.", "dateTime", mutability="readOnly"),
            ScimAttribute("location", "Its address.", "reference", case_exact=True, mutability="readOnly"),
            ScimAttribute("version", "Its ETag.", case_exact=True, mutability="readOnly"),
        ),
    ),
)
COMMON = {attribute.name.lower(): attribute for attribute in COMMON_ATTRIBUTES}

NAME = ScimAttribute(
    "name",
    "The parts of the person's name.",
    "complex",
    parts=(
        ScimAttribute("formatted", "The full name."),
        ScimAttribute("familyName", "The family name."),
        ScimAttribute("givenName", "The given name."),
        ScimAttribute("middleName", "The middle names."),
        ScimAttribute("honorificPrefix", "A title before the name."),
        ScimAttribute("honorificSuffix", "A suffix after the name."),
    ),
)
EMAILS = ScimAttribute(
    "emails",
    "E-mail addresses. The primary one, else that of type work, else the first one is the address of the account.",
    "complex",
    multi=True,
    parts=(
        ScimAttribute("value", "The address."),
        ScimAttribute("display", "A label of the address."),
        ScimAttribute("type", "The use of the address.", words=("work", "home", "other")),
        ScimAttribute("primary", "Whether it is the preferred address.", "boolean"),
    ),
)
GROUPS = ScimAttribute(
    "groups",
    "The groups of the user. They are changed through the groups.",
    "complex",
    multi=True,
    mutability="readOnly",
    parts=(
        ScimAttribute("value", "The id of the group.", case_exact=True, mutability="readOnly"),
        ScimAttribute(
            "$ref",
            "The address of the group.",
            "reference",
            case_exact=True,
            mutability="readOnly",
            references=("Group",),
        ),
        ScimAttribute("display", "The name of the group.", mutability="readOnly"),
    ),
)
USER = ScimSchema(
    CORE_USER,
    "User",
    "A member of the organization.",
    (
        ScimAttribute("userName", "The name of the user at the identity provider.", required=True, uniqueness="server"),
        NAME,
        ScimAttribute("displayName", "The name that the console shows."),
        ScimAttribute("title", "The job title."),
        ScimAttribute("userType", "The relation to the organization, such as Employee."),
        ScimAttribute("preferredLanguage", "The preferred language, as in Accept-Language."),
        ScimAttribute("locale", "The locale, such as en-US."),
        ScimAttribute("timezone", "The time zone, such as Europe/Berlin."),
        ScimAttribute("active", "Whether the member has access.", "boolean", kept=True),
        EMAILS,
        GROUPS,
    ),
)
ENTERPRISE_USER = ScimSchema(
    ENTERPRISE,
    "EnterpriseUser",
    "The place of the person in the company.",
    (
        ScimAttribute("employeeNumber", "The number of the employee."),
        ScimAttribute("costCenter", "The cost center."),
        ScimAttribute("organization", "The organization."),
        ScimAttribute("division", "The division."),
        ScimAttribute("department", "The department."),
        ScimAttribute(
            "manager",
            "The manager of the person.",
            "complex",
            parts=(
                ScimAttribute("value", "The id of the manager.", case_exact=True),
                ScimAttribute(
                    "$ref", "The address of the manager.", "reference", case_exact=True, references=("User",)
                ),
                ScimAttribute("displayName", "The name of the manager.", mutability="readOnly"),
            ),
        ),
    ),
)
MEMBERS = ScimAttribute(
    "members",
    "The users of the group.",
    "complex",
    multi=True,
    parts=(
        ScimAttribute("value", "The id of the user.", case_exact=True, mutability="immutable"),
        ScimAttribute(
            "$ref",
            "The address of the user.",
            "reference",
            case_exact=True,
            mutability="immutable",
            references=("User",),
        ),
        ScimAttribute("type", "The type of the member.", mutability="immutable", words=("User",)),
    ),
)
GROUP = ScimSchema(
    CORE_GROUP,
    "Group",
    "A group of the identity provider. Group rules of the organization give it a role, teams and limits.",
    (ScimAttribute("displayName", "The name of the group.", required=True, uniqueness="server"), MEMBERS),
)
USERS = ScimResourceType(
    "User",
    "Users",
    "Members of the organization",
    USER,
    (ENTERPRISE_USER,),
    frozenset(
        (
            *("nickname", "profileurl", "password", "phonenumbers", "ims", "photos", "addresses", "entitlements"),
            *("roles", "x509certificates"),
        )
    ),
)
GROUPS_TYPE = ScimResourceType("Group", "Groups", "Groups of the identity provider", GROUP)
RESOURCE_TYPES = (USERS, GROUPS_TYPE)
SCHEMAS = tuple(schema for kind in RESOURCE_TYPES for schema in (kind.schema, *kind.extensions))


class AttributePath(Struct, frozen=True):
    """A resolved path: the URN of the extension ("": the core schema), the attribute and the sub-attribute. All are
    None for an attribute that the resource type does not have; then `discarded` is true if its values are accepted
    and dropped."""

    extension: str = ""
    attribute: ScimAttribute | None = None
    part: ScimAttribute | None = None
    discarded: bool = False

    @property
    def is_known(self) -> bool:
        return self.attribute is not None or bool(self.extension)


def resolve(kind: ScimResourceType, text: str) -> AttributePath:
    """Return the attribute that a path without a filter names; names are compared without case."""
    lower = text.lower()
    for schema in (kind.schema, *kind.extensions):
        urn = schema.urn.lower()
        if lower == urn and schema is not kind.schema:
            return AttributePath(schema.urn)
        if lower.startswith(f"{urn}:"):
            return _resolve_in(kind, schema, text[len(urn) + 1 :])
    return _resolve_in(kind, kind.schema, text)


def _resolve_in(kind: ScimResourceType, schema: ScimSchema, text: str) -> AttributePath:
    name, dot, part_name = text.partition(".")
    key = name.lower()
    is_core = schema is kind.schema
    attribute = schema.by_name.get(key)
    if attribute is None and is_core:
        attribute = COMMON.get(key)
    if attribute is None:
        return AttributePath(discarded=is_core and key in kind.discarded)
    part = None
    if dot:
        part = attribute.part(part_name)
        if part is None:
            return AttributePath()
    return AttributePath("" if is_core else schema.urn, attribute, part)
