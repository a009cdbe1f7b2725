"""Stored responses: conversations that a caller goes on with by naming the last answer.

Every stored response keeps the whole conversation up to it, so a chain is read with one look-up and does not break
when an earlier link expires or is deleted.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.accounts.authentication import Caller
from gateway.errors import NotFound
from gateway.store.documents import Documents

KIND = "stored_response"
LIFE_S = 30 * 86_400.0  # HTTP reference, section 3.2
LEVEL = 1  # conversations repeat themselves: the quickest level already makes them small
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response (JSON object with `output`), the items that were said before its turn, and its turn's own input."""

    response: dict[str, Any]
    history: list[Item]
    items: list[Item]

    @property
    def asked(self) -> list[Item]:
        """All that the model was given."""
        return self.history + self.items

    @property
    def conversation(self) -> list[Item]:
        """All that was said up to now, the answer included."""
        return self.asked + self.response["output"]


class StoredResponses:
    """The responses of every tenant; a caller reaches those of their own project, a customer those of their own key."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def keep(self, caller: Caller, stored: StoredResponse) -> None:
        """Store under the response's id. Unavailable when the store is away."""
        body = {
            "scope": scope_of(caller),
            "response": stored.response,
            "history": stored.history,
            "items": stored.items,
        }
        self._documents.put(KIND, stored.response["id"], zlib.compress(orjson.dumps(body), LEVEL), LIFE_S)

    def find(self, caller: Caller, ident: str, param: str = "response_id", code: str = "not_found") -> StoredResponse:
        """The response with that id. NotFound when it is not there, not any more, or somebody else's."""
        packed = self._documents.get(KIND, ident)
        body = orjson.loads(zlib.decompress(packed)) if packed is not None else None
        if body is None or body["scope"] != scope_of(caller):
            raise NotFound(
                f"There is no stored response {ident!r}: it was not stored, expired, or was deleted.",
                param=param,
                code=code,
            )
        return StoredResponse(body["response"], body["history"], body["items"])

    def delete(self, caller: Caller, ident: str) -> None:
        """Forget the response. NotFound as in `find`; responses that went on from it keep what was said."""
        self.find(caller, ident)
        self._documents.delete(KIND, ident)


def scope_of(caller: Caller) -> str:
    """Who may see a stored response: the project; of a customer's key only that key."""
    return caller.project_id if caller.key_kind == "user" else f"{caller.project_id}/{caller.key_id}"
