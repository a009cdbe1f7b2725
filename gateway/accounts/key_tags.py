"""Tags of API keys: metadata that all requests with a key have, whatever the request says."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.accounts.keys import KeyInfo
from gateway.callers.models import ApiKey
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.secret_text import hide_tokens
from gateway.store.database import Database

MAX_TAGS = 8  # of a key, so that requests have room for their own
MAX_VALUE_LENGTH = 64
TAG_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
CHANGED = "api_key.update_tags"
Tags = Mapping[str, str]


def read_tags(database: Database, key_id: str) -> dict[str, str]:
    """Return the tags of a key."""
    return database.read(partial(_load, key_id))


def set_tags(
    database: Database,
    control: Control,
    key: KeyInfo,
    tags: Tags,
    *,
    actor: str,
    check: Callable[[Tags], None] = lambda before: None,
) -> dict[str, str]:
    """Replace the tags of a key; in force for requests that arrive after this returns. `check` raises within the
    transaction if `actor` may not replace those of before. InvalidRequest."""
    checked = _check(tags)

    def work(now: int) -> None:
        before = _load(key.id)
        if before == checked:
            return
        check(before)
        text = json.dumps(checked) if checked else ""
        ApiKey.update(tags=text, updated_at=now).where(ApiKey.id == key.id).execute()
        detail: dict[str, object] = {"from": before, "to": checked}
        audit.append(CHANGED, key.id, actor=actor, at_us=now, organization_id=key.organization_id, detail=detail)

    commit(database, control, work)
    return checked


def _load(key_id: str) -> dict[str, str]:
    row = ApiKey.get_or_none(ApiKey.id == key_id)
    tags: dict[str, str] = json.loads(row.tags) if row is not None and row.tags else {}
    return tags


def _check(tags: Tags) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise InvalidRequest(f"A key has at most {MAX_TAGS} tags.", param="tags")
    checked = {}
    for name, value in tags.items():
        text = value.strip() if isinstance(value, str) else ""
        if TAG_NAME.fullmatch(name) is None or not 1 <= len(text) <= MAX_VALUE_LENGTH or "\0" in text:
            names = "lower-case letters, digits, dots, dashes and underscores"
            raise InvalidRequest(
                f"A tag has a name of {names}, and a value of 1 to {MAX_VALUE_LENGTH} characters.", param="tags"
            )
        checked[name] = hide_tokens(text)
    return checked
