"""What killed writers leave in a folder is removed at the next run."""

import os
import subprocess
import sys
import time

from arviz_swiss.data import temporaries

WRITING = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from arviz_swiss.parallel import store

def stall(*names):
    print("writing", flush=True)
    time.sleep(600)

os.replace = stall
store._write_whole(Path({folder!r}) / "b0.nc", b"many draws")
"""


def test_what_killed_writers_leave_is_removed_and_what_is_being_written_is_not(tmp_path):
    script = WRITING.format(path=sys.path, folder=os.fspath(tmp_path))
    (tmp_path / ".mine.tmp").touch()
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        temporaries.clean(tmp_path)
        (left,) = set(tmp_path.iterdir()) - {tmp_path / ".mine.tmp"}
        assert left.read_bytes() == b"many draws"
        process.kill()
    temporaries.clean(tmp_path)
    assert not left.exists()
    assert (tmp_path / ".mine.tmp").exists()
    elsewhere = tmp_path / f".b0.nc.other-machine.1.{32 * 'a'}.tmp"
    elsewhere.touch()
    temporaries.clean(tmp_path)
    assert elsewhere.exists()
    long_ago = time.time() - temporaries.ABANDONED_AFTER - 60
    os.utime(elsewhere, (long_ago, long_ago))
    temporaries.clean(tmp_path)
    assert not elsewhere.exists()
