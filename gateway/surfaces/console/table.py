"""The operations of all pages."""

from gateway.surfaces.console import (
    account,
    alerts,
    authorize,
    device,
    invitation,
    keys,
    logs,
    lost_password,
    nowhere,
    sign_in,
    usage,
)
from gateway.surfaces.http import Surface
from gateway.surfaces.visitor import MANAGEMENT

SURFACE = Surface(
    "console",
    MANAGEMENT,
    (
        *account.OPERATIONS,
        *alerts.OPERATIONS,
        *authorize.OPERATIONS,
        *device.OPERATIONS,
        *invitation.OPERATIONS,
        *keys.OPERATIONS,
        *logs.OPERATIONS,
        *lost_password.OPERATIONS,
        *sign_in.OPERATIONS,
        *usage.OPERATIONS,
        *nowhere.OPERATIONS,
    ),
    described=False,
)
