"""The columns that a person chose for a list of the console."""

from collections.abc import Sequence

from gateway.store.database import Database

MAX_LENGTH = 400  # characters of all names together
SEPARATOR = " "


def find_columns(database: Database, user_id: str, page: str) -> list[str]:
    """Return the chosen columns of a page, [] for the usual ones."""
    row = database.query_row("SELECT names FROM chosen_columns WHERE user_id = ? AND page = ?", (user_id, page))
    return [] if row is None else row[0].split(SEPARATOR)


def choose_columns(database: Database, user_id: str, page: str, names: Sequence[str]) -> None:
    """Keep the columns of a page; without any, the usual ones are shown again."""
    text = SEPARATOR.join(names)[:MAX_LENGTH]

    def work() -> None:
        database.execute("DELETE FROM chosen_columns WHERE user_id = ? AND page = ?", (user_id, page))
        if text:
            sql = "INSERT INTO chosen_columns (user_id, page, names) VALUES (?, ?, ?)"
            database.execute(sql, (user_id, page, text))

    database.write(work)
