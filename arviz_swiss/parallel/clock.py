"""How long the stages of a run take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by stage, on the wall and of the processor; a stage may be entered several times."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time inside this context to a stage."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall[stage] = self.wall.get(stage, 0.0) + time.perf_counter() - wall
            self.cpu[stage] = self.cpu.get(stage, 0.0) + time.process_time() - cpu
