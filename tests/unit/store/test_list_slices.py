"""A slice of a list begins after a row, whether or not the row still exists."""

import peewee
import pytest

from gateway.store.list_slices import WHOLE, ListSlice


class Item(peewee.Model):
    id = peewee.CharField(primary_key=True)

    class Meta:
        database = peewee.SqliteDatabase(":memory:")


@pytest.fixture(scope="module", autouse=True)
def rows() -> None:
    Item.create_table()
    Item.insert_many([{"id": letter} for letter in "abcde"]).execute()
    Item.delete().where(Item.id == "c").execute()


@pytest.mark.parametrize(
    ("part", "newest_first", "expected"),
    [
        (WHOLE, False, "abde"),
        (ListSlice(limit=2), False, "ab"),
        (ListSlice("c", 1), False, "d"),
        (ListSlice("c"), False, "de"),
        (ListSlice("c", 1), True, "b"),
        (ListSlice("e"), False, ""),
    ],
)
def test_a_slice_is_what_follows_a_row(part: ListSlice, newest_first: bool, expected: str) -> None:
    order = Item.id.desc() if newest_first else Item.id
    query = part.narrow(Item.select().order_by(order), Item.id, newest_first=newest_first)
    assert "".join(row.id for row in query) == expected
