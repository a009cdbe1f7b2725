"""The outcome of a job: its cost, or why there is no video."""

from msgspec import Struct, json

from gateway.catalogue.prices import Charge


class JobOutcome(Struct, frozen=True):
    """Cost and error of a job. `cost_nusd` is the total charge; `code` is "" on success."""

    cost_nusd: int = 0
    video_nusd: int = 0
    image_nusd: int = 0
    code: str = ""
    message: str = ""


DECODER = json.Decoder(JobOutcome)


def priced(charge: Charge) -> JobOutcome:
    return JobOutcome(charge.total, charge.video_output + charge.output, charge.image_input)
