"""The content of a thoughtSignature, in each base64 alphabet that clients write."""

import pytest

from gateway.surfaces.google.opaque_tokens import Signed, is_enveloped, read_signature, write_signature

TO_URLS = str.maketrans("+/", "-_")


@pytest.mark.parametrize(
    "signed",
    [
        Signed("anthropic", "c2ln?>>", "", "", False),
        Signed("responses", "", "gAAAA-1.0+/é==", "rs_1", True),
        Signed("anthropic", "", "redacted"),
    ],
)
def test_another_vendors_data_comes_back_in_either_alphabet(signed: Signed) -> None:
    written = write_signature(signed)
    assert is_enveloped(written) and is_enveloped(written.translate(TO_URLS))
    assert read_signature(written) == read_signature(written.translate(TO_URLS).rstrip("=")) == signed


def test_the_formats_own_signature_is_passed_on() -> None:
    assert write_signature(Signed("google", "++//")) == "++//"
    assert read_signature("--__") == Signed("google", "++//")
    assert read_signature("") == Signed() and write_signature(Signed()) == ""


@pytest.mark.parametrize("tail", ["", "e30", "WzFd", "!!"])
def test_a_modified_envelope_carries_nothing(tail: str) -> None:
    assert read_signature(write_signature(Signed("x", "y"))[:8] + tail) == Signed()
