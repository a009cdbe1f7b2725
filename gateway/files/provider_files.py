"""Files at providers: each is uploaded once for each account, remembered, and deleted with the gateway's file.

A row is inserted before the upload, so that two requests with the same file, on any nodes, upload it once. The worker
that uploads renews its claim. What a dead worker left at a provider is deleted by the provider, because every upload
has an expiry there.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from gateway import ids
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.errors import GatewayError, NotFound, Unavailable, UpstreamFailed, UpstreamTimeout
from gateway.files.file_rows import FileRow
from gateway.jobs.rounds import Rounds
from gateway.providers.credentials import Credentials
from gateway.providers.files.file_calls import FileCalls
from gateway.providers.files.file_codec import FileCodec, FileContent, ProviderFile
from gateway.providers.protocol import Target
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

UPLOADING = "uploading"
READY = "ready"
DELETING = "deleting"
CLAIM_US = 60 * SECOND_US  # a worker that is silent for this long does not upload any more
RENEW_S = 15.0
LOOK_S, MAX_LOOK_S = 0.1, 1.0  # between looks at a file that another worker uploads
MARGIN_US = 10 * 60 * SECOND_US  # before its expiry a file is uploaded again
UNKNOWN_EXPIRY_US = 30 * DAY_US
FIRST_RETRY_US, MAX_RETRY_US = 10 * SECOND_US, HOUR_US
OF_ONE, OF_ALL, PAGE = 4, 16, 100  # deletions at a time: of an organization, of all, and rows that are read
MAX_NAME, MAX_REFERENCE = 512, 2048  # characters of a provider's names
LONG = "The provider's name of the file is too long."

log = logging.getLogger("gateway")


class ProviderFileRow(NamedTuple):
    """A row of `provider_file`, in the order of its columns. `account` is the address and the credential, hashed;
    `claim` the worker that uploads. `due_at` is when something happens without a request: a claim or the file expires,
    or it is deleted at the provider."""

    id: str
    file: str
    account: str
    organization: str
    provider: str
    model: str
    mapping: str
    source: str
    credential: str
    state: str
    claim: str
    remote: str
    reference: str
    created_at: int
    expires_at: int | None
    due_at: int
    tries: int


COLUMNS = ", ".join(ProviderFileRow._fields)
SELECT = f"SELECT {COLUMNS} FROM provider_file"
INSERT = (
    f"INSERT INTO provider_file ({COLUMNS}) VALUES ({', '.join('?' * len(ProviderFileRow._fields))}) "
    "ON CONFLICT (file, account) DO NOTHING"
)


class PlacedFile(NamedTuple):
    """A file at the provider of a target: `fresh` if it was uploaded for this request."""

    row: ProviderFileRow
    fresh: bool


class ProviderFiles:
    """The files of all organizations at providers."""

    def __init__(
        self,
        database: Database,
        calls: FileCalls,
        credentials: Credentials,
        catalogue: Callable[[], Catalogue],
        clock: Clock,
    ) -> None:
        self._database = database
        self._calls = calls
        self._credentials = credentials
        self._catalogue = catalogue
        self._clock = clock
        self._rounds = Rounds(OF_ONE, OF_ALL, clock)

    def codec_of(self, target: Target) -> FileCodec | None:
        """Return the codec of the target's files API; None where it has none."""
        return self._calls.codec_of(target)

    def place(self, file: FileRow, content: FileContent, target: Target, deadline: float) -> PlacedFile:
        """Return a file at the provider of a target, uploaded if it is not there yet. Errors of `FileCalls.upload`;
        NotFound when the file was deleted meanwhile, UpstreamTimeout after `deadline` (monotonic seconds),
        Unavailable."""
        account = account_of(target)
        wait_s = LOOK_S
        while True:
            row = self._find(file.id, account)
            now = self._clock.now_us()
            if row is not None and row.state == DELETING:
                raise NotFound(f"The file {file.id} was deleted.", param="file_id")
            if row is not None and row.state == READY and now < row.due_at:
                return PlacedFile(row, fresh=False)
            if row is None or now >= row.due_at:
                claimed = self._claim(row, file, account, target)
                if claimed is not None:
                    return PlacedFile(self._upload(claimed, content, target, deadline), fresh=True)
            if self._clock.monotonic() + wait_s >= deadline:
                raise UpstreamTimeout("Another request did not upload the file in time.")
            pause(wait_s)
            wait_s = min(wait_s * 2, MAX_LOOK_S)

    def forget_lost(self, placed: PlacedFile, target: Target) -> bool:
        """Forget a file that its provider has lost; False where it still has it. Errors of `FileCalls.exists`."""
        if self._calls.exists(placed.row.remote, target):
            return False
        sql = "DELETE FROM provider_file WHERE id = ? AND remote = ? AND state = ?"
        self._database.change_rows(sql, (placed.row.id, placed.row.remote, READY))
        return True

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Delete at their providers the files that were deleted here, and rows that are over. Unavailable."""
        sql = f"{SELECT} WHERE due_at <= ? ORDER BY due_at LIMIT {PAGE}"
        rows = [ProviderFileRow(*row) for row in self._database.query_rows(sql, (self._clock.now_us(),))]
        self._rounds.run(((row.organization, partial(self._end, row)) for row in rows), should_continue)

    def _end(self, row: ProviderFileRow) -> None:
        """Delete what is left of a row."""
        try:
            if row.state != DELETING and row.expires_at is None and row.remote:
                moved = self._change(row, state=DELETING)
                if moved is None:
                    return
                row = moved
            if row.state == DELETING and row.remote and not self._delete(row):
                return
            self._database.change_rows(
                "DELETE FROM provider_file WHERE id = ? AND state = ? AND due_at = ?", (row.id, row.state, row.due_at)
            )
        except Unavailable as error:
            log.warning("a file at %s is deleted later: %s", row.provider, error.message)

    def _delete(self, row: ProviderFileRow) -> bool:
        """Delete a file at its provider; False where that must be tried again."""
        target = self._target_of(row)
        now = self._clock.now_us()
        if target is None or now >= (row.expires_at or row.created_at + UNKNOWN_EXPIRY_US):
            return True  # nobody can delete it, or the provider has
        try:
            self._calls.delete(row.remote, target)
        except GatewayError as error:
            wait_us = min(FIRST_RETRY_US << min(row.tries, 20), MAX_RETRY_US)
            self._change(row, tries=row.tries + 1, due_at=now + wait_us)
            log.warning("a file could not be deleted at %s and will be later: %s", row.provider, error.message)
            return False
        return True

    def _upload(
        self, claimed: ProviderFileRow, content: FileContent, target: Target, deadline: float
    ) -> ProviderFileRow:
        """Upload a file and return its row; without one where that fails."""
        renewing = content_of(content, partial(self._renewed, claimed))
        try:
            made = self._calls.upload(renewing, target, deadline)
            if len(made.ident) > MAX_NAME or len(made.reference) > MAX_REFERENCE:
                raise UpstreamFailed(LONG)
        except BaseException:
            sql = "DELETE FROM provider_file WHERE id = ? AND claim = ? AND remote = ''"
            self._database.change_rows(sql, (claimed.id, claimed.claim))
            raise
        return self._record(claimed, made, target)

    def _record(self, claimed: ProviderFileRow, made: ProviderFile, target: Target) -> ProviderFileRow:
        """Record an upload. Where the file was deleted meanwhile, it is deleted at the provider too."""
        now = self._clock.now_us()
        expires_at = made.expires_at * SECOND_US or None
        due_at = (expires_at or now + UNKNOWN_EXPIRY_US) - MARGIN_US
        columns = {"remote": made.ident, "reference": made.reference, "expires_at": expires_at}
        ready: dict[str, Any] = {**columns, "state": READY, "due_at": due_at}

        def work() -> bool:
            if self._update(claimed.id, claimed.claim, UPLOADING, ready):
                return True
            self._update(claimed.id, claimed.claim, DELETING, {**columns, "due_at": 0})
            return False

        if self._database.write(work):
            return claimed._replace(**ready)
        left = self._find(claimed.file, claimed.account)
        if left is None or left.remote != made.ident:  # another worker has uploaded it too
            self._calls.delete(made.ident, target)
        if left is None or left.state == DELETING:
            raise NotFound(f"The file {claimed.file} was deleted.", param="file_id")
        raise Unavailable("The file was uploaded too slowly; send the request again.")

    def _renewed(self, claimed: ProviderFileRow) -> None:
        """Renew the claim of an upload in progress. Unavailable when it was lost, or the file was deleted."""
        due_at = self._clock.now_us() + CLAIM_US
        sql = "UPDATE provider_file SET due_at = ? WHERE id = ? AND claim = ? AND state = ?"
        if not self._database.change_rows(sql, (due_at, claimed.id, claimed.claim, UPLOADING)):
            raise Unavailable("The file was deleted while it was uploaded to its provider.")

    def _claim(
        self, row: ProviderFileRow | None, file: FileRow, account: str, target: Target
    ) -> ProviderFileRow | None:
        """Return the row of an upload that this worker has begun; None when another one was faster."""
        now = self._clock.now_us()
        mapping = target.mapping
        claimed = ProviderFileRow(
            id=ids.new_hex() if row is None else row.id,
            file=file.id,
            account=account,
            organization=file.organization,
            provider=target.provider.id,
            model=mapping.model,
            mapping=mapping.key,
            source=target.credential.source,
            credential=target.credential.ident,
            state=UPLOADING,
            claim=ids.new_hex(),
            remote="",
            reference="",
            created_at=now,
            expires_at=None,
            due_at=now + CLAIM_US,
            tries=0,
        )
        if row is None:
            return claimed if self._database.write(partial(self._insert, claimed)) else None
        moved = self._change(row, **{name: getattr(claimed, name) for name in CLAIMED})
        return claimed if moved is not None else None

    def _insert(self, row: ProviderFileRow) -> bool:
        """Insert a row of a file that still exists."""
        if self._database.execute("SELECT 1 FROM stored_file WHERE id = ?", (row.file,)).fetchone() is None:
            raise NotFound(f"The file {row.file} was deleted.", param="file_id")
        return bool(self._database.execute(INSERT, row).rowcount)

    def _change(self, row: ProviderFileRow, **values: Any) -> ProviderFileRow | None:
        """Change a row; None when another worker changed it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE provider_file SET {columns} WHERE id = ? AND state = ? AND claim = ? AND due_at = ?"
        if self._database.change_rows(sql, (*values.values(), row.id, row.state, row.claim, row.due_at)):
            return row._replace(**values)
        return None

    def _update(self, ident: str, claim: str, state: str, values: dict[str, Any]) -> bool:
        """Change the row of an upload inside a write."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE provider_file SET {columns} WHERE id = ? AND claim = ? AND state = ?"
        return bool(self._database.execute(sql, (*values.values(), ident, claim, state)).rowcount)

    def _find(self, file: str, account: str) -> ProviderFileRow | None:
        rows = self._database.query_rows(f"{SELECT} WHERE file = ? AND account = ?", (file, account))
        return ProviderFileRow(*rows[0]) if rows else None

    def _target_of(self, row: ProviderFileRow) -> Target | None:
        """Return the target of a file; None where provider or credential were removed."""
        catalogue = self._catalogue()
        provider = catalogue.provider(row.provider)
        model = catalogue.models.get(row.model.partition(":")[0])
        mapping = next((one for one in model.mappings if one.key == row.mapping), None) if model else None
        if provider is None or mapping is None:
            return None
        credential = self._credentials.find_for_job(mapping, row.organization, row.source, row.credential)
        return self._credentials.target(mapping, provider, credential) if credential else None


CLAIMED = (
    *("provider", "model", "mapping", "source", "credential", "state", "claim", "remote", "reference", "created_at"),
    *("expires_at", "due_at", "tries"),
)


def account_of(target: Target) -> str:
    """Return the name of the account of a target: its address and credential. Accounts of organizations and of the
    platform are never the same, and neither are those of two organizations."""
    credential = target.credential
    text = "\n".join((target.provider.id, target.address, credential.source, credential.ident))
    return blake2b(text.encode(), digest_size=20).hexdigest()


def content_of(content: FileContent, renew: Callable[[], None]) -> FileContent:
    """Return a content that calls `renew` from time to time while it is read."""

    def opened() -> Iterator[bytes]:
        last = Clock.monotonic()
        pieces = content.open()
        try:
            for piece in pieces:
                if Clock.monotonic() - last >= RENEW_S:
                    last = Clock.monotonic()
                    renew()
                yield piece
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    return FileContent(content.name, content.media_type, content.size, opened, content.lifetime_s)
