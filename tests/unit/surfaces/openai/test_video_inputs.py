from typing import get_args

from openai.types import VideoSize

from gateway.catalogue import loader
from gateway.surfaces.openai.video_inputs import SIZES


def test_each_size_of_a_model_and_of_openais_library_can_be_requested() -> None:
    mappings = [mapping for model in loader.load().models.values() for mapping in model.mappings]
    offered = {size for mapping in mappings for size in mapping.video_sizes}
    assert offered.union(get_args(VideoSize)) <= set(SIZES)
