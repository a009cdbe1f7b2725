"""Workload identities: rules of an organization by which tokens of an identity provider call models.

Each has an API key whose token is never shown: project, limits, access rules and usage of the requests are those of the
key. Issuer and audience belong to one organization, so that no other organization can accept its tokens.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from gateway import ids
from gateway.accounts import audit, client_ids, keys, members
from gateway.accounts.changes import MAX_WORKLOAD_IDENTITIES, check_quota, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.accounts.key_caps import KeyCaps
from gateway.accounts.keys import Draft
from gateway.accounts.models import IdentityStatus, WorkloadAudience, WorkloadIdentity
from gateway.accounts.organizations import read_name
from gateway.callers import issuer_keys as issuer_keys_module
from gateway.callers import tokens as tokens_module
from gateway.callers.issuer_keys import InvalidKeys, KeySource
from gateway.callers.models import ApiKey
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Database
from gateway.transport.addresses import check_spelling

# Conditions on the claims of a token: the values that each named claim must have.
#
# A claim is named by its name, or, if the name begins with a slash, by a JSON pointer (RFC 6901), such as
# /kubernetes.io/namespace. A value may contain *, which stands for any characters. For a claim that is a list, such
# as groups, one matching element is enough.

MAX_CLAIMS = 20
MAX_VALUES = 50
MAX_NAME_LENGTH = 255
MAX_VALUE_LENGTH = 512
MAX_ELEMENTS = 1_000  # elements of a claim that are compared
ANY_VALUE = "*"

Claims = Mapping[str, Sequence[str]]


def read_claims(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the accepted values of each claim; a single value may be given without a list. Raises InvalidRequest.

    At least one claim is required: an issuer such as a public build service signs tokens for everyone.
    """
    if not 1 <= len(given) <= MAX_CLAIMS:
        raise InvalidRequest(f"Give 1 to {MAX_CLAIMS} claims that a token must have.", param="claims")
    claims: dict[str, list[str]] = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not 1 <= len(values) <= MAX_VALUES:
            raise InvalidRequest(f"A claim takes 1 to {MAX_VALUES} values.", param=f"claims.{name[:80]}")
        for text in values:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_VALUE_LENGTH or "\0" in text:
                raise InvalidRequest(f"A value has 1 to {MAX_VALUE_LENGTH} characters.", param=f"claims.{name[:80]}")
        claims[name] = values
    if all(not text.strip(ANY_VALUE) for values in claims.values() for text in values):
        raise InvalidRequest("Require at least one value that is more than *.", param="claims")
    return claims


def matches(required: Claims, claims: Mapping[str, Any]) -> bool:
    """Return whether the claims of a token meet every condition."""
    return all(_has_value(find_claim(claims, name), accepted) for name, accepted in required.items())


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim of this name or JSON pointer; None without."""
    if not name.startswith("/"):
        return claims.get(name)
    value: Any = claims
    for part in name[1:].split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part.replace("~1", "/").replace("~0", "~"))
    return value


def text_of(value: Any) -> str | None:
    """Return a single value of a claim as text; None for lists, objects and absent claims."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    return None


def _has_value(value: Any, accepted: Sequence[str]) -> bool:
    elements = value[:MAX_ELEMENTS] if isinstance(value, list) else [value]
    texts = [text for text in map(text_of, elements) if text is not None]
    return any(_fits(pattern, text) for pattern in accepted for text in texts)


def _fits(pattern: str, text: str) -> bool:
    """Return whether a text has the form of a pattern with *; each part is searched once, from left to right."""
    first, *others = pattern.split(ANY_VALUE)
    if not others:
        return pattern == text
    last = others.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    position = len(first)
    end = len(text) - len(last)
    for part in others:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


MAX_ADDRESS_LENGTH = 255
MAX_KEY_SET_BYTES = 64 << 10
# As many as metadata of a request may have.
MAX_TAGS = 16
MAX_TAG_LENGTH = 64


class WorkloadIdentityInfo(Struct, frozen=True):
    """A workload identity. `claims` are the accepted values of each claim, `attribution` the claims that become
    metadata of requests, by the name of the metadata."""

    id: str
    organization_id: str
    member_id: str
    api_key_id: str
    name: str
    source: KeySource
    audience: str
    claims: Mapping[str, Sequence[str]]
    attribution: Mapping[str, str]
    status: IdentityStatus
    created_at_us: int
    updated_at_us: int


class WorkloadIdentityDraft(Struct, frozen=True):
    """The values of a new workload identity. Its key is made in `project_id`, an active project of the organization.
    Without `jwks_url` and `jwks`, the issuer's keys are found by OpenID discovery."""

    organization_id: str
    project_id: str
    name: str
    issuer: str
    audience: str
    claims: Mapping[str, Any]
    attribution: Mapping[str, Any] = field(default_factory=dict)
    jwks_url: str = ""
    jwks: str = ""
    allow_private: bool = False


