"""Secrets, and keeping them out of everything that is written down.

`redaction` is the door: it knows the actual values (in every form of `forms`) and the shapes of keys that it was not told of
(`patterns`). `names` knows what people call a secret. Pure: bytes in, bytes out. Credentials and their encryption come to
live here too.
"""

from app.vault.redaction import MASK, NOTHING, Redactor, Secrets

__all__ = ["MASK", "NOTHING", "Redactor", "Secrets"]
