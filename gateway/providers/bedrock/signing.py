"""Request signatures: AWS Signature Version 4 over a whole request.

Wire facts: AWS IAM User Guide, "Create a signed AWS API request" (canonical request, string to sign, derived key).
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from msgspec import Struct

ALGORITHM = "AWS4-HMAC-SHA256"
DEFAULT_PORTS = {"https": 443, "http": 80}
CONTENT_DIGEST = "x-amz-content-sha256"  # a header that S3 alone requires


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key pair, with the session token of temporary credentials ("" for permanent ones)."""

    ident: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


class CredentialScope(Struct, frozen=True):
    """The region, service and time for which a signature is valid."""

    region: str
    service: str
    at: datetime

    @property
    def stamp(self) -> str:
        return self.at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")

    def __str__(self) -> str:
        return f"{self.stamp[:8]}/{self.region}/{self.service}/aws4_request"


def read_access_key(text: str) -> AccessKey | None:
    """Parse `ACCESS_KEY_ID:SECRET[:SESSION]`; None for any other text, which is an API key."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (2, 3) or not all(parts[:2]):
        return None
    return AccessKey(*parts)


def sign(
    method: str, url: str, headers: dict[str, str], body: bytes, key: AccessKey, scope: CredentialScope
) -> dict[str, str]:
    """Return the headers with a signature, which covers all of them, the host, the URL and the body.

    The names in `headers` must be in lower case. With the digest of the body in the header CONTENT_DIGEST the signature
    is one for S3.
    """
    signed = {**headers, "x-amz-date": scope.stamp}
    if key.session:
        signed["x-amz-security-token"] = key.session
    covered = {**signed, "host": host_of(url)}
    names = ";".join(sorted(covered))
    digest = hashlib.sha256(_canonical(method, url, covered, body).encode()).hexdigest()
    text = "\n".join((ALGORITHM, scope.stamp, str(scope), digest))
    signature = hmac.new(_derive(key.secret, scope), text.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = (
        f"{ALGORITHM} Credential={key.ident}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed


def host_of(url: str) -> str:
    """Return the value of the Host header, without the default port of the scheme."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port in (None, DEFAULT_PORTS.get(parts.scheme)):
        return host
    return f"{host}:{parts.port}"


def _canonical(method: str, url: str, headers: dict[str, str], body: bytes) -> str:
    """Return the canonical request. The path is encoded a second time, as for every service except S3."""
    parts = urlsplit(url)
    path = parts.path or "/"
    digest = headers.get(CONTENT_DIGEST)
    if digest is None:
        path = quote(path, safe="/~")
        digest = hashlib.sha256(body).hexdigest()
    pairs = sorted(tuple(pair.partition("=")[::2]) for pair in parts.query.split("&") if pair)
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    return "\n".join(
        (
            method,
            path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *lines,
            "",
            ";".join(sorted(headers)),
            digest,
        )
    )


def _derive(secret: str, scope: CredentialScope) -> bytes:
    key = f"AWS4{secret}".encode()
    for step in (scope.stamp[:8], scope.region, scope.service, "aws4_request"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key
