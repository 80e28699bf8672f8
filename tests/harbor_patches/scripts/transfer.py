"""Runs in the harness environment: unpacks argv[1] below argv[2], and says what was left out and what is there."""

import json
import sys
from pathlib import Path

from seatrial_harness import transfer

target = Path(sys.argv[2])
try:
    left_out = transfer.unpack_folder(Path(sys.argv[1]), target)
except Exception as error:
    left_out = [type(error).__name__]
there = {
    str(p.relative_to(target)): [oct(p.lstat().st_mode), p.read_text() if p.is_file() and not p.is_symlink() else None]
    for p in sorted(target.rglob("*"))
}
sys.stdout.write(json.dumps({"left_out": left_out, "there": there}))
