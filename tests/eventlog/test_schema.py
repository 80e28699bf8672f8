"""db/schema.sql is what the migrations make."""

import importlib.util
from pathlib import Path

from app.eventlog.migrate import folder, load

DATABASES = Path(__file__).parents[2] / "db"


async def test_schema_sql_equals_the_migrated_database(database: str) -> None:
    spec = importlib.util.spec_from_file_location("dump_schema", DATABASES / "dump_schema.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert program.dump(database) == program.SCHEMA.read_text(), "run .venv/bin/python db/dump_schema.py"


def test_every_statement_and_migration_says_what_it_is_for() -> None:
    migrations = load(folder())
    statements = sorted((DATABASES.parent / "app" / "eventlog" / "sql").glob("*.sql"))
    assert len(statements) > 10
    for name, text in [(m.name, m.sql) for m in migrations] + [(s.name, s.read_text()) for s in statements]:
        assert text.startswith("-- "), name
