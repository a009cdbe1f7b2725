"""Multipart forms, whole and damaged: the same fields and files again, or a refusal; nothing is read past its cap."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest, RequestTooLarge
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.web.forms import Form, FormLimits, digest_without, read_form
from gateway.surfaces.web.http import Inbound

BOUNDARY = "----edge7f3a"
LIMITS = FormLimits(parts=6, files=3, field_bytes=2000, file_bytes=4000)
NAMES = st.sampled_from(["model", "prompt", "include[]", "file", "größe"])
CONTENTS = st.binary(max_size=300) | st.sampled_from(
    [b"", b"\r\n", b"--", b"\r\n--", b"\r\n------edge7f3", b"x" * 3000, b"\xff"]
)
PARTS = st.lists(st.tuples(NAMES, CONTENTS, st.booleans()), max_size=8)
CRUMBS = [
    b"\r\n",
    b"--",
    b"\n",
    b"\0",
    b'"',
    b";",
    b":",
    b"--" + BOUNDARY.encode(),
    b"Content-Disposition: form-data",
    b"\xff",
]


def write(parts: list[tuple[str, bytes, bool]], boundary: str = BOUNDARY) -> bytes:
    wire = b""
    for name, content, is_file in parts:
        more = '; filename="a.bin"\r\nContent-Type: application/octet-stream' if is_file else ""
        wire += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
        wire += content + b"\r\n"
    return wire + f"--{boundary}--\r\n".encode()


def stored(data: bytes, in_memory: int = 1 << 20) -> StoredFile:
    file = StoredFile(in_memory=in_memory)
    file.write(data)
    return file


def read(data: bytes, kind: str = f"multipart/form-data; boundary={BOUNDARY}") -> Form:
    return read_form(Inbound("POST", "/v1/x", {"content-type": kind}, upload=stored(data)), LIMITS)


@given(PARTS)
def test_forms_are_read_or_refused_with_their_fault(parts: list[tuple[str, bytes, bool]]) -> None:
    files = [content for _, content, is_file in parts if is_file]
    texts = [content for _, content, is_file in parts if not is_file]
    try:
        form = read(write(parts))
    except (InvalidRequest, RequestTooLarge):
        bad = any(len(text) > 2000 or not _is_text(text) for text in texts) or len(files) > 3 or len(parts) > 6
        assert bad or not parts
        return
    assert [value.encode() for _, value in form.fields] == texts
    assert [file.data.read_all() for file in form.files] == files


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(PARTS, st.integers(0, 5000), st.sampled_from(CRUMBS), st.integers(0, 5))
def test_a_damaged_form_is_read_or_refused_within_its_caps(
    parts: list[tuple[str, bytes, bool]], at: int, crumb: bytes, lost: int
) -> None:
    data = write(parts)
    at %= len(data) + 1
    try:
        form = read(data[:at] + crumb + data[at + lost :])
    except (InvalidRequest, RequestTooLarge):
        return
    assert len(form.fields) + len(form.files) <= 6 and all(len(file.data) <= 4000 for file in form.files)


@given(st.text(max_size=60), st.binary(max_size=200))
def test_a_content_type_of_any_kind_is_read_or_refused(kind: str, data: bytes) -> None:
    for given_type in (kind, f"multipart/form-data; boundary={kind}", f'multipart/form-data; boundary="{kind}'):
        try:
            read(data, given_type)
        except (InvalidRequest, RequestTooLarge):
            continue


@given(PARTS, st.integers(1, 400))
def test_a_form_sent_again_under_another_boundary_is_the_same(parts: list[tuple[str, bytes, bool]], size: int) -> None:
    first, second = "one-boundary-4711", "and-another-0815-longer"
    digests = {
        digest_without(stored(write(parts, edge), size), edge.encode())
        for edge in (first, second)
        if all(edge.encode() not in content for _, content, _ in parts)
    }
    assert len(digests) <= 1
