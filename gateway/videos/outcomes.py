"""What became of a job: what it cost, or why there is no video."""

from msgspec import Struct, json

from gateway.catalogue.prices import Charge


class JobOutcome(Struct, frozen=True):
    """`cost_nusd` is the sum of all that was charged; `code` "" where the job went well."""

    cost_nusd: int = 0
    video_nusd: int = 0
    image_nusd: int = 0
    code: str = ""
    message: str = ""


DECODER = json.Decoder(JobOutcome)


def priced(charge: Charge) -> JobOutcome:
    return JobOutcome(charge.total, charge.video_output + charge.output, charge.image_input)
