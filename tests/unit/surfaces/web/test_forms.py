"""Forms: fields and files as sent, limits by name, and an exact error for each malformed form."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import encode_multipart_formdata

from gateway.errors import GatewayError, InvalidRequest, RequestTooLarge
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.web.forms import FormLimits, digest_without, read_form
from gateway.surfaces.web.http import Inbound
from gateway.surfaces.web.wsgi import read_inbound

LIMITS = FormLimits(parts=8, files=2, field_bytes=100, file_bytes=3 << 20)


def inbound_of(body, kind):
    return Inbound("POST", "/v1/x", {"content-type": kind}, upload=StoredFile.of(body))


def sent(fields, boundary=None):
    return inbound_of(*encode_multipart_formdata(fields, boundary))


def test_fields_and_files_are_as_they_were_sent(tmp_path):
    sound = bytes(range(256)) * 8192  # two megabytes: read in a thread, stored on the disk
    fields = [("model", "whisper-1"), ("include[]", "a"), ("include[]", "ü"), ("file", ("a b.wav", sound, "audio/wav"))]
    form = read_form(sent(fields), LIMITS, str(tmp_path))
    assert (form.text("model"), form.texts("include[]"), form.text("none", "-")) == ("whisper-1", ["a", "ü"], "-")
    (file,) = form.files
    assert (file.name, file.filename, file.content_type) == ("file", "a b.wav", "audio/wav")
    assert file.data.on_disk and file.data.read_all() == sound


@pytest.mark.parametrize(
    ("fields", "error", "code"),
    [
        ([("a", "x" * 101)], RequestTooLarge, "request_too_large"),
        ([("a", ("f", bytes((3 << 20) + 1), "x/y"))], RequestTooLarge, "request_too_large"),
        ([(f"n{number}", "v") for number in range(9)], InvalidRequest, "too_many_parts"),
        ([(f"n{number}", ("f", b"v", "x/y")) for number in range(3)], InvalidRequest, "too_many_parts"),
        ([("a", b"\xff\xfe")], InvalidRequest, "invalid_parameters"),
    ],
)
def test_exceeded_limits_are_named(fields, error, code):
    with pytest.raises(error) as caught:
        read_form(sent(fields), LIMITS)
    assert caught.value.code == code


GOOD, KIND = encode_multipart_formdata([("model", "m"), ("file", ("f.wav", b"RIFF", "audio/wav"))], "edge")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (GOOD, "multipart/form-data"),
        (GOOD, "multipart/form-data; boundary="),
        (GOOD, "multipart/form-data; boundary=other"),
        (GOOD, "multipart/form-data; boundary=" + "x" * 300),
        (GOOD[:-8], KIND),
        (GOOD[:40], KIND),
        (b"", KIND),
        (b"--edge\r\nNo-Disposition: x\r\n\r\n1\r\n--edge--\r\n", KIND),
        (b"--edge\r\n" + b"a: b\r\n" * 99 + b"\r\n1\r\n--edge--\r\n", KIND),
        (b'--edge\r\nContent-Disposition: form-data; name="' + b"n" * 9000 + b'"\r\n\r\n1\r\n--edge--\r\n', KIND),
    ],
)
def test_a_broken_form_is_one_clear_error(body, kind):
    with pytest.raises(InvalidRequest) as caught:
        read_form(inbound_of(body, kind), LIMITS)
    assert caught.value.code == "malformed_form" and caught.value.status == 400


def test_json_where_a_form_is_needed_says_so():
    with pytest.raises(GatewayError) as caught:
        read_form(Inbound("POST", "/v1/x", {"content-type": "application/json"}, b"{}"), LIMITS)
    assert (caught.value.status, caught.value.code) == (400, "invalid_content_type")


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_a_form_or_a_refusal(body, framed):
    text = (
        b'--edge\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + body + b"\r\n--edge--\r\n" if framed else body
    )
    try:
        read_form(inbound_of(text, KIND), LIMITS)
    except GatewayError as error:
        assert error.status in (400, 413)


def test_a_form_sent_again_is_the_same_whatever_its_boundary():
    fields = [("model", "m"), ("file", ("f.wav", bytes(300_000), "audio/wav"))]
    one, two = (StoredFile.of(encode_multipart_formdata(fields, edge)[0]) for edge in ("edge-one", "edge-two"))
    assert digest_without(one, b"edge-one") == digest_without(two, b"edge-two")
    other = StoredFile.of(encode_multipart_formdata([("model", "n"), *fields[1:]], "edge-one")[0])
    assert digest_without(other, b"edge-one") != digest_without(one, b"edge-one")


@pytest.mark.parametrize("declared", [True, False])
def test_any_server_brings_a_form_as_a_stored_file(tmp_path, declared):
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_HOST": "h", "CONTENT_TYPE": KIND}
    environ |= {"wsgi.input": io.BytesIO(GOOD), "wsgi.input_terminated": True}
    environ |= {"CONTENT_LENGTH": str(len(GOOD))} if declared else {}
    inbound = read_inbound(environ, spool_dir=str(tmp_path))
    assert inbound.body == b"" and inbound.upload.read_all() == GOOD
    environ["wsgi.input"] = io.BytesIO(GOOD)
    with pytest.raises(RequestTooLarge):
        read_inbound(environ, max_form=10, spool_dir=str(tmp_path))
