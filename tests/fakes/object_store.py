"""A strict fake of an S3-compatible object store: one bucket in memory, by path.

A request needs the signature that botocore's signer computes for it, and the digest of its body (Amazon S3 API
Reference, "Authenticating Requests"). Parts but the last have at least 5 MB. Lists are short, so that they continue.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree

import gevent
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fakes.server import FakeServer, RecordedCall, Start, headers_of

BUCKET = "our-files"
REGION = "eu-central-1"
KEY = ("AKIAFAKE", "the+secret/of/the+store")
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
MIN_PART = 5 << 20
PAGE = 2
SKEW = timedelta(minutes=15)


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class FakeObjectStore(FakeServer):
    """`objects` are the bytes by name, `uploads` the multipart uploads under way. `failures` are statuses of the next
    requests, `slow_s` delays each answer. `written` overrides the time of an object."""

    base = f"/{BUCKET}"

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}
        self.written: dict[str, datetime] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes], datetime]] = {}
        self.failures: list[int] = []
        self.slow_s = 0.0
        self.fails_at_completion = False

    def serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        body = environ["wsgi.input"].read()
        headers = headers_of(environ)
        if environ.get("CONTENT_TYPE"):
            headers["content-type"] = environ["CONTENT_TYPE"]
        raw, _, query = environ["fake.target"].partition("?")
        call = RecordedCall(f"{method} {raw}?{query}", headers)
        self.calls.append(call)
        if self.slow_s:
            gevent.sleep(self.slow_s)
        try:
            if self.failures:
                raise Refused(self.failures.pop(0), "InternalError")
            if method in ("PUT", "POST") and not environ.get("CONTENT_LENGTH"):
                raise Refused(411, "MissingContentLength")
            self._check(method, raw, query, headers, body)
            status, more, answer = self._serve(method, raw, dict(parse_qsl(query, True)), headers, body)
        except Refused as refused:
            status, more = refused.status, {}
            answer = f"<Error><Code>{refused.code}</Code><Message>of {KEY[1]}</Message></Error>".encode()
        call.status = status
        start(f"{status} OK", [("content-length", str(len(answer))), *more.items()])
        return [answer]

    def _check(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> None:
        """Refuse a request that is not signed as botocore signs it."""
        if headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        authorization = headers.get("authorization", "")
        names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
        if scope[0] != KEY[0]:
            raise Refused(403, "InvalidAccessKeyId")
        if scope[2:] != [REGION, "s3", "aws4_request"]:
            raise Refused(400, "AuthorizationHeaderMalformed")
        if not {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names) or ("range" in headers) != (
            "range" in names
        ):
            raise Refused(403, "SignatureDoesNotMatch")
        at = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(datetime.now(UTC) - at) > SKEW:
            raise Refused(403, "RequestTimeTooSkewed")
        url = f"{self.address}{path}" + (f"?{query}" if query else "")
        request = AWSRequest(method, url, {name: headers[name] for name in names if name != "host"}, body)
        request.context["timestamp"] = headers["x-amz-date"]
        signer = S3SigV4Auth(Credentials(*KEY), "s3", REGION)
        expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        if not authorization.endswith(f"Signature={expected}"):
            raise Refused(403, "SignatureDoesNotMatch")

    def _serve(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        bucket, _, name = unquote(path).removeprefix("/").partition("/")
        if bucket != BUCKET:
            raise Refused(404, "NoSuchBucket")
        if not name:
            return (200, {}, self._list_uploads(query) if "uploads" in query else self._list(query))
        if "uploads" in query or "uploadId" in query:
            return self._serve_upload(method, name, query, body)
        if method == "PUT":
            self.objects[name] = body
            self.written[name] = datetime.now(UTC)
            return 200, {"etag": _tag(body)}, b""
        if method == "DELETE":
            self.objects.pop(name, None)
            return 204, {}, b""
        if name not in self.objects:
            raise Refused(404, "NoSuchKey")
        return self._read(self.objects[name], headers.get("range", ""))

    @staticmethod
    def _read(data: bytes, wanted: str) -> tuple[int, dict[str, str], bytes]:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        if match is None:
            return 200, {}, data
        first, last = int(match[1]), int(match[2])
        if first >= len(data):
            raise Refused(416, "InvalidRange")
        return 206, {"content-range": f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"}, data[first : last + 1]

    def _serve_upload(
        self, method: str, name: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if "uploads" in query:
            ident = f"upload+{len(self.uploads)}/="  # stores use characters that must be encoded
            self.uploads[ident] = name, {}, datetime.now(UTC)
            return 200, {}, _xml("InitiateMultipartUploadResult", f"<Key>{name}</Key><UploadId>{ident}</UploadId>")
        known = self.uploads.get(query["uploadId"])
        if known is None or known[0] != name:
            raise Refused(404, "NoSuchUpload")
        parts = known[1]
        if method == "PUT":
            parts[int(query["partNumber"])] = body
            return 200, {"etag": _tag(body)}, b""
        del self.uploads[query["uploadId"]]
        if method == "DELETE":
            return 204, {}, b""
        return self._complete(name, parts, body)

    def _complete(self, name: str, parts: dict[int, bytes], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.fails_at_completion:  # "the status code is 200, and the body has the error"
            return 200, {}, b"<Error><Code>InternalError</Code></Error>"
        listed = [(int(part[0].text or 0), part[1].text) for part in ElementTree.fromstring(body)]
        if listed != [(number, _tag(data)) for number, data in sorted(parts.items())]:
            raise Refused(400, "InvalidPart")
        if any(len(data) < MIN_PART for _, data in sorted(parts.items())[:-1]):
            raise Refused(400, "EntityTooSmall")
        self.objects[name] = b"".join(data for _, data in sorted(parts.items()))
        self.written[name] = datetime.now(UTC)
        return 200, {}, _xml("CompleteMultipartUploadResult", f"<Key>{name}</Key>")

    def _list(self, query: dict[str, str]) -> bytes:
        assert query["list-type"] == "2"
        names = sorted(name for name in self.objects if name.startswith(query.get("prefix", "")))
        names = [name for name in names if name > query.get("continuation-token", "")]
        page, rest = names[:PAGE], names[PAGE:]
        entries = "".join(
            f"<Contents><Key>{name}</Key><LastModified>{_time(self.written[name])}</LastModified></Contents>"
            for name in page
        )
        more = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if rest else ""
        return _xml("ListBucketResult", f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{more}{entries}")

    def _list_uploads(self, query: dict[str, str]) -> bytes:
        entries = "".join(
            f"<Upload><Key>{name}</Key><UploadId>{ident}</UploadId><Initiated>{_time(begun)}</Initiated></Upload>"
            for ident, (name, _, begun) in self.uploads.items()
            if name.startswith(query.get("prefix", ""))
        )
        return _xml("ListMultipartUploadsResult", entries)


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _xml(name: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">{inner}</{name}>'.encode()
