from typing import get_args

import pytest
from openai.types import VideoSize

from gateway.catalogue import loader
from gateway.surfaces.openai.videos import VIDEO_SIZES, _read_form
from gateway.surfaces.web.forms import Form


def test_each_size_of_a_model_and_of_openais_library_can_be_requested() -> None:
    mappings = [mapping for model in loader.load().models.values() for mapping in model.mappings]
    offered = {size for mapping in mappings for size in mapping.video_sizes}
    published = {"1696x960"}  # of the public API, offered by no model of the catalogue
    assert offered.union(get_args(VideoSize), published) <= set(VIDEO_SIZES)


@pytest.mark.parametrize("name", ["reference_images", "reference_videos", "reference_audios"])
def test_a_form_may_repeat_the_fields_of_references(name: str) -> None:
    urls = ["https://a.example/1", "https://a.example/2"]
    form = Form([("prompt", "A cat."), *[(f"{name}[]", url) for url in urls]])
    assert getattr(_read_form(form)[0], name) == urls
