"""Every page."""

from gateway.surfaces.console import account, alerts, authorize, connect, invitation, logs
from gateway.surfaces.http import Surface
from gateway.surfaces.visitor import MANAGEMENT

SURFACE = Surface(
    "console",
    MANAGEMENT,
    (
        *account.OPERATIONS,
        *alerts.OPERATIONS,
        *authorize.OPERATIONS,
        *connect.OPERATIONS,
        *invitation.OPERATIONS,
        *logs.OPERATIONS,
    ),
    described=False,
)
