"""Contents of files in a bucket of an S3-compatible object store.

Every request is one of S3's REST API with a path and a signature that all compatible stores accept: PUT, GET with a
range, DELETE, multipart uploads and lists of version 2 (Amazon S3 API Reference). A content has the same name and the
same bytes as in a folder, so that tools can copy one to the other.

Decided against boto3, the MinIO client and obstore: the first takes 25 MB of memory and a second to import, and each
brings an HTTP client that is not gevent's or that starts threads; the signature of requests (for Amazon Bedrock)
and the transport, with its deadlines, proxies and certificates, exist.
"""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from gateway import ids
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, Unavailable
from gateway.files.content_store import SEALED_PIECE, Cipher, ContentLost, place_of
from gateway.providers.bedrock.signing import CONTENT_DIGEST, AccessKey, CredentialScope, sign
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.runtime.threads import Job, compute, hold_more, pause
from gateway.transport import Answer, Transport

if TYPE_CHECKING:
    from xml.etree import ElementTree
else:
    ElementTree = LazyImport("xml.etree.ElementTree")

# A part of a multipart upload: at least 5 MB, and at most 10,000 of them make the largest file that settings allow.
PART_PIECES = 32
READ_PIECES = 8  # pieces that one request reads
PART_SHARE = 2  # bytes in memory for each byte of a part, which is copied while it is joined
CALL_S = 30.0  # of one request
TRIES = 3
FIRST_WAIT_S = 0.3
RETRIED = frozenset((408, 429, 500, 502, 503, 504))
PARALLEL_DELETIONS = 16
ANSWER_BYTES = 16 << 20
MARK = "installation"  # the object with the id of the installation that stores under the prefix
CONTENT_NAME = re.compile(r"[0-9a-f]{2}/([0-9a-f]{32})")
SUBJECT = "object_store"
NOT_THERE = "The content of this file is not in the gateway's object store."
NO_ANSWER = "The gateway's object store does not answer; try again later."
REMEDY = "check files.s3_bucket_url, files.s3_region and GATEWAY_FILES_S3_KEY, and whether the store answers this node"


class Bucket(Struct, frozen=True):
    """The place of an installation's contents: the URL of a bucket (its path is "" or the bucket), the region of its
    signatures, and the beginning of the names of all objects, which ends with "/" or is empty."""

    url: str
    region: str
    prefix: str


class BucketEntry(Struct, frozen=True):
    """An object in a list: its name without the prefix, and when it was written (µs)."""

    name: str
    written_us: int


