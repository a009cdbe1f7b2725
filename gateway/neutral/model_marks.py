"""The mark of a long context at the end of a model's name, such as "[1m]": agents write it for themselves, but some of
their requests carry it. It is no part of the name."""

MARK_END = "]"
MARKS = ("[1m]", "[2m]", "[1M]", "[2M]")
MARK_LENGTH = 4


def unmarked(name: str) -> str:
    """Return a model's name without the mark, also if it was added several times."""
    if not name.endswith(MARK_END):
        return name
    end = len(name)
    # By position, because a copy for each of many marks would take quadratic time.
    while name.startswith(MARKS, end - MARK_LENGTH, end):
        end -= MARK_LENGTH
        while end and name[end - 1].isspace():
            end -= 1
    return name[:end]


def is_marked(name: str) -> bool:
    """Return whether a model's name has the mark."""
    return name.endswith(MARKS)
