"""What a worker holds in memory: slices of budgets, the purses that bundle them, and requests' reservations."""

from typing import Protocol

from gateway.errors import Unavailable
from gateway.limits.asks import Need, Payer, Shortage
from gateway.limits.leases import SPEND, Hold, Slice
from gateway.limits.models import CREDITS, team_of
from gateway.store.journal import Row

UNLIMITED = 1 << 62
# Rounds in which others used what was just taken, before a request is told to come again.
ROUNDS = 20


class HeldSlice:
    """A lease in memory. What the store counts as granted and not spent is `free + reserved`, plus what was settled
    here and is not written yet; `rest` is what the store had left for others when last asked.

    `pins` counts the takes under way that rely on it; `payers` whose purses it is in. `mark` is the journal's count
    of entries that must be written before the row may go. `version` is the control version under which its limit was
    last compared with the store's.
    """

    __slots__ = (
        *("hold", "lease", "epoch", "generation", "limit", "period", "ends", "payers", "pins", "mark"),
        *("free", "reserved", "rest", "retired", "dirty", "used_at", "version", "is_credits"),
    )

    def __init__(self, slice_: Slice, epoch: int, ends: float, now: float) -> None:
        self.hold, self.lease, self.epoch = slice_.hold, slice_.lease, epoch
        self.generation, self.limit, self.period = slice_.generation, slice_.limit_nusd, slice_.period
        self.ends = ends
        self.is_credits = slice_.hold.kind == CREDITS
        self.free = self.rest = UNLIMITED if slice_.limit_nusd is None else 0
        self.reserved = self.pins = self.mark = self.version = 0
        self.retired = self.dirty = False
        self.payers: set[Payer] = set()
        self.used_at = now

    def reserve(self, nusd: int) -> None:
        self.free -= nusd
        self.reserved += nusd

    def held(self, hold: Hold) -> Hold:
        """`hold` with what is here of it."""
        return hold._replace(lease=self.lease, generation=self.generation, free_nusd=max(0, self.free))


class Purse:
    """The slices that one payer's requests are reserved from, and under which control version they were read; `teams`
    are the ids of those whose budgets are among them; `leases` (lease, budget) of all, `own_leases` without credits."""

    __slots__ = ("slices", "version", "epoch", "ends", "teams", "leases", "own_leases")

    def __init__(self, slices: tuple[HeldSlice, ...], version: int, epoch: int) -> None:
        self.slices, self.version, self.epoch = slices, version, epoch
        self.ends = min((held.ends for held in slices), default=float("inf"))
        self.teams = tuple(team for held in slices if (team := team_of(held.hold.budget)))
        self.leases = [(held.lease, held.hold.budget) for held in slices]
        self.own_leases = [(held.lease, held.hold.budget) for held in slices if not held.is_credits]

    def covers(self, nusd: int, spare: int) -> bool:
        """Whether every slice has `nusd` free, and `spare` in sight with what the store had left."""
        for held in self.slices:  # noqa: SIM110 - a generator would cost more than all the rest
            if held.free < nusd or held.free + held.rest < spare:
                return not nusd
        return True


class Books(Protocol):
    """What a reservation needs of the worker's books."""

    def owns(self, epoch: int) -> bool: ...
    def enlarge(self, slices: tuple[HeldSlice, ...], nusd: int) -> Shortage | None: ...
    def note(self, slices: tuple[HeldSlice, ...], reserved: int, cost: int, credits: bool) -> None: ...


class Reservation:
    """What one request holds of every budget that it concerns. Every method may be called again without effect.

    `output_cap` is the output limit to send upstream, None when the budgets need none; `teams` the ids of the teams
    whose budgets pay as well.
    """

    __slots__ = ("_books", "_purse", "_slices", "amount_nusd", "output_cap", "epoch", "teams", "_open")

    def __init__(self, books: Books, purse: Purse, need: Need) -> None:
        self._books, self._purse, self._slices, self.teams = books, purse, purse.slices, purse.teams
        self.epoch = purse.epoch
        nusd, self.output_cap = need
        self.amount_nusd = nusd
        self._open = True
        for held in purse.slices:
            held.free -= nusd
            held.reserved += nusd

    def check(self) -> None:
        """Unavailable when the leases ran out; asked just before the first upstream byte."""
        if not self._books.owns(self.epoch):
            raise Unavailable("This worker lost touch with the database; try again.")

    def leases(self, credits: bool) -> list[tuple[int, str]]:
        """(lease, budget) that a cost is spent from; `credits` False leaves the organization's credits out."""
        return self._purse.leases if credits else self._purse.own_leases

    def extend(self, nusd: int) -> bool:
        """Reserve so much more; False when a budget cannot give it."""
        return self.require(nusd) is None

    def require(self, nusd: int) -> Shortage | None:
        """Like `extend`, telling which budget falls short. Unavailable when the store cannot be asked."""
        if not self._open or nusd <= 0:
            return None
        for _ in range(ROUNDS):
            if all(held.free >= nusd for held in self._slices):
                for held in self._slices:
                    held.reserve(nusd)
                self.amount_nusd += nusd
                return None
            short = self._books.enlarge(self._slices, nusd)
            if short is not None:
                return short
        raise Unavailable("Too many requests change this budget at once; try again.")

    def rows(self, cost_nusd: int, credits: bool = True) -> list[Row]:
        """Journal rows that count `cost_nusd` as spent, to be appended together with the usage row."""
        if not cost_nusd:
            return []
        return [(SPEND, (held.lease, cost_nusd)) for held in self._slices if credits or not held.is_credits]

    def spend(self, cost_nusd: int, credits: bool = True) -> None:
        """A part was spent (a failed attempt that is billed) and its rows appended; the rest stays reserved."""
        if not self._open or not cost_nusd:
            return
        part = min(cost_nusd, self.amount_nusd)
        self._books.note(self._slices, part, cost_nusd, credits)
        self.amount_nusd -= part

    def settle(self, cost_nusd: int, credits: bool = True) -> bool:
        """The rows were appended: give up the rest. True when the cost passed the reservation."""
        if not self._open:
            return False
        self._open = False
        self._books.note(self._slices, self.amount_nusd, cost_nusd, credits)
        return cost_nusd > self.amount_nusd

    def release(self) -> None:
        """Nothing (more) was spent."""
        self.settle(0)
