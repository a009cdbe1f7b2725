"""The cryptographic part of passkeys (WebAuthn level 3), by py_webauthn: options for browsers, and checks of what they
answer. It keeps nothing.

Every answer must come from our own origin, and from an authenticator that verified the person (a PIN or biometrics).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.errors import InvalidRequest, Unauthenticated
from gateway.runtime.lazy_import import LazyImport

# 260 ms that only people with passkeys need.
webauthn = LazyImport("webauthn")
structs = LazyImport("webauthn.helpers.structs")

TIMEOUT_MS = 300_000
MAX_LENGTH = 16_384
NAME = "llmgateway"
REFUSED = "The passkey was not accepted. Try again, or sign in with your password."
# Errors that hostile answers cause in the parsers, besides those of the library.
PARSE_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


class Site(Struct, frozen=True):
    """The address of this gateway as browsers see it: `rp_id` is its host, "" where passkeys cannot be used."""

    rp_id: str
    origin: str


@dataclass(frozen=True, slots=True)
class StoredPasskey:
    """A stored credential; its id is in base64url."""

    id: str
    public_key: bytes = field(repr=False)
    sign_count: int
    transports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential that a browser created. `synced` passkeys are copied between devices by their vendor."""

    id: str
    public_key: bytes = field(repr=False)
    sign_count: int
    transports: tuple[str, ...]
    synced: bool


def site_of(base_url: str) -> Site:
    """Return the site of a public URL. Browsers allow no passkeys for IP addresses, and none without TLS except for
    localhost."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    origin = f"{parts.scheme}://{parts.netloc}"
    try:
        ip_address(host)
    except ValueError:
        if host and (parts.scheme == "https" or host == "localhost" or host.endswith(".localhost")):
            return Site(host, origin)
    return Site("", origin)


def creation_options(site: Site, challenge: bytes, user: tuple[str, str], known: Sequence[StoredPasskey]) -> str:
    """Return the options of a new passkey as JSON; `user` is id and e-mail address."""
    user_id, email = user
    options = webauthn.generate_registration_options(
        rp_id=site.rp_id,
        rp_name=NAME,
        user_id=user_id.encode(),
        user_name=email,
        user_display_name=email,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=_descriptors(known),
    )
    return str(webauthn.options_to_json(options))


def request_options(site: Site, challenge: bytes, known: Sequence[StoredPasskey]) -> str:
    """Return the options of a sign-in as JSON; without `known` credentials the person chooses any of this site."""
    options = webauthn.generate_authentication_options(
        rp_id=site.rp_id,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        allow_credentials=_descriptors(known),
        user_verification=structs.UserVerificationRequirement.REQUIRED,
    )
    return str(webauthn.options_to_json(options))


def read_answer(text: str) -> tuple[dict[str, Any], str]:
    """Return the browser's answer and the challenge that it signed, in base64url. Raises InvalidRequest."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(REFUSED)
    try:
        answer = json.loads(text)
        client_data = json.loads(webauthn.base64url_to_bytes(answer["response"]["clientDataJSON"]))
        challenge = client_data["challenge"]
        credential_id = answer["id"]
    except PARSE_ERRORS:
        raise InvalidRequest(REFUSED) from None
    for part in (challenge, credential_id):
        if not isinstance(part, str) or not part.isascii():
            raise InvalidRequest(REFUSED)
    return answer, challenge


def check_creation(site: Site, answer: dict[str, Any], challenge: str) -> NewCredential:
    """Return the credential of a browser's answer. Raises InvalidRequest."""
    try:
        verified = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=webauthn.base64url_to_bytes(challenge),
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            require_user_verification=True,
        )
        transports = tuple(str(transport)[:32] for transport in answer["response"].get("transports", ())[:8])
    except (webauthn.helpers.exceptions.WebAuthnException, *PARSE_ERRORS):
        raise InvalidRequest("The passkey was not accepted. Try again.", code="passkey_refused") from None
    return NewCredential(
        webauthn.helpers.bytes_to_base64url(verified.credential_id),
        verified.credential_public_key,
        verified.sign_count,
        transports,
        verified.credential_backed_up,
    )


def check_request(site: Site, answer: dict[str, Any], challenge: str, known: StoredPasskey) -> int:
    """Return the new counter of signatures. Raises Unauthenticated: a wrong origin, signature or counter."""
    try:
        verified = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=webauthn.base64url_to_bytes(challenge),
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            credential_public_key=known.public_key,
            credential_current_sign_count=known.sign_count,
            require_user_verification=True,
        )
    except (webauthn.helpers.exceptions.WebAuthnException, *PARSE_ERRORS):
        raise Unauthenticated(REFUSED, code="passkey_refused") from None
    return int(verified.new_sign_count)


def user_of(answer: dict[str, Any]) -> str:
    """Return the user id that the authenticator stored with the passkey, "" without."""
    handle = answer["response"].get("userHandle") if isinstance(answer.get("response"), dict) else None
    if not isinstance(handle, str):
        return ""
    try:
        return str(webauthn.base64url_to_bytes(handle).decode())
    except PARSE_ERRORS:
        return ""


def _descriptors(known: Sequence[StoredPasskey]) -> list[Any]:
    transports = {transport.value for transport in structs.AuthenticatorTransport}
    return [
        structs.PublicKeyCredentialDescriptor(
            id=webauthn.base64url_to_bytes(credential.id),
            transports=[structs.AuthenticatorTransport(name) for name in credential.transports if name in transports],
        )
        for credential in known
    ]
