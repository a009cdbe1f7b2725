"""Media without a known size are refused if the budget cannot cover them, and files that only the provider can read
are admitted one at a time; with two workers on either store."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess
from support.pdfs import packed
from support.spending import SECRETS, at_once, query, reserved_nusd, until, write_mint

STORES = ("sqlite", "postgresql")
PDF = packed(1000, decoy=b"% /Type /Page \n")
PDF_URL = "data:application/pdf;base64," + b64encode(PDF).decode()
# 8 kbit/s at 8 kHz: 72 bytes are 72 ms. The first frame declares 14 frames, which is one second.
FRAME = b"\xff\xe3\x18\xc4" + bytes(68)
HOUR_OF_SOUND = FRAME[:13] + b"Xing\0\0\0\3\0\0\0\x0e\0\0\x03\xf0" + FRAME[29:] + FRAME * 49_999
PART = {
    "/v1/chat/completions": {"type": "file", "file": {"file_data": PDF_URL, "filename": "a.txt"}},
    "/v1/messages": {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}},
    "/v1/responses": {"type": "input_file", "file_data": PDF_URL, "filename": "a.pdf"},
    "/v4/ai/language-model": {"type": "file", "mediaType": "application/pdf", "data": PDF_URL},
}
PART["/v1/messages"]["source"]["data"] = b64encode(PDF).decode()
BOOK = "mint/book"
READ_NUSD = 700_000 * 2_000  # what a file that was not seen costs
LIMIT_NUSD = 100_000_000
AT_ONCE = 40


@pytest.fixture
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(params=STORES)
def gateway(request: pytest.FixtureRequest, tmp_path: Path, mint: FakeUpstream) -> Iterator[GatewayProcess]:
    environment = write_mint(tmp_path / "catalogue", mint.url)
    environment["GATEWAY_ROUTING_PROVIDER_OBJECTS"] = "true"  # its prompts name files of the provider's account
    if request.param == "postgresql":
        environment |= SECRETS | {"DATABASE_URL": request.getfixturevalue("postgresql_url")}
    with_workers = GatewayProcess(tmp_path / "node", 2, **environment).start()
    yield with_workers
    with_workers.discard()


def make_key(gateway: GatewayProcess, *owner: str) -> tuple[str, str]:
    """Id and token of a new key."""
    output = gateway.manage("keys", "create", "--description", "limited", *owner)
    return re.search(r"key_[0-9a-f]{32}", output)[0], re.search(r"llmgtwy_[\w-]{40}", output)[0]


def post(
    gateway: GatewayProcess, path: str, key: str, body: dict[str, Any] | None = None, **more: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", "ai-language-model-id": BOOK}
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, headers=headers, json=body, **more)


def body_with(path: str, part: dict[str, Any]) -> dict[str, Any]:
    said = [{"role": "user", "content": [part]}]
    if path == "/v4/ai/language-model":
        return {"prompt": said, "maxOutputTokens": 10}
    if path == "/v1/responses":
        return {"model": BOOK, "input": said, "max_output_tokens": 10}
    return {"model": BOOK, "messages": said, "max_tokens": 10}


def test_media_that_hide_their_size_are_refused_by_a_key_that_cannot_pay(
    gateway: GatewayProcess, mint: FakeUpstream
) -> None:
    """A key of $0.05 spent $40 on a PDF for OCR, $13 on audio with a header of one second, and $1.40 on a PDF that was
    reserved as $0.03."""
    key_id, key = make_key(gateway)
    gateway.manage("limits", "set", key_id, "--total", "0.05")
    document = {"type": "document_url", "document_url": PDF_URL}
    answers = [post(gateway, "/v1/ocr", key, {"model": "mint/scale", "document": document})]
    answers += [post(gateway, path, key, body_with(path, part)) for path, part in PART.items()]
    gateway.manage("limits", "set", key_id, "--total", "5")
    files = {"file": ("a.mp3", HOUR_OF_SOUND)}
    answers += [
        post(gateway, f"/v1/audio/{kind}", key, data={"model": "mint/ear"}, files=files)
        for kind in ("transcriptions", "translations")
    ]
    assert [answer.status_code for answer in answers] == [402] * len(answers), [answer.text for answer in answers]
    assert mint.calls == []


def limited_by_key(gateway: GatewayProcess) -> str:
    key_id, key = make_key(gateway)
    gateway.manage("limits", "set", key_id, "--total", "0.10")
    return key


def limited_by_member(gateway: GatewayProcess, team: bool = False) -> str:
    organization = gateway.manage("organizations", "list").splitlines()[1].split()[0]
    name = "of-a-team" if team else "alone"
    member = gateway.manage("members", "add", organization, f"{name}@example.com").strip()
    limited = member
    if team:
        limited = gateway.manage("teams", "create", organization, "Research").strip()
        gateway.manage("teams", "add", limited, member)
    gateway.manage("limits", "set", limited, "--total", "0.10")
    return make_key(gateway, "--member", member)[1]


def limited_by_team(gateway: GatewayProcess) -> str:
    return limited_by_member(gateway, team=True)


def limited_by_credits(gateway: GatewayProcess) -> str:
    left = float(gateway.manage("credits", "balance").splitlines()[1].split()[1])
    gateway.manage("credits", "adjust", "--note", "nearly used up", "--", f"{0.10 - left:.9f}")
    return make_key(gateway)[1]


UNSEEN: tuple[dict[str, Any], ...] = ({"file_id": "file-1"}, {"file_data": "https://files.example.com/book.pdf"})


def ask_about_unseen(gateway: GatewayProcess, key: str, number: int) -> httpx.Response:
    body = body_with("/v1/chat/completions", {"type": "file", "file": UNSEEN[number % 2]})
    text = {"type": "text", "text": f"mark:{number} wait:0.5 read:700000"}
    body["messages"][0]["content"].append(text)
    return post(gateway, "/v1/chat/completions", key, body)


@pytest.mark.extended
@pytest.mark.parametrize("limit", [limited_by_key, limited_by_member, limited_by_team, limited_by_credits])
def test_parallel_requests_with_unseen_files_pass_a_limit_by_the_cost_of_one(
    gateway: GatewayProcess, mint: FakeUpstream, limit: Callable[[GatewayProcess], str]
) -> None:
    key = limit(gateway)
    found = at_once(AT_ONCE, lambda number: ask_about_unseen(gateway, key, number).status_code)
    assert set(found) <= {200, 402, 429} and found.count(200) == len(mint.calls) == 1
    assert until(lambda: reserved_nusd(gateway) == 0)
    spent = query(gateway, "SELECT SUM(cost_nusd) FROM usage")[0][0]
    assert LIMIT_NUSD < READ_NUSD <= spent <= LIMIT_NUSD + READ_NUSD
    assert ask_about_unseen(gateway, key, AT_ONCE).status_code == 402 and len(mint.calls) == 1
    assert "The books agree." in gateway.manage("doctor")
