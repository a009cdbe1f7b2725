"""The name of a repository is kept without the credentials of its address."""

import pytest

from gateway.metering.outcomes.repository_names import REPOSITORY, REPOSITORY_OWNER, repository_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://ann:ghp_s3cret@git.example/acme/house.git", "git.example/acme/house"),
        ("https://ghp_s3cret@git.example/acme/house", "git.example/acme/house"),
        ("HTTPS://ann:p@ss/w0rd@git.example/house/", "git.example/house"),
        ("ann:ghp_s3cret@git.example/acme/house", "git.example/acme/house"),
        ("//ann:ghp_s3cret@git.example/house", "git.example/house"),
        ("git@git.example:acme/house.git", "git.example:acme/house"),
        ("ssh://git@git.example:2222/acme/house.git", "git.example:2222/acme/house"),
        ("https://git.example/house?private_token=s3cret#s3cret", "git.example/house"),
        ("https://ann:s3cret", ""),
        ("https://git.example:8443/house", "git.example:8443/house"),
        ("https://git.example/house:1", "git.example/house:1"),
        ("ho\u202euse\n", "ho\N{REPLACEMENT CHARACTER}use\N{REPLACEMENT CHARACTER}"),
        ("  ", ""),
    ],
)
def test_no_credentials_of_a_remote_are_kept(given: str, expected: str) -> None:
    assert repository_of(lambda name: given if name == REPOSITORY else "") == expected
    named = f"{expected}/name" if expected else "name"
    assert repository_of(lambda name: given if name == REPOSITORY_OWNER else "name") == named
