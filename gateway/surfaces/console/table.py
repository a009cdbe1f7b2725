"""Every page."""

from gateway.surfaces.console import account, alerts, connect, invitation, logs
from gateway.surfaces.http import Surface
from gateway.surfaces.visitor import MANAGEMENT

SURFACE = Surface(
    "console",
    MANAGEMENT,
    (*account.OPERATIONS, *alerts.OPERATIONS, *connect.OPERATIONS, *invitation.OPERATIONS, *logs.OPERATIONS),
    described=False,
)
