"""A device that is not there: the tuner's candidates compile, are right and take a known time."""

from isentrope.gpu import plan

CHIP = plan.Chip("sm90", 132, "Stand-in 90")


class StandIn:
    """Times a candidate by its rows and keys: the largest tile is the fastest, descriptors double the time, the plan's own
    takes 10 ms. The first that is fatal makes it unusable."""

    chip = CHIP

    def __init__(self, wrong=(), uncompiled=(), fatal=(), stop_after=None):
        self.wrong, self.uncompiled, self.fatal, self.stop_after = wrong, uncompiled, fatal, stop_after
        self.measured, self.lost = [], False

    def compile_all(self, items, jobs):
        for key, tiles in reversed(items):
            yield key, tiles, "does not compile: too large" if tiles in self.uncompiled else ""

    def measure(self, key, tiles):
        if len(self.measured) == self.stop_after:
            raise KeyboardInterrupt
        self.measured.append((key, tiles))
        if tiles in self.fatal:
            self.lost = True
            raise RuntimeError("an invalid address")
        if tiles in self.wrong:
            raise ValueError("wrong: result 0 is off by 2 of its largest number")
        return 10.0 if tiles == plan.unmeasured(key, CHIP) else 1e4 * (1 + tiles.descriptors) / (tiles.rows * tiles.keys)

    def require_working(self):
        if self.lost:
            raise RuntimeError("lost")
