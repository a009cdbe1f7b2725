"""A database whose writes fail on demand."""

from gateway import errors


class Fickle:
    """A Database with configurable failures: before the work, or after its commit."""

    def __init__(self, database):
        self._database = database
        self.away = False
        self.lose_answers = self.attempts = 0

    def write(self, work):
        return self._attempt(self._database.write, work)

    def write_together(self, changes):
        self._attempt(self._database.write_together, changes)

    def _attempt(self, write, work):
        self.attempts += 1
        if self.away:
            raise errors.Unavailable()
        result = write(work)
        if self.lose_answers:
            self.lose_answers -= 1
            raise errors.Unavailable()
        return result

    def __getattr__(self, name):
        return getattr(self._database, name)
