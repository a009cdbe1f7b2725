"""E-mail is encrypted, goes to a server with a verified certificate, and never carries an unintended header."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.smtp import FakeSmtp
from support.certificates import write_certificate

from gateway.configuration.outgoing_settings import MailSettings
from gateway.transport.mail import Mail, Mailer, MailFailed

LETTER = Mail("ada@example.com", "Hello", "A text with ümlauts.\n")


@pytest.fixture
def certificate(tmp_path: Path) -> str:
    return write_certificate(tmp_path / "smtp.pem", "localhost")


@pytest.fixture
def mailer(certificate: str) -> Callable[..., Mailer]:
    def make(server: FakeSmtp, password: str = "", **given: str) -> Mailer:
        usual = MailSettings("localhost", server.port, server.mode, "", "Gateway <gw@example.com>", certificate)  # type: ignore[arg-type]
        return Mailer(dataclasses.replace(usual, **given), password)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_a_message_is_sent_encrypted_after_signing_in(mailer, certificate: str, mode: str) -> None:
    with FakeSmtp(certificate, mode) as server:
        mailer(server, "secret", username="gateway").send(LETTER)
    [sent] = server.deliveries
    assert (sent.encrypted, sent.signed_in, sent.recipients) == (True, "gateway", ["ada@example.com"])
    assert (sent.message["Subject"], sent.message["From"]) == ("Hello", "Gateway <gw@example.com>")
    assert sent.text == "A text with ümlauts.\r\n" or sent.text == "A text with ümlauts.\n"


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_a_server_with_another_certificate_is_sent_nothing(mailer, certificate: str, mode: str) -> None:
    with FakeSmtp(certificate, mode) as server:
        for wrong in ({"host": "127.0.0.1"}, {"ca_file": ""}):
            with pytest.raises(MailFailed, match="no encrypted connection"):
                mailer(server, "secret", username="gateway", **wrong).send(LETTER)
    assert server.deliveries == []


def test_a_server_without_starttls_is_sent_nothing(mailer) -> None:
    with FakeSmtp(mode="none") as server, pytest.raises(MailFailed):
        mailer(server, security="starttls").send(LETTER)
    assert server.deliveries == []


@pytest.mark.parametrize(
    "to", ["a@b.example\r\nBcc: victim@example.com", "a, b@example.com", "a@b.example\nX: y", "", "no-address"]
)
def test_a_recipient_that_is_no_address_is_refused(mailer, to: str) -> None:
    with FakeSmtp(mode="none") as server, pytest.raises(MailFailed) as failed:
        mailer(server).send(LETTER._replace(to=to))
    assert failed.value.final and server.deliveries == [] and "victim" not in str(failed.value)


def test_a_subject_never_becomes_another_header(mailer) -> None:
    with FakeSmtp(mode="none") as server:
        mailer(server).send(LETTER._replace(subject="Hello\r\nBcc: victim@example.com\r\n\r\nBody"))
    [sent] = server.deliveries
    assert sent.message["Bcc"] is None and sent.recipients == ["ada@example.com"]
    assert sent.message["Subject"] == "Hello Bcc: victim@example.com Body"


def test_a_refusal_tells_the_status_and_no_address(mailer) -> None:
    refusals = ["554 ada@example.com is not wanted"]
    with FakeSmtp(mode="none", refusals=refusals) as server, pytest.raises(MailFailed) as failed:
        mailer(server).send(LETTER)
    assert str(failed.value) == "the server answered 554"


def test_no_server_at_all_is_a_failure(mailer) -> None:
    with FakeSmtp(mode="none") as server:
        pass
    with pytest.raises(MailFailed, match="the connection failed"):
        mailer(server).send(LETTER)
