"""What providers have of a response or a file belongs to the installation: two nodes, of which one is killed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.background_responses import FakeBackgroundResponses
from fakes.file_services import OpenAIFiles
from fakes.responses import Answer, said
from openai import OpenAI
from support import postgres
from support.fleet import open_nodes
from support.gateways import GatewayProcess
from support.spending import query, reserved_nusd, until

from gateway.runtime.threads import Job, pause

pytestmark = pytest.mark.extended

MODEL = "openai/gpt-5-mini"
READER = "openai/gpt-4o-mini"  # reads documents
TEXT = "One two three four five six seven eight nine ten eleven twelve."
LARGE = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n" + bytes(30 << 20)


class FakeProvider(OpenAIFiles, FakeBackgroundResponses):
    """api.openai.com with files and responses in the background."""


@pytest.fixture
def upstream() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture
def nodes(
    postgres_databases: postgres.Databases, tmp_path: Path, upstream: FakeProvider
) -> Iterator[list[GatewayProcess]]:
    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "true",
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "100",
        "GATEWAY_FILES_FOLDER": str(tmp_path / "files"),
    }
    with open_nodes(postgres_databases, tmp_path, 2, 1, **environment) as nodes:
        yield nodes


def client_of(nodes: list[GatewayProcess], number: int) -> OpenAI:
    return OpenAI(base_url=nodes[number].url, api_key=nodes[0].key, max_retries=0, timeout=60)


def test_a_response_continues_at_the_other_node_after_a_kill(
    nodes: list[GatewayProcess], upstream: FakeProvider
) -> None:
    first, second = (client_of(nodes, number) for number in range(2))
    upstream.script(Answer(said(TEXT), prompt=100, completion=40, gap_s=0.3, piece=4))
    begun = first.responses.create(model=MODEL, input="Count!", background=True)
    seen: list[Any] = []
    with second.responses.retrieve(begun.id, stream=True) as events:
        for event in events:
            seen.append(event)
            if len(seen) > 5:
                break
    nodes[0].kill()
    seen += list(second.responses.retrieve(begun.id, stream=True, starting_after=seen[-1].sequence_number))
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert text == TEXT == second.responses.retrieve(begun.id).output_text and seen[-1].type == "response.completed"
    assert [event.to_dict() for event in second.responses.retrieve(begun.id, stream=True)] == [
        event.to_dict() for event in seen
    ]
    assert len(upstream.calls) == 1 and until(lambda: len(upstream.deleted) == 1)
    nodes[0].start()  # its own recovery bills nothing either
    assert until(lambda: reserved_nusd(nodes[1]) == 0)
    rows = query(nodes[1], "SELECT input, output, finish FROM usage")
    assert rows == [(100, 40, "stop")]


def test_two_nodes_upload_a_file_once_and_a_killed_upload_is_begun_again(
    nodes: list[GatewayProcess], upstream: FakeProvider
) -> None:
    clients = [client_of(nodes, number) for number in range(2)]
    files = [
        clients[0].files.create(file=(f"{number}.pdf", LARGE, "application/pdf"), purpose="user_data").id
        for number in range(2)
    ]
    upstream.desk.slow_s = 1.0
    jobs = [Job(ask, clients[number % 2], files[0]) for number in range(4)]
    assert [job.result(60) for job in jobs] == ["Hello."] * 4 and upstream.desk.uploads == 1
    upstream.desk.slow_s = 3.0
    lost = Job(outcome, clients[0], files[1])
    while upstream.desk.uploads < 2:
        pause(0.05)
    nodes[0].kill()
    assert isinstance(lost.result(60), Exception)
    upstream.desk.slow_s = 0.0
    begun = time.monotonic()
    assert ask(clients[1], files[1]) == "Hello." and time.monotonic() - begun < 90
    assert upstream.desk.uploads == 3
    for file in files:
        clients[1].files.delete(file)
    assert until(lambda: len(upstream.desk.deleted) == 2)
    assert query(nodes[1], "SELECT COUNT(*) FROM provider_file") == [(0,)]


def ask(client: OpenAI, file: str) -> str:
    part: Any = {"type": "input_file", "file_id": file}
    return (
        client.with_options(timeout=120)
        .responses.create(
            model=READER, input=[{"role": "user", "content": [part, {"type": "input_text", "text": "What is this?"}]}]
        )
        .output_text
    )


def outcome(client: OpenAI, file: str) -> Any:
    try:
        return ask(client, file)
    except Exception as error:
        return error
