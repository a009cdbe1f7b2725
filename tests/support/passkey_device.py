"""An authenticator in software: it creates passkeys and signs challenges, correctly or with a fault of the test."""

import base64
import hashlib
import json
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, BACKUP_ELIGIBLE, BACKED_UP, ATTESTED = 1, 4, 8, 16, 64
EVERYTHING = PRESENT | VERIFIED


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class PasskeyDevice:
    """A device with one passkey. The fields may be changed to make it lie."""

    origin: str
    rp_id: str
    count: int = 0
    flags: int = EVERYTHING
    user_handle: str = ""
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: str) -> str:
        """Return the answer to the options of a registration."""
        creation_options = json.loads(options)
        self.user_handle = creation_options["user"]["id"]
        data = self._authenticator_data(ATTESTED) + bytes(16)
        data += struct.pack(">H", len(self.credential_id)) + self.credential_id + self._public_key()
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client_data = self._client_data("webauthn.create", creation_options["challenge"])
        return self._answer(
            clientDataJSON=encode(client_data), attestationObject=encode(attestation), transports=["usb"]
        )

    def sign(self, options: str, **more: Any) -> str:
        """Return the answer to the options of a sign-in; `more` replaces members of the response."""
        client_data = self._client_data("webauthn.get", json.loads(options)["challenge"])
        self.count += 1
        data = self._authenticator_data(0)
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": encode(client_data),
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": self.user_handle,
        }
        return self._answer(**{**response, **more})

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}).encode()

    def _authenticator_data(self, flags: int) -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", self.flags | flags, self.count)

    def _public_key(self) -> bytes:
        """Return the key in COSE form (RFC 9053): EC2, ES256, P-256."""
        numbers = self.key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})

    def _answer(self, **response: Any) -> str:
        ident = encode(self.credential_id)
        answer = {"id": ident, "rawId": ident, "type": "public-key", "clientExtensionResults": {}, "response": response}
        return json.dumps(answer)
