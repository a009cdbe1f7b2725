"""Files of projects, as the surfaces use them: stored, listed, read, deleted, and uploaded in parts."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from gateway import ids
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.configuration.settings import FileSettings
from gateway.errors import Conflict, InvalidRequest, NotFound, RequestTooLarge, Unavailable
from gateway.files.content_store import ContentStore
from gateway.files.file_contents import FileContents
from gateway.files.file_rows import CANCELED, COMPLETED, KEPT, PENDING, STORED, FileRow, FileRows, PartRow
from gateway.jobs.job_rows import JobOwner, owner_of
from gateway.neutral.own_files import FILE_PREFIX
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import compute
from gateway.store.database import Database
from gateway.store.installation_identity import claim_value

UPLOAD_PREFIX = "upload"
PART_PREFIX = "part"
BATCH = "batch"
BATCH_OUTPUT = "batch_output"
BATCH_FILE_DAYS = 30  # without another expiry, as at OpenAI
UPLOAD_LIFETIME_US = HOUR_US
MAX_PARTS = 1_000
MAX_NAME_LENGTH = 255
ECHOED_ID_LENGTH = 80
UNKNOWN = "There is no file {} in this project."
UNKNOWN_UPLOAD = "There is no upload {} in this project."
SWEEP_AGE_US = HOUR_US  # an upload in progress has no row yet
CHECKED = 100  # contents that a check reads
OBJECTS_ID = "objects_id"  # a value of the installation that marks its objects
SHARED_PREFIX = (
    "Another installation stores files under the prefix {!r} of the same bucket, so lost contents are not deleted. "
    "Give each installation another files.s3_prefix."
)
SWEPT = 200  # contents that one query looks up
ZERO_RETENTION = (
    "The organization is under zero data retention, so the gateway stores no files: send the content in the request."
)
FULL = "The organization's files would exceed {} MB, which is the limit (files.organization_mb). Delete some first."

log = logging.getLogger("gateway")


class NewFile(NamedTuple):
    """The description of a file to store. `lifetime_s` None: the default of its purpose."""

    name: str
    media_type: str
    purpose: str
    lifetime_s: int | None = None


class FileOwner(NamedTuple):
    """The owner of a file that the gateway made. The key may not be valid any more."""

    organization_id: str
    project_id: str
    key_id: str


class FileRoom(NamedTuple):
    """The files of an organization and their bytes with those of inputs and parts, the most that they may have, 0:
    without limit, and the most that one file may have."""

    files: int
    used: int
    limit: int
    largest: int


class Files:
    """The files of all projects; a file belongs to the project of the key that stored it."""

    def __init__(
        self, database: Database, contents: FileContents, vault: Vault, clock: Clock, settings: FileSettings
    ) -> None:
        self._rows = FileRows(database)
        self._contents = contents
        self._vault = vault
        self._clock = clock
        self._max_bytes = settings.max_mb << 20
        self._total_bytes = settings.organization_mb << 20
        self._keep_us = settings.keep_days * DAY_US

    def create(self, caller: Caller, new: NewFile, size: int, pieces: Iterable[bytes]) -> FileRow:
        """Store a file of a known size. InvalidRequest (zdr_storage_conflict, file_storage_full), RequestTooLarge,
        Unavailable."""
        check_kept(caller)
        self._check_size(size)
        self._check_room(size, self._rows.stored_bytes(caller.organization_id))
        return self._store(caller, new, pieces)

    def keep_output(
        self, owner: FileOwner, new: NewFile, pieces: Iterable[bytes], ident: str, hidden_until_us: int = 0
    ) -> FileRow:
        """Store a file that the gateway made, which is not refused for its size. It replaces an earlier
        one with the same id. With `hidden_until_us` only `find_kept` returns it, until then at most."""
        content, size = self._contents.write(pieces)
        file = self._new_row(owner, new, size, content)._replace(id=ident)
        if hidden_until_us:
            file = file._replace(state=KEPT, expires_at=hidden_until_us)
        self._contents.delete(self._rows.delete(ident))
        self._insert(file, None)
        return file

    def find(self, caller: Caller, ident: str, param: str = "") -> FileRow:
        """Return a file that the caller may see. NotFound, Unavailable."""
        return self.find_of(owner_of(caller), ident, param)

    def find_of(self, owner: JobOwner, ident: str, param: str = "") -> FileRow:
        """Return a file of an owner. NotFound, Unavailable."""
        file = self._rows.find(ident)
        if file is None or file.state != STORED or not owner.owns(file) or self._has_expired(file):
            raise NotFound(UNKNOWN.format(ident[:ECHOED_ID_LENGTH]), param=param)
        return file

    def page(self, caller: Caller, after: str, limit: int, newest_first: bool, purpose: str = "") -> list[FileRow]:
        """Return up to `limit` files that the caller may see, after the id `after` ("": from the start)."""
        return self.page_of(owner_of(caller), after, limit, newest_first, purpose)

    def page_of(self, owner: JobOwner, after: str, limit: int, newest_first: bool, purpose: str = "") -> list[FileRow]:
        """Return files of an owner, as `page` does."""
        return self._rows.page(owner, after, limit, newest_first, purpose, self._clock.now_us())

    def delete(self, caller: Caller, ident: str) -> None:
        """Delete a file. NotFound, Unavailable."""
        self.delete_of(owner_of(caller), ident)

    def delete_of(self, owner: JobOwner, ident: str) -> None:
        """Delete a file of an owner. NotFound, Unavailable."""
        self._contents.delete(self._rows.delete(self.find_of(owner, ident).id))

    def room_of(self, organization: str) -> FileRoom:
        """Return what the files of an organization take, and what they may take. Unavailable."""
        return FileRoom(*self._rows.usage(organization), self._total_bytes, self._max_bytes)

    def now_us(self) -> int:
        """Return the time by which files expire. Unavailable."""
        return self._clock.now_us()

    def name_of(self, file: FileRow) -> str:
        return self._vault.open(file.name)

    def open(self, file: FileRow, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Return the bytes of a file in pieces; the iterator must be closed. Unavailable."""
        return self._contents.read(file.content, start, file.size if end is None else end)

    # The inputs of batches, which last as long as these, and not longer than `until_us` if these are lost.

    def keep(self, file: FileRow, until_us: int) -> FileRow:
        """Return another row with the content of a file, which remains when the file is deleted."""
        kept = file._replace(id=ids.new(FILE_PREFIX), state=KEPT, expires_at=until_us)
        self._insert(kept, None)
        return kept

    def keep_pieces(self, caller: Caller, pieces: Iterable[bytes], until_us: int) -> FileRow:
        """Store bytes that only `find_kept` returns. InvalidRequest (file_storage_full), Unavailable."""
        content, size = self._contents.write(pieces)
        kept = self._new_row(caller, NewFile("", "", BATCH), size, content)._replace(state=KEPT, expires_at=until_us)
        try:
            self._rows.insert(kept, partial(self._check_room, size))
        except BaseException:
            self._contents.delete([content])
            raise
        return kept

    def find_kept(self, ident: str) -> FileRow | None:
        """Return what `keep` stored; None once it was released."""
        return self._rows.find(ident)

    def release(self, ident: str) -> None:
        """Delete what `keep` stored."""
        self._contents.delete(self._rows.delete(ident))

    # Uploads in parts.

    def begin_upload(self, caller: Caller, new: NewFile, size: int) -> FileRow:
        """Begin an upload of `size` bytes. Errors as of `create`."""
        check_kept(caller)
        self._check_size(size)
        self._check_room(size, self._rows.stored_bytes(caller.organization_id))
        upload = self._new_row(caller, new, size, "")
        expires_at = upload.created_at + UPLOAD_LIFETIME_US
        lifetime = "" if new.lifetime_s is None else str(new.lifetime_s)
        upload = upload._replace(id=ids.new(UPLOAD_PREFIX), state=PENDING, expires_at=expires_at, made=lifetime)
        self._rows.insert(upload)
        return upload

    def find_upload(self, caller: Caller, ident: str) -> FileRow:
        """Return an upload that the caller may see. NotFound, Unavailable."""
        upload = self._rows.find(ident)
        if upload is None or upload.state in (STORED, KEPT) or not owner_of(caller).owns(upload):
            raise NotFound(UNKNOWN_UPLOAD.format(ident[:ECHOED_ID_LENGTH]))
        return upload

    def add_part(self, caller: Caller, ident: str, pieces: Iterable[bytes]) -> PartRow:
        """Store a part. Conflict (upload_not_pending) once the upload has ended; errors as of `create`."""
        check_kept(caller)
        upload = self._pending(caller, ident)
        content, size = self._contents.write(pieces)
        part = PartRow(ids.new(PART_PREFIX), upload.id, caller.organization_id, size, content)

        def check(stored: int, uploaded: int, count: int) -> None:
            if count >= MAX_PARTS:
                raise InvalidRequest(f"An upload has at most {MAX_PARTS} parts; send larger ones.", param="data")
            if uploaded + size > upload.size:
                raise InvalidRequest(f"The parts have more than the {upload.size} bytes of this upload.", param="data")
            self._check_room(size, stored)

        try:
            if not self._rows.add_part(part, check):
                # It ended while the part was stored; its present state is in the error.
                self._pending(caller, ident)
                raise _ended(upload)
        except BaseException:
            self._contents.delete([content])
            raise
        return part

    def complete_upload(self, caller: Caller, ident: str, part_ids: Sequence[str], md5: str) -> tuple[FileRow, FileRow]:
        """Join the parts in this order into a file; return the upload and the file. InvalidRequest for unknown parts,
        where the size or `md5` ("": unknown) differ, and under zero data retention; Conflict (upload_not_pending)."""
        check_kept(caller)
        upload = self._pending(caller, ident)
        known = self._rows.parts(upload.id)
        missing = [part_id for part_id in part_ids if part_id not in known]
        if missing or len(set(part_ids)) != len(part_ids):
            raise InvalidRequest("The list must name parts of this upload, each once.", param="part_ids")
        parts = [known[part_id] for part_id in part_ids]
        size = sum(part.size for part in parts)
        if size != upload.size:
            raise InvalidRequest(f"The parts have {size} bytes, but the upload is of {upload.size}.", param="part_ids")
        digest = hashlib.md5(usedforsecurity=False)
        content, _ = self._contents.write(self._join(parts, digest.update))
        if md5 and digest.hexdigest() != md5.lower():
            self._contents.delete([content])
            raise InvalidRequest("The MD5 digest of the parts differs.", param="md5")
        lifetime_s = int(upload.made) if upload.made else None
        new = NewFile(self.name_of(upload), upload.media_type, upload.purpose, lifetime_s)
        file = self._new_row(caller, new, size, content)
        contents = self._rows.replace_upload(upload, file)
        if contents is None:
            self._contents.delete([content])
            raise _ended(upload)
        self._contents.delete(contents)
        return upload._replace(state=COMPLETED, made=file.id), file

    def cancel_upload(self, caller: Caller, ident: str) -> FileRow:
        """Cancel an upload. Conflict (upload_not_pending)."""
        upload = self._pending(caller, ident)
        contents = self._rows.cancel_upload(upload)
        if contents is None:
            raise _ended(upload)
        self._contents.delete(contents)
        return upload._replace(state=CANCELED)

    # Recurring work.

    def purge(self, should_continue: ShouldContinue = always) -> None:
        """Delete files that have expired. Unavailable: the next round continues."""
        count = 1
        while count and should_continue():
            count, contents = self._rows.purge(self._clock.now_us())
            self._contents.delete(contents)

    def sweep(self, should_continue: ShouldContinue = always) -> None:
        """Delete contents of this node that no file has: of an upload that was interrupted, or of a file that another
        node deleted. Unavailable: the next round continues."""
        self._sweep(self._contents.folder, should_continue)

    def sweep_objects(self, should_continue: ShouldContinue = always) -> None:
        """Delete contents of the object store that no file has, if there is one. Nothing is deleted where another
        installation stores under the same prefix. Unavailable."""
        objects = self._contents.objects
        if objects is None:
            return
        installation = claim_value(self._rows.database, OBJECTS_ID, ids.new_hex())
        if objects.claim(installation):
            self._sweep(objects, should_continue)
        else:
            log.error("%s", SHARED_PREFIX.format(objects.bucket.prefix))

    def _sweep(self, store: ContentStore, should_continue: ShouldContinue) -> None:
        old = store.older_than(SWEEP_AGE_US, self._clock.now_us())
        while should_continue() and (some := _take(old) if store is self._contents.objects else compute(_take, old)):
            store.delete(self._rows.unknown(some))

    # For operators.

    def check(self) -> list[str]:
        """Return what is wrong with the store of contents: whether it works, and which of the newest contents it does
        not have."""
        try:
            if self._contents.objects is not None:
                self._contents.objects.check()
        except Unavailable as error:
            return [f"The contents of files cannot be stored: {error.message}"]
        problems = []
        for file in self._rows.newest(CHECKED):
            try:
                for _ in self._contents.read(file.content, 0, min(file.size, 1)):
                    pass
            except Unavailable as error:
                problems.append(f"The content of {file.id} cannot be read: {error.message}")
        return problems

    def _store(self, caller: Caller, new: NewFile, pieces: Iterable[bytes]) -> FileRow:
        content, size = self._contents.write(pieces)
        file = self._new_row(caller, new, size, content)
        self._insert(file, partial(self._check_room, size))
        return file

    def _insert(self, file: FileRow, check: Callable[[int], None] | None) -> None:
        try:
            self._rows.insert(file, check)
        except BaseException:
            if file.state != KEPT:
                self._contents.delete([file.content])
            raise

    def _new_row(self, owner: Caller | FileOwner, new: NewFile, size: int, content: str) -> FileRow:
        now = self._clock.now_us()
        return FileRow(
            id=ids.new(FILE_PREFIX),
            organization=owner.organization_id,
            project=owner.project_id,
            api_key=owner.key_id,
            state=STORED,
            name=self._vault.seal(_clean(new.name)),
            media_type=new.media_type[:127],
            purpose=new.purpose,
            size=size,
            created_at=now,
            expires_at=self._expiry_of(new, now),
            content=content,
        )

    def _expiry_of(self, new: NewFile, now: int) -> int | None:
        """Return when a file expires: the caller's choice, within the operator's limit."""
        lifetimes = []
        if new.lifetime_s is not None:
            lifetimes.append(new.lifetime_s * SECOND_US)
        elif new.purpose in (BATCH, BATCH_OUTPUT):
            lifetimes.append(BATCH_FILE_DAYS * DAY_US)
        if self._keep_us:
            lifetimes.append(self._keep_us)
        return now + min(lifetimes) if lifetimes else None

    def _has_expired(self, file: FileRow) -> bool:
        return file.expires_at is not None and file.expires_at <= self._clock.now_us()

    def _pending(self, caller: Caller, ident: str) -> FileRow:
        upload = self.find_upload(caller, ident)
        if upload.state != PENDING or self._has_expired(upload):
            raise _ended(upload)
        return upload

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            limit = self._max_bytes >> 20
            raise RequestTooLarge(f"The file is larger than {limit} MB, which is the limit (files.max_mb).")

    def _check_room(self, size: int, stored: int) -> None:
        """Raise InvalidRequest when an organization that stores `stored` bytes has no room for `size` more."""
        if self._total_bytes and stored + size > self._total_bytes:
            raise InvalidRequest(FULL.format(self._total_bytes >> 20), code="file_storage_full")

    def _join(self, parts: Iterable[PartRow], note: Callable[[bytes], object]) -> Iterator[bytes]:
        for part in parts:
            for piece in self._contents.read(part.content, 0, part.size):
                compute(note, piece)
                yield piece


def check_kept(caller: Caller) -> None:
    """Raise InvalidRequest for a caller under zero data retention."""
    if keeps_nothing(caller.rules):
        raise InvalidRequest(ZERO_RETENTION, code="zdr_storage_conflict")


def _clean(name: str) -> str:
    """Return a file name without its folders and control characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(char for char in last if char.isprintable()).encode("utf-8", "replace").decode()[:MAX_NAME_LENGTH]


def _ended(upload: FileRow) -> Conflict:
    state = "expired" if upload.state == PENDING else upload.state
    return Conflict(f"The upload is {state}: begin another one.", code="upload_not_pending")


def _take(contents: Iterator[str]) -> list[str]:
    return list(islice(contents, SWEPT))
