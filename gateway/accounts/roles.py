"""The roles of members."""

from typing import Literal, get_args

Role = Literal["owner", "admin", "developer"]
ROLES: tuple[Role, ...] = get_args(Role)
MANAGERS: tuple[Role, ...] = ("owner", "admin")
# A higher role changes what people of a lower one set; of several roles the highest counts.
RANKS: dict[str, int] = {"developer": 0, "admin": 1, "owner": 2}
