"""Webhook signatures pass the checks of the Standard Webhooks libraries."""

import base64
import hashlib
import hmac
import time

import pytest
from openai import OpenAI
from standardwebhooks import Webhook, WebhookVerificationError
from support.pages import blocks

from gateway.transport import webhook_delivery


def expected(key: bytes, ident: str, at: int, body: bytes) -> str:
    digest = hmac.new(key, f"{ident}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def test_a_delivery_is_signed_with_the_secret_as_written_and_as_its_bytes() -> None:
    secret = webhook_delivery.make_secret()
    headers = webhook_delivery.sign(secret, "evt_1", 1_700_000_000, b'{"a":1}')
    raw, decoded = headers["webhook-signature"].split(" ")
    assert raw == expected(secret.encode(), "evt_1", 1_700_000_000, b'{"a":1}')
    assert decoded == expected(base64.b64decode(secret.removeprefix("whsec_")), "evt_1", 1_700_000_000, b'{"a":1}')
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("evt_1", "1700000000")


def test_a_chosen_secret_is_used_unchanged() -> None:
    for secret in ("my own words", "whsec_not-base64!", "é"):
        assert webhook_delivery.sign(secret, "e", 1, b"")["webhook-signature"] == expected(secret.encode(), "e", 1, b"")


OWN = base64.b64encode(b"thirty-two bytes of somebody else").decode()


@pytest.mark.parametrize("secret", [webhook_delivery.make_secret(), OWN, OWN.rstrip("="), f"whsec_{OWN}"])
def test_the_librarys_own_check_takes_a_delivery_and_no_other(secret: str) -> None:
    body, receiver = b'{"type":"test"}', Webhook(secret)
    signed = webhook_delivery.sign(secret, "evt_1", int(time.time()), body)
    assert receiver.verify(body, signed) == {"type": "test"}
    late = webhook_delivery.sign(secret, "evt_1", int(time.time()) - 900, body)
    for given, headers in ((body + b" ", signed), (body, {**signed, "webhook-id": "evt_2"}), (body, late)):
        with pytest.raises(WebhookVerificationError):
            receiver.verify(given, headers)


def test_the_official_client_takes_a_delivery() -> None:
    secret, body = webhook_delivery.make_secret(), b'{"type":"test"}'
    client = OpenAI(api_key="none", webhook_secret=secret)
    client.webhooks.verify_signature(body, webhook_delivery.sign(secret, "evt_1", int(time.time()), body))


def test_the_documented_check_accepts_only_our_signatures() -> None:
    (recipe,) = (block for block in blocks() if block.page == "docs/health.md" and "webhook-signature" in block.text)
    named: dict = {}
    exec(recipe.text, named)
    secret = webhook_delivery.make_secret()
    now = int(time.time())
    body = b'{"type":"test"}'
    for own in (secret, "my own words"):
        assert named["is_ours"](own, webhook_delivery.sign(own, "evt_1", now, body), body)
    signed = webhook_delivery.sign(secret, "evt_1", now, body)
    assert not named["is_ours"](secret, signed, body + b" ")
    assert not named["is_ours"](webhook_delivery.make_secret(), signed, body)
    assert not named["is_ours"](secret, {**signed, "webhook-id": "evt_2"}, body)
    assert not named["is_ours"](secret, webhook_delivery.sign(secret, "evt_1", now - 900, body), body)
    assert not named["is_ours"](secret, {**signed, "webhook-signature": "v1,\u00e9"}, body)
