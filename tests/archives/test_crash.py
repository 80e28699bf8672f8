"""A full disk or a kill in the middle of unpacking: the destination is whole or not there."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.archives.folder import folder_listing
from app.archives.read import extract
from tests.archives import samples

ROOT = Path(__file__).parents[2]

FULL = """
import errno, pathlib, resource, sys
from app.archives.read import extract
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    extract(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
except OSError as error:
    print(errno.errorcode[error.errno])
"""

UNPACK = "import pathlib, sys\nfrom app.archives.read import extract\nextract(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))"


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path: Path) -> None:
    path = samples.written(tmp_path, samples.tar([*samples.pack_items(), samples.file("large", os.urandom(200_000))]))
    result = subprocess.run(
        [sys.executable, "-c", FULL, path, tmp_path / "out"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "EFBIG"
    assert os.listdir(tmp_path) == ["archive"]


def test_a_kill_leaves_no_half_destination_and_the_next_try_succeeds(tmp_path: Path) -> None:
    items = [*samples.pack_items(), *(samples.file(f"data/{number}", os.urandom(20_000)) for number in range(3000))]
    path = samples.written(tmp_path, samples.tar(items))
    process = subprocess.Popen([sys.executable, "-c", UNPACK, path, tmp_path / "out"], cwd=ROOT)
    while not list(tmp_path.glob(".out.*.partial/data/2*")):
        assert process.poll() is None, "it was done before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    assert extract(path, tmp_path / "out") == folder_listing(tmp_path / "out")
    assert len(list(tmp_path.glob(".out.*.partial"))) == 1


def test_of_many_that_unpack_to_one_place_one_succeeds_and_the_others_are_told(tmp_path: Path) -> None:
    path = samples.written(tmp_path, samples.tar([*samples.pack_items(), samples.file("large", os.urandom(3_000_000))]))
    start = threading.Barrier(6)

    def unpack() -> bool:
        start.wait()
        try:
            extract(path, tmp_path / "out")
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        results = [task.result() for task in [pool.submit(unpack) for _ in range(6)]]
    assert results.count(True) == 1
    assert sorted(os.listdir(tmp_path)) == ["archive", "out"]
    assert folder_listing(tmp_path / "out").size_bytes > 3_000_000
