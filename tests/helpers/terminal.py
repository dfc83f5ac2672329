"""A real terminal for standard error, and what was seen in it."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading

ROWS, COLUMNS = 40, 100


class Screen:
    """What a terminal has got so far."""

    def __init__(self):
        self.parts = []

    @property
    def text(self):
        """All of it, with carriage returns."""
        return b"".join(self.parts).decode()

    @property
    def shown(self):
        """Every line that was ever seen, also those that others were written over."""
        return [line.strip() for line in re.split(r"[\r\n]+", self.text) if line.strip()]

    @property
    def left(self):
        """The lines that are to be seen in the end."""
        lines = []
        for line in self.text.replace("\r\n", "\n").split("\n"):
            seen = ""
            for part in line.split("\r"):
                seen = part + seen[len(part) :]
            lines.append(seen.rstrip())
        return [line for line in lines if line]


@contextlib.contextmanager
def opened():
    """Give the writing end of a terminal, and its screen, which has all of it at the end."""
    screen = Screen()
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read():
        with contextlib.suppress(OSError):  # Linux says so when nobody writes any more
            while part := os.read(leader, 2**16):
                screen.parts.append(part)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield follower, screen
    finally:
        os.close(follower)
        reading.join()
        os.close(leader)


@contextlib.contextmanager
def watching(monkeypatch):
    """Make standard error a terminal, and give its screen, which has all of it at the end."""
    with opened() as (follower, screen), monkeypatch.context() as patched:
        with open(os.dup(follower), "w") as stream:
            patched.setattr(sys, "stderr", stream)
            yield screen
