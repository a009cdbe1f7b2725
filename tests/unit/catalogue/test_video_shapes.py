"""Video requests resolve to a mapping's options, and no finished video costs more than was reserved."""

import pytest

from gateway.catalogue.entries import Mapping
from gateway.catalogue.field_checks import read_prices
from gateway.catalogue.prices import cost_of
from gateway.catalogue.video_shapes import fit, max_cost, max_usage
from gateway.errors import NotSupported
from gateway.neutral.images import Picture
from gateway.neutral.usage import Usage
from gateway.neutral.videos import VideosInput, VideoStatus, finished_usage
from gateway.runtime.large_files import StoredFile

NOON = 1_780_000_000_000_000
PICTURE = Picture(StoredFile.of(b"\x89PNG\r\n\x1a\n"), "image/png")
VEO = {
    "video_sizes": ("1280x720", "1920x1080", "720x1280"),
    "video_durations": (4, 6, 8),
    "video_audio": True,
    "video_without_audio": True,
    "vision": True,
}


def mapping_of(prices: dict | None = None, **fields: object) -> Mapping:
    return Mapping("acme", "film", "film-1", prices=read_prices(prices or {}), **fields)


def test_unset_video_options_are_chosen_from_those_of_the_mapping():
    made = fit(VideosInput("a cat"), mapping_of(**VEO))
    assert (made.seconds, made.size, made.audio, made.price_key) == (4, "1280x720", True, "720p_audio")
    silent = mapping_of(video_sizes=("1366x768",), video_durations=(6, 10), video_without_audio=True)
    assert fit(VideosInput("a cat"), silent).price_key == "768p_video"
    assert fit(VideosInput("a cat"), silent).seconds == 6


def test_a_mapping_without_listed_values_accepts_any_request():
    made = fit(VideosInput("a cat", 7, "3840x2160", False), mapping_of())
    assert (made.seconds, made.price_key) == (7, "4k_video")


@pytest.mark.parametrize(
    ("wish", "param", "code"),
    [
        ({"seconds": 5}, "seconds", "unsupported_seconds"),
        ({"size": "848x480"}, "size", "unsupported_size"),
        ({"first_frame": PICTURE, "last_frame": PICTURE}, "last_frame", "unsupported_input"),
        ({"reference_images": (PICTURE, PICTURE)}, "reference_images", "unsupported_input"),
        ({"reference_videos": ("https://a.example/b.mp4",)}, "reference_videos", "unsupported_input"),
    ],
)
def test_videos_that_a_mapping_does_not_support_are_refused_by_name(wish, param, code):
    mapping = mapping_of(**VEO, extra={"reference_images": 1})
    with pytest.raises(NotSupported) as refused:
        fit(VideosInput("a cat", **wish), mapping)
    assert (refused.value.param, refused.value.code) == (param, code)
    assert "acme/film" in refused.value.message


def test_sound_images_and_prompts_alone_are_refused_where_the_mapping_lacks_them():
    with pytest.raises(NotSupported) as refused:
        fit(VideosInput("a cat", audio=True), mapping_of(video_without_audio=True))
    assert refused.value.code == "unsupported_audio"
    with pytest.raises(NotSupported):
        fit(VideosInput("a cat", audio=False), mapping_of(video_audio=True))
    with pytest.raises(NotSupported):
        fit(VideosInput("a cat", first_frame=PICTURE), mapping_of())
    with pytest.raises(NotSupported):
        fit(VideosInput("a cat"), mapping_of(vision=True, extra={"needs_image": True}))


@pytest.mark.parametrize(
    ("table", "nusd"),
    [
        ({"720p_audio": "0.4", "720p": "0.3", "default": "0.9"}, 1_600_000_000),
        ({"720p": "0.3", "default_audio": "0.9"}, 1_200_000_000),
        ({"default_audio": "0.2", "default": "0.9"}, 800_000_000),
        ({"default": "0.1", "1080p": "0.9"}, 400_000_000),
        ({"1080p": "0.9", "480p": "0.1"}, 3_600_000_000),
    ],
)
def test_the_price_of_a_second_is_that_of_the_first_key_that_is_listed(table, nusd):
    mapping = mapping_of({"per_second": table}, **VEO)
    wanted = VideosInput("a cat")
    reserved = max_usage(wanted, mapping)
    cost = cost_of(finished_usage(reserved, VideoStatus("completed")), mapping, NOON)
    assert cost.video_output == cost.total == nusd
    assert 0 <= max_cost(wanted, mapping, NOON) - nusd <= 32


