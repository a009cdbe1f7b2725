"""The scene that the clients are tested against."""

from pathlib import Path
from typing import NamedTuple

from fakes.realtime import FakeRealtime
from support.gateways import GatewayProcess


class Scene(NamedTuple):
    """`secure` is the gateway's https address, by the certificate that lies at `trusted`."""

    gateway: GatewayProcess
    provider: FakeRealtime
    secure: str
    trusted: Path
