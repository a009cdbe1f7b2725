"""The content of a thoughtSignature, in each base64 alphabet that clients write."""

import pytest

from gateway.surfaces.google.opaque_tokens import SignedData, is_enveloped, read_signature, write_signature

TO_URLS = str.maketrans("+/", "-_")


@pytest.mark.parametrize(
    "signed",
    [
        SignedData("anthropic", "c2ln?>>", "", "", False),
        SignedData("responses", "", "gAAAA-1.0+/é==", "rs_1", True),
        SignedData("anthropic", "", "redacted"),
    ],
)
def test_another_vendors_data_comes_back_in_either_alphabet(signed: SignedData) -> None:
    written = write_signature(signed)
    assert is_enveloped(written) and is_enveloped(written.translate(TO_URLS))
    assert read_signature(written) == read_signature(written.translate(TO_URLS).rstrip("=")) == signed


def test_the_formats_own_signature_is_passed_on() -> None:
    assert write_signature(SignedData("google", "++//")) == "++//"
    assert read_signature("--__") == SignedData("google", "++//")
    assert read_signature("") == SignedData() and write_signature(SignedData()) == ""


@pytest.mark.parametrize("tail", ["", "e30", "WzFd", "!!"])
def test_a_modified_envelope_carries_nothing(tail: str) -> None:
    assert read_signature(write_signature(SignedData("x", "y"))[:8] + tail) == SignedData()
