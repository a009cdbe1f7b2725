"""The surface of the console: the operations of all its pages."""

from gateway.surfaces.console import (
    account,
    alert_pages,
    authorize,
    device,
    invitation,
    key_pages,
    log_pages,
    lost_password,
    not_found,
    sign_in_pages,
    usage_pages,
)
from gateway.surfaces.http import Surface
from gateway.surfaces.visitor import MANAGEMENT

SURFACE = Surface(
    "console",
    MANAGEMENT,
    (
        *account.OPERATIONS,
        *alert_pages.OPERATIONS,
        *authorize.OPERATIONS,
        *device.OPERATIONS,
        *invitation.OPERATIONS,
        *key_pages.OPERATIONS,
        *log_pages.OPERATIONS,
        *lost_password.OPERATIONS,
        *sign_in_pages.OPERATIONS,
        *usage_pages.OPERATIONS,
        *not_found.OPERATIONS,
    ),
    described=False,
)
