"""Page and text counts of PDFs do not depend on declarations in the file."""

import re
from io import BytesIO

import gevent
import pytest
from pypdf import PdfWriter
from support.pdfs import CATALOG, PAGE, packed, plain, updated

from gateway.media import pdf_program, pdf_reader
from gateway.media.pdf_reader import PdfFacts, PdfReader


def facts(data: bytes) -> PdfFacts | None:
    """Return what the program of the child process finds, without the tenth of a second that its start takes."""
    try:
        return PdfFacts(*pdf_program.read(data))
    except Exception:
        return None


@pytest.mark.parametrize(
    "data",
    [
        packed(1000, decoy=b"% /Type /Page \n"),
        packed(1000, declared=1),
        packed(1000, declared=-1),
        packed(1000, repeated=True),
        packed(1000).replace(b"/ObjStm", b"/Obj#53tm"),
    ],
    ids=["decoy comment", "wrong count", "negative count", "one page object", "escaped name"],
)
def test_a_thousand_packed_pages_count_as_a_thousand(data: bytes) -> None:
    found = facts(data)
    assert found is None or (found.pages == 1000 and found.max_pages >= 1000)
    assert b"ObjStm" not in data or found is not None


def test_a_small_pdf_counts_its_pages_exactly() -> None:
    assert facts(packed(3, b"hello")) == PdfFacts(3, 3, 15)


def test_an_incremental_update_that_hides_pages_counts_those_of_both_revisions() -> None:
    kids = b" ".join([b"3 0 R"] * 40)
    before = plain([CATALOG, b"<</Type/Pages/Count 40/Kids[%s]>>" % kids, *[PAGE] * 40])
    found = facts(updated(before, 2, b"<</Type/Pages/Count 1/Kids[3 0 R]>>", 43))
    assert found is not None and found.pages == 1 and found.max_pages >= 40


@pytest.mark.parametrize("number", [2, 9], ids=["a second tree", "a second catalogue"])
@pytest.mark.parametrize("behind", [b"", b"%%EOF\n", b"startxref\n0\n%%EOF\n"], ids=["nothing", "end", "no table"])
def test_objects_behind_the_end_of_a_file_count(number: int, behind: bytes) -> None:
    """PDFium finds no table in the last 4,096 bytes, rebuilds it, and shows a thousand pages; one was counted."""
    tree = b"<</Type/Pages/Count 1000/Kids[%s]>>" % (b"3 0 R " * 1000)
    root = b"" if number == 2 else b"10 0 obj\n<</Type/Catalog/Pages 9 0 R>>\nendobj\ntrailer<</Size 11/Root 10 0 R>>\n"
    visible = plain([CATALOG, b"<</Type/Pages/Count 1/Kids[3 0 R]>>", PAGE])
    found = facts(visible + b"%" + b"x" * 6000 + b"\n%d 0 obj\n%s\nendobj\n" % (number, tree) + root + behind)
    assert found is None or found.max_pages >= 1000


@pytest.mark.parametrize("algorithm", ["AES-256", "RC4-128"])
def test_an_encrypted_pdf_counts_unless_objects_of_it_are_hidden(algorithm: str) -> None:
    writer = PdfWriter()
    for _ in range(3):
        writer.add_blank_page(99, 99)
    writer.encrypt("", "owner", algorithm=algorithm)
    written = BytesIO()
    writer.write(written)
    found = PdfReader().read(written.getvalue())
    assert found is not None and found.max_pages == 3
    tree = b"<</Type/Pages/Count 1000/Kids[%s]>>" % (b"4 0 R " * 1000)
    (number,) = re.findall(rb"/Pages (\d+) 0 R", written.getvalue())
    hidden = facts(written.getvalue() + b"%" + b"x" * 6000 + b"\n%s 0 obj\n%s\nendobj\n" % (number, tree))
    assert hidden is None or hidden.max_pages >= 1000


def test_a_tree_whose_nodes_are_shared_counts_each_reference() -> None:
    levels = [b"<</Type/Pages/Count 1/Kids[%s]>>" % (b"%d 0 R " % (number + 1) * 10) for number in range(2, 8)]
    assert facts(plain([CATALOG, *levels, PAGE])) == PdfFacts(10**6, 10**6, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.7\n" + b"\xff" * 1000,
        plain([CATALOG, b"<</Type/Pages/Count 3/Kids[2 0 R]>>"]),
        plain([CATALOG, b"<</Type/Pages/Count 0/Kids[]>>"]),
        plain(
            [CATALOG, b"<</Type/Pages/Count 1/Kids[3 0 R]>>", PAGE], b"/Encrypt<</Filter/Standard/V 9/R 9>>/ID[(a)(b)]"
        ),
    ],
    ids=["garbage", "circle", "no pages", "encrypted"],
)
def test_a_pdf_that_cannot_be_read_has_no_facts(data: bytes) -> None:
    assert facts(data) is None


def test_text_of_shared_content_counts_on_each_page() -> None:
    found = facts(packed(50, b"x" * 10_000))
    assert found is not None and found.text_bytes >= 500_000


def test_a_code_that_stands_for_a_long_text_counts_as_long() -> None:
    cmap = b"1 beginbfchar <41> <" + b"0041" * 200 + b"> endbfchar"
    contents = b"BT /F 1 Tf (AAAAAAAAAA) Tj ET"
    found = facts(
        plain(
            [
                CATALOG,
                b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
                b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
                b"<</Length %d>>stream\n%s\nendstream" % (len(contents), contents),
                b"<</Type/Font/ToUnicode 6 0 R>>",
                b"<</Length %d>>stream\n%s\nendstream" % (len(cmap), cmap),
            ]
        )
    )
    assert found is not None and found.text_bytes >= 500


def test_a_form_that_is_shown_many_times_counts_each_time() -> None:
    contents, form = b"/X Do " * 100, b"BT (%s) Tj ET" % (b"y" * 100)
    found = facts(
        plain(
            [
                CATALOG,
                b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
                b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>",
                b"<</Length %d>>stream\n%s\nendstream" % (len(contents), contents),
                b"<</Type/XObject/Subtype/Form/Length %d>>stream\n%s\nendstream" % (len(form), form),
            ]
        )
    )
    assert found is not None and found.text_bytes >= 10_000


def test_a_reader_that_takes_too_long_is_ended_and_the_file_counts_as_unread(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("while True: pass")
    monkeypatch.setattr(pdf_reader, "PROGRAM", program)
    monkeypatch.setattr(pdf_reader, "MAX_DURATION_S", 0.5)
    assert PdfReader().read(packed(1)) is None


@pytest.mark.slow
def test_a_page_that_unpacks_to_hundreds_of_megabytes_counts_as_unread() -> None:
    assert PdfReader().read(packed(1, b"x" * 200_000_000)) is None


def test_the_same_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, data = PdfReader(), packed(2)
    first = reader.read(data)
    monkeypatch.setattr(pdf_reader, "_read", None)
    assert reader.read(data) == first


def test_a_file_that_finds_no_place_in_the_queue_counts_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_reader, "MAX_WAITING", 1)
    monkeypatch.setattr(pdf_reader, "WAITING_EACH", 1)
    reader, files = PdfReader(), [packed(number) for number in range(1, 9)]
    jobs = [gevent.spawn(reader.read, data) for data in files]
    found = [job.get(timeout=60) for job in jobs]
    assert found[0] == PdfFacts(1, 1, 0) and found.count(None) >= 5
    assert reader.read(files[-1]) == PdfFacts(8, 8, 0)
