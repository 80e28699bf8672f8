"""Files that appear whole or not at all (patch P2). Whole, not durable: what must last is stored by the worker."""

import os
import secrets
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace `path`; a reader sees the old content or the new, with the mode that the file had."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("x", encoding="utf-8") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