class ObjectStore:
    """A ContentStore with an object for each content. `find_key` returns the key pair of the next request, and may
    raise IdentityFailed."""

    def __init__(
        self, bucket: Bucket, find_key: Callable[[], AccessKey], transport: Transport, clock: Clock, states: StateLog
    ) -> None:
        self.bucket = bucket
        self._find_key = find_key
        self._transport = transport
        self._clock = clock
        self._states = states
        self._base = bucket.url.rstrip("/")

    def write(self, ident: str, pieces: Iterable[bytes], seal: Cipher) -> None:
        name = place_of(ident)
        parts = _join_parts(pieces, seal)
        first = next(parts, b"")
        if len(first) < PART_PIECES * SEALED_PIECE:
            self._call("PUT", name, body=first)
        else:
            self._write_parts(name, first, parts)

    def read(self, ident: str, first: int, end: int, unseal: Cipher) -> Iterator[bytes]:
        hold_more(min(end - first, READ_PIECES) * SEALED_PIECE)
        pieces = self._read_pieces(place_of(ident), first, end, unseal)
        next(pieces)
        return pieces

    def delete(self, idents: Iterable[str]) -> None:
        rest = iter(idents)
        while some := list(islice(rest, PARALLEL_DELETIONS)):
            jobs = [Job(self._delete, ident) for ident in some]
            for job in jobs:
                job.result()

    def older_than(self, age_us: int, now_us: int) -> Iterator[str]:
        before = now_us - age_us
        self._abort_older_than(before)
        for entry in self.list_objects():
            match = CONTENT_NAME.fullmatch(entry.name)
            if match is not None and entry.written_us < before:
                yield match[1]

    def list_objects(self) -> Iterator[BucketEntry]:
        """Yield all objects of the installation. Unavailable."""
        query = {"list-type": "2", "prefix": self.bucket.prefix}
        while True:
            root = self._list(query)
            for entry in _children(root, "Contents"):
                name = _text(entry, "Key").removeprefix(self.bucket.prefix)
                yield BucketEntry(name, _read_time(_text(entry, "LastModified")))
            token = _text(root, "NextContinuationToken")
            if _text(root, "IsTruncated") != "true" or not token:
                return
            query["continuation-token"] = token

    def claim(self, installation: str) -> bool:
        """Return whether the objects are those of this installation: one has the id of the first installation that used
        the prefix. Unavailable."""
        try:
            return self._call("GET", MARK).body.decode("ascii", "replace") == installation
        except ContentLost:
            self._call("PUT", MARK, body=installation.encode())
            return True

    def check(self) -> None:
        """Write, read and delete an object. Unavailable with the reason."""
        name = place_of(ids.new_hex())
        self._call("PUT", name, body=b"check")
        found = self._call("GET", name, headers={"range": "bytes=0-1"}).body
        self._call("DELETE", name)
        if found != b"ch":
            raise Unavailable("The object store does not return the bytes that it took.")

    def _read_pieces(self, name: str, first: int, end: int, unseal: Cipher) -> Iterator[bytes]:
        sealed = self._read_sealed(name, first, min(end, first + READ_PIECES)) if first < end else b""
        yield b""  # consumed by `read`, so that a missing content is noticed at once
        while first < end:
            for start in range(0, len(sealed), SEALED_PIECE):
                bulk_turn()
                yield compute(unseal, sealed[start : start + SEALED_PIECE])
            first += READ_PIECES
            if first < end:
                sealed = self._read_sealed(name, first, min(end, first + READ_PIECES))

    def _read_sealed(self, name: str, first: int, end: int) -> bytes:
        hold = {"range": f"bytes={first * SEALED_PIECE}-{end * SEALED_PIECE - 1}"}
        return self._call("GET", name, headers=hold).body

    def _write_parts(self, name: str, first: bytes, parts: Iterator[bytes]) -> None:
        """Write a long content as a multipart upload."""
        upload = _text(_parse(self._call("POST", name, {"uploads": ""}).body), "UploadId")
        if not upload:
            raise self._fail("it began no multipart upload")
        try:
            tags: list[str] = []
            part = first
            while part:
                query = {"partNumber": str(len(tags) + 1), "uploadId": upload}
                tags.append(self._call("PUT", name, query, body=part).headers.get("etag", ""))
                part = next(parts, b"")
            self._complete(name, upload, tags)
        except BaseException:
            self._abort(name, upload)
            raise

    def _complete(self, name: str, upload: str, tags: list[str]) -> None:
        """Join the parts of an upload. A store may report a failure with the status 200 and an error in the body."""
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{_escape(tag)}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        answer = self._call("POST", name, {"uploadId": upload}, body, {"content-type": "application/xml"})
        if _local(_parse(answer.body).tag) != "CompleteMultipartUploadResult":
            raise self._fail("it did not complete a multipart upload")

    def _abort(self, name: str, upload: str) -> None:
        try:
            self._call("DELETE", name, {"uploadId": upload})
        except Unavailable:
            return  # the next sweep aborts it

    def _abort_older_than(self, before_us: int) -> None:
        """Abort multipart uploads that a dead worker left. A list has the oldest ones of a name first."""
        root = self._list({"uploads": "", "prefix": self.bucket.prefix})
        for entry in _children(root, "Upload"):
            if _read_time(_text(entry, "Initiated")) < before_us:
                self._abort(_text(entry, "Key").removeprefix(self.bucket.prefix), _text(entry, "UploadId"))

    def _delete(self, ident: str) -> None:
        try:
            self._call("DELETE", place_of(ident))
        except Unavailable:
            return  # the next sweep deletes it, and the change of state was logged

    def _list(self, query: Mapping[str, str]) -> "ElementTree.Element":
        return _parse(self._call("GET", "", query).body)

    def _call(
        self,
        method: str,
        name: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer to a successful request, which is sent again after a failure that may pass: each request
        has the same effect once as several times. `name` "" is the bucket. ContentLost for a missing object,
        Unavailable."""
        url = self._url(name, query or {})
        given = {**(headers or {}), CONTENT_DIGEST: compute(_digest, body)}
        problem = ""
        for number in range(TRIES):
            if number:
                pause(FIRST_WAIT_S * 3 ** (number - 1) * random.uniform(0.8, 1.2))
            try:
                scope = CredentialScope(self.bucket.region, "s3", self._clock.now())
                signed = sign(method, url, given, b"", self._find_key(), scope)
                answer = self._transport.request(
                    method, url, signed, body, timeout_s=CALL_S, max_bytes=ANSWER_BYTES, trusted=True
                )
            except GatewayError as error:
                problem = error.message
                continue
            if answer.status < 300 or (method == "DELETE" and answer.status == 404):
                self._states.resolve(StateChange("object_store.back", SUBJECT, "The object store works again.", INFO))
                return answer
            problem = f"{answer.status} {_code_of(answer)}".rstrip()
            if answer.status == 404 and method == "GET" and name and _code_of(answer) in ("", "NoSuchKey"):
                raise ContentLost(NOT_THERE)
            if answer.status == 416:
                raise ContentLost(NOT_THERE)  # the object is shorter than its content
            if answer.status not in RETRIED:
                break
        raise self._fail(problem)

    def _fail(self, problem: str) -> Unavailable:
        message = f"The object store of files failed: {problem}."
        self._states.fire(StateChange("object_store.away", SUBJECT, message, remedy=REMEDY))
        return Unavailable(NO_ANSWER)

    def _url(self, name: str, query: Mapping[str, str]) -> str:
        url = self._base
        if name:
            url = f"{url}/{quote(self.bucket.prefix + name, safe='/~')}"
        elif not urlsplit(url).path:
            url += "/"
        return f"{url}?{urlencode(sorted(query.items()), quote_via=quote)}" if query else url


def _join_parts(pieces: Iterable[bytes], seal: Cipher) -> Iterator[bytes]:
    """Yield sealed pieces, joined to parts of a multipart upload. The memory of one part is counted."""
    part: list[bytes] = []
    for number, piece in enumerate(pieces):
        bulk_turn()
        if number < PART_PIECES:
            hold_more(len(piece) * PART_SHARE)
        part.append(compute(seal, piece))
        if len(part) == PART_PIECES:
            yield compute(b"".join, part)
            part = []
    if part:
        yield compute(b"".join, part)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _code_of(answer: Answer) -> str:
    """Return the error code in an answer, e.g. NoSuchKey; "" for one without."""
    if not answer.body:
        return ""
    try:
        return _text(ElementTree.fromstring(answer.body), "Code")[:40]
    except ElementTree.ParseError:
        return ""


def _parse(body: bytes) -> "ElementTree.Element":
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise Unavailable(NO_ANSWER) from None


def _local(tag: str) -> str:
    """Return the name of an element without its namespace, which not every store has."""
    return tag.rpartition("}")[2]


def _children(root: "ElementTree.Element", name: str) -> Iterator["ElementTree.Element"]:
    return (child for child in root if _local(child.tag) == name)


def _text(root: "ElementTree.Element", name: str) -> str:
    """Return the text of the first child with this name, "" without one."""
    return next((child.text or "" for child in _children(root, name)), "")


def _read_time(text: str) -> int:
    """Return a time of a list in microseconds."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND_US)
    except ValueError:
        raise Unavailable(NO_ANSWER) from None


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
