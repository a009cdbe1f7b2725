"""`/keys/api/…/tags`: metadata that all requests with an API key have."""

from collections.abc import Mapping

from marshmallow import fields

from gateway.accounts.key_tags import CHANGED, read_tags, set_tags
from gateway.accounts.keys import KeyInfo
from gateway.admin.held_limits import TagHold
from gateway.surfaces.management.access_groups import of_key
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import StrictBody, describe_field
from gateway.surfaces.web.answer_structs import Answer
from gateway.surfaces.web.http import Operation

TAG = "API keys"
PATH = "/keys/api/<key_id>/tags"
TAGS = "Names and values, such as team and search; they replace all tags of the key."


class KeyTagsBody(StrictBody):
    tags = fields.Dict(
        keys=fields.String(), required=True, metadata=describe_field(TAGS, examples=[{"team": "search"}])
    )


class KeyTagsAnswer(Answer):
    id: str
    tags: dict[str, str]


def find(call: ManagedCall[KeyInfo]) -> KeyTagsAnswer:
    """The tags of a key."""
    return KeyTagsAnswer(call.subject.id, read_tags(call.database, call.subject.id))


def change(call: ManagedCall[KeyInfo]) -> KeyTagsAnswer:
    """Replace the tags of a key: all of its requests have them, and no request can set another value for them. Limits
    by `tag` with `values` credential count them alone."""
    key = call.subject
    hold = TagHold(call.database, key.organization_id, key.id, call.actor)

    def check(before: Mapping[str, str]) -> None:
        hold.check(before, is_manager=call.visitor.manages("keys:restrict", key.organization_id))

    return KeyTagsAnswer(key.id, set_tags(*call.stores, key, call.fields["tags"], actor=call.actor, check=check))


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, find, "Show the tags of an API key", tag=TAG, who=of_key("keys:read"), scope="keys:read",
            inside="keyTags", commands=("keys tags <key_id>",)),
    managed("PUT", PATH, change, "Set the tags of an API key", tag=TAG, who=of_key("keys:restrict"),
            scope="keys:write", request=KeyTagsBody, inside="keyTags", audit=CHANGED,
            commands=("keys tag <key_id> <tags>",)),
)  # fmt: skip
