"""The official client of Python makes a video as its users do, and waits for it as it does: run by `make media`
alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI
from support.gateways import GatewayProcess


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("python") / "data")
    yield process.start()
    process.discard()


def test_a_video_is_made_and_waited_for(gateway: GatewayProcess, tmp_path: Path) -> None:
    client = OpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key)
    video = client.videos.create_and_poll(model="sandbox/sandbox-film", prompt="A kettle boils.")
    assert (video.status, video.progress, video.seconds, video.size) == ("completed", 100, "4", "1280x720")
    place = tmp_path / "kettle.mp4"
    client.videos.download_content(video.id).write_to_file(place)
    assert place.read_bytes()[4:8] == b"ftyp"
    with client.videos.with_streaming_response.download_content(video.id) as answer:
        assert sum(map(len, answer.iter_bytes())) == place.stat().st_size
    assert client.videos.delete(video.id).deleted


async def make(gateway: GatewayProcess) -> str:
    async with AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key) as client:
        prompt = "A kettle boils. [[sandbox: refusal]]"
        video = await client.videos.create_and_poll(model="sandbox/sandbox-film", prompt=prompt)
        assert video.error is not None
        return f"{video.status} {video.error.code}"


def test_a_video_that_fails_is_waited_for_too(gateway: GatewayProcess) -> None:
    assert asyncio.run(make(gateway)) == "failed content_filter"
