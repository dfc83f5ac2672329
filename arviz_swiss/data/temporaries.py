"""Hidden names under which files and folders are written, and what killed writers left there."""

import contextlib
import glob
import os
import platform
import re
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

# How a temporary name ends: machine and process that write it, and what it holds.
WRITER = re.compile(r"\.(?P<host>[\w-]+)\.(?P<process>\d+)\.[0-9a-f]{32}\.(?P<what>tmp|old)$")
# Seconds without a change after which nobody is writing a file any more, whoever it was.
ABANDONED_AFTER = 3600
# Of folders that another machine has begun.
FOLDER_ABANDONED_AFTER = 7 * 24 * 3600


def temporary_name(target: Path, what: str = "tmp") -> Path:
    """Return a new name beside the target: "tmp" for what is written, "old" for what it replaces.

    No reader looks at it, and it says who writes it.
    """
    return target.with_name(f".{target.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex}.{what}")


def clean(folder: Path, name: str = "") -> None:
    """Remove what writers have left behind that were killed; not what one is writing now.

    What was to be replaced gets its name back if nothing else has it. With a name, only what was
    left of that file is looked at.
    """
    for path in folder.glob(f".{glob.escape(name)}*"):
        writer = WRITER.search(path.name)
        if writer is None or (name and path.name[1 : writer.start()] != name):
            continue
        with contextlib.suppress(OSError):  # gone meanwhile
            if not _is_abandoned(path, writer["host"], int(writer["process"])):
                continue
            target = path.with_name(path.name[1 : writer.start()])
            if writer["what"] == "old" and not target.exists():
                os.replace(path, target)
            else:
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def this_process() -> list[Any]:
    """Return the machine and the number of this process, for a record."""
    return [_host(), os.getpid()]


def is_free(writer: Any) -> bool:
    """Tell whether the process of a record has ended, or is this one; False if it is not known."""
    if writer == this_process():
        return True
    is_here = isinstance(writer, list) and writer[:1] == [_host()] and os.name != "nt"
    return is_here and _has_ended(int(writer[1]))


def _is_abandoned(path: Path, host: str, process: int) -> bool:
    """Tell whether the process that was writing a file, or a folder, has ended."""
    is_here = host == _host() and os.name != "nt"  # where a signal of 0 is none
    age = time.time() - path.stat().st_mtime
    if path.is_dir():
        # a folder looks old while its files are written, and read for as long as a run takes
        if not is_here:
            return age > FOLDER_ABANDONED_AFTER
    elif age > ABANDONED_AFTER:
        return True
    return is_here and _has_ended(process)


def _has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    return False


def _host() -> str:
    """Return the name of this machine, without dots."""
    return re.sub(r"\W", "-", platform.node()) or "host"