class WorkloadIdentityChange(Struct, frozen=True):
    """An update. None leaves a value unchanged. Issuer and audience never change."""

    name: str | None = None
    claims: Mapping[str, Any] | None = None
    attribution: Mapping[str, Any] | None = None
    jwks_url: str | None = None
    jwks: str | None = None
    status: IdentityStatus | None = None
    allow_private: bool = False


class WorkloadIdentities:
    """Changes of workload identities. All are audited, and in force on all workers when they return."""

    def __init__(self, database: Database, control: Control, hash_keys: Sequence[bytes], caps: KeyCaps) -> None:
        self._database = database
        self._control = control
        self._hash_keys = hash_keys
        self._caps = caps

    def create(
        self,
        draft: WorkloadIdentityDraft,
        write_limits: Callable[[str], None],
        *,
        actor: str,
        claim: ClientIdClaim | None = None,
    ) -> WorkloadIdentityInfo:
        """Create a workload identity with its key; `write_limits` gets the id of the key within the transaction.

        Raises InvalidRequest, NotFound (project) or Conflict (archived project; code audience_taken).
        """
        values = _values_of_draft(draft)
        identity_id = ids.new("wid")
        member_id = ids.new("member")
        key_id = ids.new("key")
        token = tokens_module.make("customer")
        organization_id = draft.organization_id

        def work(now: int) -> WorkloadIdentityInfo:
            own = WorkloadIdentity.select().where(WorkloadIdentity.organization_id == organization_id)
            check_quota(own, MAX_WORKLOAD_IDENTITIES, "workload identities")
            _claim_audience(organization_id, values["issuer"], values["audience"])
            members.insert((member_id, identity_id), organization_id, values["name"], actor=actor, now=now)
            key = Draft(draft.project_id, member_id, values["name"], "customer")
            new = {"description": values["name"], "actor": actor, "now": now, "caps": self._caps}
            keys.insert(self._hash_keys, key, key_id, token, **new)
            write_limits(key_id)
            WorkloadIdentity.insert(
                id=identity_id,
                organization_id=organization_id,
                member_id=member_id,
                api_key_id=key_id,
                created_at=now,
                updated_at=now,
                **values,
            ).execute()
            client_ids.insert(claim, identity_id, now)
            _audit("workload_identity.create", identity_id, organization_id, _shown(values), actor, now)
            return _load(organization_id, identity_id)

        return commit(self._database, self._control, work)

    def list_identities(self, organization_id: str) -> list[WorkloadIdentityInfo]:
        """Return the workload identities of an organization, oldest first."""
        query = (
            WorkloadIdentity.select()
            .where(WorkloadIdentity.organization_id == organization_id)
            .order_by(WorkloadIdentity.created_at, WorkloadIdentity.id)
        )
        return self._database.read(lambda: [info_of(row) for row in query])

    def find(self, organization_id: str, identity_id: str) -> WorkloadIdentityInfo:
        """Return a workload identity of an organization. Raises NotFound."""
        return self._database.read(partial(_load, organization_id, identity_id))

    def update(
        self, organization_id: str, identity_id: str, change: WorkloadIdentityChange, *, actor: str
    ) -> WorkloadIdentityInfo:
        """Change a workload identity. Raises NotFound or InvalidRequest."""
        values = _values_of_change(change)

        def work(now: int) -> WorkloadIdentityInfo:
            _load(organization_id, identity_id)
            WorkloadIdentity.update(updated_at=now, **values).where(WorkloadIdentity.id == identity_id).execute()
            if change.name is not None:
                members.rename(identity_id, values["name"], now)
            _audit("workload_identity.update", identity_id, organization_id, _shown(values), actor, now)
            return _load(organization_id, identity_id)

        return commit(self._database, self._control, work)

    def delete(self, organization_id: str, identity_id: str, *, actor: str) -> None:
        """Delete a workload identity: its tokens are refused on return. Its key stays for the history, refused. Raises
        NotFound."""

        def work(now: int) -> None:
            identity = _load(organization_id, identity_id)
            WorkloadIdentity.delete().where(WorkloadIdentity.id == identity_id).execute()
            _release_audience(identity)
            members.end(identity.member_id, identity_id, now)
            ended = {"status": "deleted", "updated_at": now, "generation": ApiKey.generation + 1}
            ApiKey.update(**ended).where(ApiKey.id == identity.api_key_id).execute()
            detail = {"name": identity.name, "key": identity.api_key_id}
            _audit("workload_identity.delete", identity_id, organization_id, detail, actor, now)

        commit(self._database, self._control, work)


def info_of(row: WorkloadIdentity) -> WorkloadIdentityInfo:
    return WorkloadIdentityInfo(
        id=row.id,
        organization_id=row.organization_id,
        member_id=row.member_id,
        api_key_id=row.api_key_id,
        name=row.name,
        source=KeySource(row.issuer, row.jwks_url, row.jwks),
        audience=row.audience,
        claims=json.loads(row.claims),
        attribution=json.loads(row.attribution),
        status=row.status,
        created_at_us=row.created_at,
        updated_at_us=row.updated_at,
    )


