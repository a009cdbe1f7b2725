"""The turns of a session in branches: that of its main agent, and those of sub-agents and side calls.

Usage rows do not say which agent made a request. A branch is found by its prompts: those of one agent grow from turn to
turn, while a sub-agent begins with another, small prompt, and the main agent continues later where it was.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from gateway.clock import HOUR_US
from gateway.metering.log.records import LoggedRequest
from gateway.metering.route_usage import SEEN
from gateway.routes.turns import FIRST_MESSAGES, TURNS, TurnTable
from gateway.surfaces.console.shown_conversation import load_request
from gateway.surfaces.console.shown_parts import as_dict, as_list, as_text, read_message, read_parts
from gateway.telemetry.cache_watch import CACHE_LIFETIME_US, MODEL, PAUSES, PREFIX, PROVIDER, REMEDIES

# A turn lost the cache when it read less than half of what the turn before read, and that was worth caching.
KEPT_SHARE = 0.5
WORTH_CACHING = 1_024
SHORTENED = "a shortened conversation"
MAX_GROWTH, FREE_GROWTH = 3, 8_000  # a turn's prompt is at most so many times, and tokens, longer than the one before
SLIGHTLY_SHORTER = 0.95
LIKE_ANOTHER = (0.6, 1.6)  # sizes of one prompt as the tokenizers of two models count it
SHORTER = 0.6
MAX_BRANCHES = 12  # further branches are drawn as one
MAX_NAME = 90  # characters of a branch
MAIN, SUB, SIDE = "main", "sub", "side"
SIDE_TURNS = ("title", "summary", "probe")
CAUSES = {
    **REMEDIES,
    SHORTENED: "the agent replaced earlier messages by a summary; the new prompt is cached from now on",
}


class ShownTurn(Struct):
    """A request of a session. `lost` is how many tokens the turn before of its branch read from the prompt cache, if
    this one did not, with the likely `cause`."""

    request: LoggedRequest
    fresh: int
    cached: int
    written: int
    output: int
    cost_nusd: int
    lost: int = 0
    cause: str = ""
    branch: int = 0

    @property
    def size(self) -> int:
        return self.fresh + self.cached + self.written

    @property
    def begins_us(self) -> int:
        return self.request.at_us

    @property
    def ends_us(self) -> int:
        return self.request.at_us + self.request.duration_ms * 1_000

    @property
    def place(self) -> tuple[str, str]:
        """Provider and model that answered."""
        last = self.request.last
        return (last.provider, last.served) if last else ("", "")

    @property
    def seen(self) -> Sequence[str]:
        """The kind of the turn and its agent, as a route saw them."""
        last = self.request.last
        return as_list(last.details.get(SEEN)) if last else ()


class Branch(Struct):
    """The turns of one agent. `kind` is main, sub or side; `is_known`: a route or the payload says it."""

    turns: list[ShownTurn] = field(default_factory=list)
    kind: str = SUB
    is_known: bool = False
    name: str = ""

    @property
    def last(self) -> ShownTurn:
        """The latest turn with a prompt, by which the next one is recognised."""
        return next((turn for turn in reversed(self.turns) if turn.size), self.turns[-1])


def read_turns(requests: Iterable[LoggedRequest]) -> list[ShownTurn]:
    """Return the turns of requests, in their order."""
    turns = []
    for request in requests:
        attempts = request.attempts
        turns.append(
            ShownTurn(
                request,
                sum(one.input for one in attempts),
                sum(one.cache_read for one in attempts),
                sum(one.cache_write for one in attempts),
                sum(one.output for one in attempts),
                sum(one.cost_nusd for one in attempts),
            )
        )
    return turns


def find_branches(turns: Sequence[ShownTurn]) -> list[Branch]:
    """Return the branches of turns, oldest first; the main agent's is the first. Each turn gets its branch and what it
    lost of the cache."""
    branches: list[Branch] = []
    for turn in turns:
        branch = _choose(branches, turn)
        if branch is None:
            branch = Branch()
            branches.append(branch)
        branch.turns.append(turn)
    for branch in branches:
        _classify(branch)
    branches = _join_main(branches)
    for number, branch in enumerate(branches):
        for turn in branch.turns:
            turn.branch = number
        find_losses(branch.turns)
    return branches


def find_losses(turns: Sequence[ShownTurn]) -> None:
    """Note at each turn of a branch whether it lost the cache, and the likely cause."""
    before: ShownTurn | None = None
    for turn in turns:
        if not turn.size:
            continue
        if before is not None and before.cached >= WORTH_CACHING and turn.cached < before.cached * KEPT_SHARE:
            turn.lost = before.cached
            turn.cause = cause_of(before, turn)
        before = turn


def cause_of(before: ShownTurn, turn: ShownTurn) -> str:
    """Return the likely reason why a turn did not read the cache that the turn before read."""
    if turn.place[0] != before.place[0]:
        return PROVIDER
    if turn.place[1] != before.place[1]:
        return MODEL
    last = before.request.last
    hours = bool(last and as_dict(last.details.get("units")).get("cache_write_1h"))
    if turn.begins_us - before.ends_us >= (HOUR_US if hours else CACHE_LIFETIME_US):
        return PAUSES
    return SHORTENED if turn.size < before.size * SHORTER else PREFIX


def _choose(branches: Sequence[Branch], turn: ShownTurn) -> Branch | None:
    """Return the branch that a turn continues: of those that are not at work, the one with the most similar prompt."""
    free = [branch for branch in branches if branch.last.ends_us <= turn.begins_us + 1_000]
    if not turn.size:
        return free[-1] if free else None
    fitting = [branch for branch in free if _continues(branch.last, turn)]
    return min(fitting, key=lambda branch: _distance(branch.last, turn), default=None)


def _distance(before: ShownTurn, turn: ShownTurn) -> tuple[bool, int]:
    return before.place[1] != turn.place[1], abs(turn.size - before.size - before.output)


def _continues(before: ShownTurn, turn: ShownTurn) -> bool:
    if not before.size:
        return True
    if _is_side(before) != _is_side(turn) or _is_sub(before) != _is_sub(turn):
        return False
    if max(before.size, turn.size) < WORTH_CACHING:
        return True
    if before.place[1] != turn.place[1]:
        least, most = LIKE_ANOTHER
        return least * before.size <= turn.size <= most * before.size
    return before.size * SLIGHTLY_SHORTER <= turn.size <= before.size * MAX_GROWTH + FREE_GROWTH


def _is_side(turn: ShownTurn) -> bool:
    return bool(turn.seen) and turn.seen[0] in SIDE_TURNS


def _is_sub(turn: ShownTurn) -> bool:
    return len(turn.seen) > 1 and turn.seen[1] == SUB


def _classify(branch: Branch) -> None:
    first = branch.turns[0]
    if _is_side(first):
        branch.kind, branch.is_known = SIDE, True
    elif _is_sub(first):
        branch.kind, branch.is_known = SUB, True


def _join_main(branches: list[Branch]) -> list[Branch]:
    """Return the branches with that of the main agent first. A branch that begins after the main agent's last turn
    continues it: the agent shortened its conversation."""
    unknown = [branch for branch in branches if not branch.is_known]
    if not unknown:
        return branches
    main = max(unknown, key=lambda branch: (sum(turn.size for turn in branch.turns), -branch.turns[0].begins_us))
    main.kind, main.is_known = MAIN, True
    for branch in unknown:
        if branch is main or branch.is_known:
            continue
        after = branch.turns[0].begins_us >= main.turns[-1].ends_us
        before = branch.turns[-1].ends_us <= main.turns[0].begins_us
        if (after or before) and len(branch.turns) > 1:
            main.turns = sorted([*main.turns, *branch.turns], key=lambda turn: turn.begins_us)
            branch.turns = []
    return [main, *(branch for branch in branches if branch is not main and branch.turns)]


# Names of branches, from the payloads of their first requests.


def describe_branch(branch: Branch, sent: bytes, table: TurnTable = TURNS) -> None:
    """Set the name of a branch to the task with which its agent began, and its kind where the prompt shows it."""
    body = as_dict(load_request(sent)[0])
    items = [item for name in ("messages", "input", "contents") for item in as_list(body.get(name))[:FIRST_MESSAGES]]
    messages = [read_message(as_dict(item)) for item in items]
    said = [part for message in messages if message.role == "user" for part in message.parts]
    texts = [part.text for part in said if part.kind == "text"]
    if isinstance(body.get("input"), str):
        texts.append(body["input"])
    own = [text for text in texts if not text[:40].lstrip().lower().startswith(table.added)]
    branch.name = " ".join((own or [""])[0][: 4 * MAX_NAME].split())[:MAX_NAME]
    if branch.kind == MAIN:
        return
    system = _system_of(body, messages)
    if table.is_of_sub_agent(system):
        branch.kind, branch.is_known = SUB, True
    elif any(cue in system for _, cues, _, _ in table.sides for cue in cues):
        branch.kind, branch.is_known = SIDE, True


def _system_of(body: dict[str, Any], messages: Sequence[Any]) -> str:
    parts = [part for name in ("system", "instructions") for part in read_parts(body.get(name))]
    for message in messages:
        if message.role in ("system", "developer"):
            parts += message.parts
    return "\n".join(as_text(part.text)[:1_600] for part in parts[:4]).lower()


# The timeline: bars of turns in the lanes of their branches. Pauses are shortened, because a session may last for days.

WIDTH = 1000  # units of the drawing, which is stretched to the page
MAX_PAUSE_US = 30_000_000
LEAST_WIDTH = 3.0


class TurnBar(Struct, frozen=True):
    number: int
    turn: ShownTurn
    x: float
    width: float


class Lane(Struct, frozen=True):
    """The turns of a branch on the common scale."""

    branch: Branch
    bars: list[TurnBar]
    cost_nusd: int


def draw_lanes(turns: Sequence[ShownTurn], branches: Sequence[Branch]) -> list[Lane]:
    """Return a lane for each branch. Time without any turn counts for at most MAX_PAUSE_US."""
    places = _place(turns)
    total = (
        max((place + turn.ends_us - turn.begins_us for turn, place in zip(turns, places, strict=True)), default=0) or 1
    )
    bars: dict[int, list[TurnBar]] = {}
    for number, (turn, place) in enumerate(zip(turns, places, strict=True), 1):
        x = min(place / total * WIDTH, WIDTH - LEAST_WIDTH)
        width = max(LEAST_WIDTH, (turn.ends_us - turn.begins_us) / total * WIDTH)
        bars.setdefault(turn.branch, []).append(TurnBar(number, turn, round(x, 2), round(width, 2)))
    costs = [sum(turn.cost_nusd for turn in branch.turns) for branch in branches]
    return [Lane(branch, bars.get(number, []), costs[number]) for number, branch in enumerate(branches)]


def _place(turns: Sequence[ShownTurn]) -> list[int]:
    """Return where each turn begins on a scale that counts pauses for at most MAX_PAUSE_US."""
    places = []
    begun = reached = turns[0].begins_us if turns else 0
    shown = 0  # where the busy time since `begun` begins
    for turn in turns:
        if turn.begins_us > reached:
            shown += reached - begun + min(turn.begins_us - reached, MAX_PAUSE_US)
            begun = reached = turn.begins_us
        places.append(shown + turn.begins_us - begun)
        reached = max(reached, turn.ends_us)
    return places