@pytest.mark.parametrize("status", [VideoStatus("completed", video_ms=0), VideoStatus("completed", tokens=0)])
def test_a_video_whose_provider_counted_zero_costs_what_was_ordered(status):
    mapping = mapping_of({"per_second": {"default": "0.1"}}, **VEO)
    wanted = VideosInput("a cat")
    cost = cost_of(finished_usage(max_usage(wanted, mapping), status), mapping, NOON)
    assert cost.total == 400_000_000


def test_a_video_of_references_may_have_one_length_alone():
    mapping = mapping_of(**VEO, extra={"reference_images": 3, "reference_seconds": 8})
    assert fit(VideosInput("a cat", reference_images=(PICTURE,)), mapping).seconds == 8
    assert fit(VideosInput("a cat"), mapping).seconds == 4
    with pytest.raises(NotSupported):
        fit(VideosInput("a cat", 4, reference_images=(PICTURE,)), mapping)


@pytest.mark.parametrize("name", ["reference_images", "reference_videos", "reference_audios"])
def test_no_more_references_than_the_mapping_accepts(name):
    two = VideosInput("a cat", **{name: (PICTURE, PICTURE) if name == "reference_images" else ("https://a.org/b",) * 2})
    fit(two, mapping_of(**VEO, extra={name: 2}))
    for maximum in (0, 1):
        with pytest.raises(NotSupported) as caught:
            fit(two, mapping_of(**VEO, extra={name: maximum}))
        assert caught.value.param == name


@pytest.mark.parametrize(
    ("size", "name"), [("854x480", "480p"), ("1920x1080", "1080p"), ("2560x1440", "2k"), ("2160x3840", "4k")]
)
def test_a_resolution_is_named_by_its_shorter_edge(size, name):
    assert fit(VideosInput("a cat", size=size), mapping_of()).resolution == name


def test_images_that_are_read_are_billed_each():
    mapping = mapping_of({"per_second": {"default": "0.05"}, "image": "0.002"}, **VEO, extra={"last_frame": True})
    wanted = VideosInput("a cat", first_frame=PICTURE, last_frame=PICTURE)
    cost = cost_of(finished_usage(max_usage(wanted, mapping), VideoStatus("completed")), mapping, NOON)
    assert (cost.video_output, cost.image_input, cost.total) == (200_000_000, 4_000_000, 204_000_000)
    assert cost.total <= max_cost(wanted, mapping, NOON) <= cost.total + 32


def test_a_provider_that_counts_tokens_is_paid_by_them_and_never_more_than_was_reserved():
    prices = {"per_video_token": {"default_audio": "0.0000024", "default_video": "0.0000012"}}
    mapping, wanted = mapping_of(prices, **VEO), VideosInput("a cat")
    reserved = max_usage(wanted, mapping)
    told = finished_usage(reserved, VideoStatus("completed", tokens=86_400))
    cost = cost_of(told, mapping, NOON)
    assert cost.video_output == cost.total == 207_360_000
    assert told.basis == "provider"
    maximum = max_cost(wanted, mapping, NOON)
    assert cost.total < maximum < cost.total * 12 // 10
    much = cost_of(finished_usage(reserved, VideoStatus("completed", tokens=10**9)), mapping, NOON)
    assert much.total <= maximum
    untold = finished_usage(reserved, VideoStatus("completed"))
    assert untold.basis == "estimated"
    assert cost_of(untold, mapping, NOON).total <= maximum


def test_a_shorter_video_costs_less_and_a_longer_one_no_more():
    mapping = mapping_of({"per_second": {"default": "0.1"}})
    reserved = max_usage(VideosInput("a cat", 6), mapping)
    assert reserved == Usage(video_ms=6000, price_key="720p_audio")
    made = {ms: finished_usage(reserved, VideoStatus("completed", video_ms=ms)).video_ms for ms in (0, 5100, 6042)}
    assert made == {0: 6000, 5100: 5100, 6042: 6000}
