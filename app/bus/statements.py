"""The statements of this room: `statement("verb_noun")` is the text of sql/verb_noun.sql."""

from pathlib import Path

from app.sql import statements_of

statement = statements_of(Path(__file__).parent)
