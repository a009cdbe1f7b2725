import pytest

from gateway.configuration.setting_checks import url_problem

BOTH = ("https", "http")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:4001/v1",
        "http://model_server:80/v1",
        "https://user:word@host.internal./v1?a=b",
        "https://b\u00fccher.example/v1",
        "HTTPS://API.EXAMPLE.COM",
    ],
)
def test_a_valid_address_is_accepted(url):
    assert url_problem(url, BOTH) == ""


@pytest.mark.parametrize(
    "url",
    [
        "http:// not an address",
        "http://",
        "https:///v1",
        "https://:8080/v1",
        "api.example.com/v1",
        "ftp://api.example.com",
        "http://host:port/v1",
        "http://host:99999/v1",
        "http://host:0/v1",
        "http://[::1/v1",
        "http://ho st/v1",
        "http://host/v1\n",
        "http://-host/v1",
        "http://host,other/v1",
        "http://" + "a" * 300,
        "https://secret word@host",
    ],
)
def test_an_address_that_cannot_be_one_is_refused_without_its_password(url):
    problem = url_problem(url, BOTH)
    assert problem and "word" not in problem
