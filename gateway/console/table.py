"""Every page."""

from gateway.console import account, connect, invitation
from gateway.surfaces.http import Surface
from gateway.surfaces.visitor import MANAGEMENT

SURFACE = Surface(
    "console", MANAGEMENT, (*account.OPERATIONS, *connect.OPERATIONS, *invitation.OPERATIONS), described=False
)
