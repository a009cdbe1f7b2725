"""`/scim/v2/ServiceProviderConfig`, `ResourceTypes` and `Schemas`: the abilities of the surface."""

from collections.abc import Sequence

from gateway.errors import Forbidden, NotFound
from gateway.surfaces.http import Outbound
from gateway.surfaces.scim.attributes import RESOURCE_TYPES, SCHEMAS
from gateway.surfaces.scim.list_queries import MAX_RESULTS
from gateway.surfaces.scim.scim_answers import (
    LIST_URN,
    ScimList,
    ScimResourceTypeDocument,
    ScimSchemaDocument,
    ScimServiceProviderConfig,
)
from gateway.surfaces.scim.scim_call import MAX_BODY_BYTES, ScimCall

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
