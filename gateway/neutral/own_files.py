"""Ids of the gateway's own files, which requests name instead of content."""

import re

from gateway.errors import InvalidRequest

FILE_PREFIX = "file"
is_own_file = re.compile(f"{FILE_PREFIX}_[0-9a-f]{{32}}").fullmatch
NOT_HERE = "The id of a file cannot be used here: send the content of the file."


class OwnFileNamed(InvalidRequest):
    """A request names a file of the gateway. Its content replaces the id before the request is read again."""

    code = "file_not_usable"


def check_foreign(ident: str) -> None:
    """Raise OwnFileNamed for the id of a file of the gateway: providers know only their own files."""
    if is_own_file(ident):
        raise OwnFileNamed(NOT_HERE)