def _values_of_draft(draft: WorkloadIdentityDraft) -> dict[str, Any]:
    audience = draft.audience.strip()
    if not 1 <= len(audience) <= MAX_ADDRESS_LENGTH:
        raise InvalidRequest(f"audience needs 1 to {MAX_ADDRESS_LENGTH} characters.", param="audience")
    return {
        "name": read_name(draft.name),
        "issuer": _read_url(draft.issuer, "issuer", draft.allow_private),
        "audience": audience,
        "jwks_url": _read_url(draft.jwks_url, "jwksUrl", draft.allow_private) if draft.jwks_url else "",
        "jwks": _read_keys(draft.jwks),
        "claims": json.dumps(read_claims(draft.claims)),
        "attribution": json.dumps(_read_attribution(draft.attribution)),
    }


def _values_of_change(change: WorkloadIdentityChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.name is not None:
        values["name"] = read_name(change.name)
    if change.claims is not None:
        values["claims"] = json.dumps(read_claims(change.claims))
    if change.attribution is not None:
        values["attribution"] = json.dumps(_read_attribution(change.attribution))
    if change.jwks_url is not None:
        url = change.jwks_url
        values["jwks_url"] = _read_url(url, "jwksUrl", change.allow_private) if url else ""
    if change.jwks is not None:
        values["jwks"] = _read_keys(change.jwks)
    if change.status is not None:
        values["status"] = change.status
    return values


def _read_url(text: str, param: str, allow_private: bool) -> str:
    """Return an https URL; http only where private addresses are allowed. Raises InvalidRequest."""
    url = text.strip()
    try:
        parts = urlsplit(url)
        plain = bool(parts.hostname) and not (parts.username or parts.query or parts.fragment)
        schemes = ("https", "http") if allow_private else ("https",)
        usable = plain and parts.scheme in schemes and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or len(url) > MAX_ADDRESS_LENGTH or not url.isprintable() or " " in url:
        raise InvalidRequest(f"{param} must be an https URL without user, query and fragment.", param=param)
    if not allow_private:
        check_spelling(url, param)
    return url


def _read_keys(text: str) -> str:
    if len(text) > MAX_KEY_SET_BYTES:
        raise InvalidRequest(f"A key set has at most {MAX_KEY_SET_BYTES:,} characters.", param="jwks")
    if text:
        try:
            issuer_keys_module.read_keys(text)
        except InvalidKeys as error:
            raise InvalidRequest(f"jwks is no key set: {error}", param="jwks") from None
    return text


def _read_attribution(given: Mapping[str, Any]) -> dict[str, str]:
    if len(given) > MAX_TAGS:
        raise InvalidRequest(f"A request has at most {MAX_TAGS} values of metadata.", param="attribution")
    attribution: dict[str, str] = {}
    for name, claim_name in given.items():
        tag = name.strip().lower()
        valid = isinstance(claim_name, str) and 1 <= len(claim_name) <= MAX_NAME_LENGTH
        if not valid or not 1 <= len(tag) <= MAX_TAG_LENGTH:
            raise InvalidRequest("attribution maps names of metadata to names of claims.", param="attribution")
        attribution[tag] = claim_name
    return attribution


def _digest_of(issuer: str, audience: str) -> str:
    return hashlib.sha256(f"{issuer}\0{audience}".encode()).hexdigest()


def _claim_audience(organization_id: str, issuer: str, audience: str) -> None:
    """Reserve issuer and audience for the organization. Raises Conflict if another organization has them."""
    digest = _digest_of(issuer, audience)
    row = WorkloadAudience.get_or_none(WorkloadAudience.digest == digest)
    if row is None:
        WorkloadAudience.insert(digest=digest, organization=organization_id).execute()
    elif row.organization != organization_id:
        raise Conflict(
            "Another organization accepts tokens of this issuer and audience. Choose an audience for your organization "
            "alone.",
            code="audience_taken",
        )


def _release_audience(identity: WorkloadIdentityInfo) -> None:
    same = WorkloadIdentity.select().where(
        WorkloadIdentity.issuer == identity.source.issuer, WorkloadIdentity.audience == identity.audience
    )
    if not same.exists():
        digest = _digest_of(identity.source.issuer, identity.audience)
        WorkloadAudience.delete().where(WorkloadAudience.digest == digest).execute()


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "jwks"}


def _load(organization_id: str, identity_id: str) -> WorkloadIdentityInfo:
    row = WorkloadIdentity.get_or_none(
        WorkloadIdentity.id == identity_id, WorkloadIdentity.organization_id == organization_id
    )
    if row is None:
        raise NotFound(f"There is no workload identity {identity_id} in this organization.")
    return info_of(row)


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, Any], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
