"""The rows of files, of uploads in parts, and of the parts."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.jobs.job_rows import JobOwner, lock_organization
from gateway.store.database import Database

STORED = "uploaded"  # a file
# An upload in parts.
PENDING = "pending"
COMPLETED = "completed"
CANCELED = "cancelled"
KEPT = "kept"  # the input of a batch, which its caller may have deleted
BATCH_SIZE = 200  # rows of one transaction of a purge


class FileRow(NamedTuple):
    """A row of `stored_file`, in the order of its columns. Times are microseconds; `expires_at` None: never.

    `api_key` is the key that stored it, or the member who stored it in the console. `name` is sealed. `content` is the
    id of the content, "" for an upload; `made` is the file that an upload became, and before that the seconds that this
    file will be kept ("": the default).
    """

    id: str
    organization: str
    project: str
    api_key: str
    state: str
    name: str
    media_type: str
    purpose: str
    size: int
    created_at: int
    expires_at: int | None
    content: str
    made: str = ""


class PartRow(NamedTuple):
    """A row of `file_part`: a part of an upload."""

    id: str
    upload: str
    organization: str
    size: int
    content: str


FILE_COLUMNS = ", ".join(FileRow._fields)
PART_COLUMNS = ", ".join(PartRow._fields)
SELECT = f"SELECT {FILE_COLUMNS} FROM stored_file"
# A content counts once, also where a batch keeps its input beside the file.
STORED_BYTES = (
    "SELECT (SELECT COALESCE(SUM(size), 0) FROM "
    "(SELECT DISTINCT content, size FROM stored_file WHERE organization = ? AND content <> '') AS contents) + "
    "(SELECT COALESCE(SUM(size), 0) FROM file_part WHERE organization = ?)"
)

# What providers have of a file is deleted too (provider_files.py). An upload in progress is, once it has a name there.
DELETE_AT_PROVIDERS = (
    "UPDATE provider_file SET state = 'deleting', due_at = CASE WHEN remote = '' THEN due_at ELSE 0 END WHERE file = ?"
)


class FileRows:
    """All files of the installation. Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def insert(self, file: FileRow, check: Callable[[int], None] | None = None) -> None:
        """Insert a file. `check` is called before with the bytes that its organization stores, and may raise."""
        self.database.write(partial(self._insert, file, check))

    def replace_upload(self, upload: FileRow, file: FileRow) -> list[str] | None:
        """Insert the file that an upload became, and end the upload. Return the contents of its parts, None when the
        upload had ended before."""

        def work() -> list[str] | None:
            if not self._move(upload, COMPLETED, file.id):
                return None
            self._insert(file, None)
            return self._delete_parts(upload.id)

        return self.database.write(work)

    def cancel_upload(self, upload: FileRow) -> list[str] | None:
        """End an upload. Return the contents of its parts, None when it had ended before."""

        def work() -> list[str] | None:
            if not self._move(upload, CANCELED, ""):
                return None
            return self._delete_parts(upload.id)

        return self.database.write(work)

    def add_part(self, part: PartRow, check: Callable[[int, int, int], None]) -> bool:
        """Insert a part; False when its upload had ended before. `check` is called before with the bytes that the
        organization stores, and the bytes and the number of the parts of this upload, and may raise."""

        def work() -> bool:
            # The lock on the upload's row makes other parts and the end of the upload wait.
            locking = "UPDATE stored_file SET state = state WHERE id = ? AND state = ?"
            if not self.database.execute(locking, (part.upload, PENDING)).rowcount:
                return False
            sql = "SELECT COALESCE(SUM(size), 0), COUNT(*) FROM file_part WHERE upload = ?"
            uploaded, count = self.database.execute(sql, (part.upload,)).fetchone()
            check(self._stored(part.organization), int(uploaded), int(count))
            self.database.execute(f"INSERT INTO file_part ({PART_COLUMNS}) VALUES (?, ?, ?, ?, ?)", part)
            return True

        return self.database.write(work)

    def parts(self, upload_id: str) -> dict[str, PartRow]:
        """Return the parts of an upload by their ids."""
        sql = f"SELECT {PART_COLUMNS} FROM file_part WHERE upload = ?"
        return {row[0]: PartRow(*row) for row in self._fetch(sql, (upload_id,))}

    def find(self, ident: str) -> FileRow | None:
        return next((FileRow(*row) for row in self._fetch(f"{SELECT} WHERE id = ?", (ident,))), None)

    def page(
        self, owner: JobOwner, after: str, limit: int, newest_first: bool, purpose: str, now_us: int
    ) -> list[FileRow]:
        """Return up to `limit` files of an owner that follow `after` ("": from the start)."""
        order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
        conditions = "project = ? AND state = ? AND (expires_at IS NULL OR expires_at > ?)"
        params: list[Any] = [owner.project, STORED, now_us]
        for condition, value in (("api_key = ?", owner.api_key), ("purpose = ?", purpose), (f"id {sign} ?", after)):
            if value:
                conditions = f"{conditions} AND {condition}"
                params.append(value)
        sql = f"{SELECT} WHERE {conditions} ORDER BY id {order} LIMIT ?"
        return [FileRow(*row) for row in self._fetch(sql, (*params, limit))]

    def delete(self, ident: str) -> list[str]:
        """Delete a file; return its content if no other row has it."""
        return self.database.write(partial(self._delete, [ident]))

    def stored_bytes(self, organization: str) -> int:
        """Return the bytes that an organization stores."""
        return int(self._fetch(STORED_BYTES, (organization, organization))[0][0])

    def usage(self, organization: str) -> tuple[int, int]:
        """Return the number of files of an organization, and the bytes that it stores."""
        sql = "SELECT COUNT(*) FROM stored_file WHERE organization = ? AND state = ?"
        count = int(self._fetch(sql, (organization, STORED))[0][0])
        return count, self.stored_bytes(organization)

    def totals(self) -> tuple[int, int]:
        """Return the number of stored contents of all organizations, and their bytes."""
        sql = (
            "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM (SELECT content, size FROM stored_file WHERE content <> '' "
            "UNION SELECT content, size FROM file_part) AS contents"
        )
        count, size = self._fetch(sql, ())[0]
        return int(count), int(size)

    def newest(self, limit: int) -> list[FileRow]:
        """Return the newest files with contents."""
        return [
            FileRow(*row) for row in self._fetch(f"{SELECT} WHERE content <> '' ORDER BY id DESC LIMIT ?", (limit,))
        ]

    def purge(self, now_us: int) -> tuple[int, list[str]]:
        """Delete some files and uploads that have expired; return how many, and their contents. Of uploads with
        many parts, few are deleted at once."""

        def work() -> tuple[int, list[str]]:
            sql = "SELECT id FROM stored_file WHERE expires_at IS NOT NULL AND expires_at <= ? LIMIT ?"
            count = 0
            contents: list[str] = []
            for (ident,) in self.database.fetch(sql, (now_us, BATCH_SIZE)):
                contents += [*self._delete([ident]), *self._delete_parts(ident)]
                count += 1
                if len(contents) >= BATCH_SIZE:
                    break
            return count, contents

        return self.database.write(work)

    def unknown(self, contents: Sequence[str]) -> list[str]:
        """Return those contents that no row has."""
        marks = ", ".join("?" * len(contents))
        sql = (
            f"SELECT content FROM stored_file WHERE content IN ({marks}) "
            f"UNION SELECT content FROM file_part WHERE content IN ({marks})"
        )
        known = {row[0] for row in self._fetch(sql, (*contents, *contents))}
        return [content for content in contents if content not in known]

    def _insert(self, file: FileRow, check: Callable[[int], None] | None) -> None:
        if check is not None:
            check(self._stored(file.organization))
        marks = ", ".join("?" * len(file))
        self.database.execute(f"INSERT INTO stored_file ({FILE_COLUMNS}) VALUES ({marks})", file)

    def _stored(self, organization: str) -> int:
        """Return the bytes that an organization stores. Until the end of this write, its other writes wait here: two
        files that are stored at the same time would not count each other."""
        lock_organization(self.database, organization)
        return int(self.database.execute(STORED_BYTES, (organization, organization)).fetchone()[0])

    def _move(self, upload: FileRow, state: str, made: str) -> bool:
        sql = "UPDATE stored_file SET state = ?, made = ? WHERE id = ? AND state = ?"
        return bool(self.database.execute(sql, (state, made, upload.id, PENDING)).rowcount)

    def _delete(self, idents: Iterable[str]) -> list[str]:
        contents = []
        for ident in idents:
            row = self.database.execute("SELECT content FROM stored_file WHERE id = ?", (ident,)).fetchone()
            self.database.execute("DELETE FROM stored_file WHERE id = ?", (ident,))
            self.database.execute(DELETE_AT_PROVIDERS, (ident,))
            sql = "SELECT 1 FROM stored_file WHERE content = ?"
            if row is not None and row[0] and self.database.execute(sql, (row[0],)).fetchone() is None:
                contents.append(row[0])
        return contents

    def _delete_parts(self, upload_id: str) -> list[str]:
        sql = "SELECT content FROM file_part WHERE upload = ?"
        contents = [row[0] for row in self.database.execute(sql, (upload_id,)).fetchall()]
        self.database.execute("DELETE FROM file_part WHERE upload = ?", (upload_id,))
        return contents

    def _fetch(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.database.read(partial(self.database.fetch, sql, params))
