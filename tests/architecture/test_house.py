"""Rules of the house that a reader can rely on, each as a check."""

import ast
import importlib.metadata
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "projections", "workers")
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_migrations" not in path.parts
)
SOURCES = "".join(path.read_text() for path in MODULES)
STATEMENTS = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("sql/*.sql"))
TOP = ("app", "projections", "workers", "harbor-patches", "db", "deploy", "examples", "tests")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_module_says_in_its_first_lines_what_it_is_for(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text())), f"{name(module)} has no docstring"


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_no_module_is_called_utils_helpers_manager_or_common(module: Path) -> None:
    assert module.stem not in {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_an_exception_is_never_swallowed_whole(module: Path) -> None:
    """`except Exception: pass` and `suppress(Exception)` hide what nobody foresaw. At the door of a loop it is logged."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception"):
            assert not all(isinstance(one, ast.Pass) for one in node.body), f"{name(module)}:{node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
            suppressed = {ast.unparse(one) for one in node.args}
            assert not suppressed & {"Exception", "BaseException"}, f"{name(module)}:{node.lineno}"


@pytest.mark.parametrize("statement", STATEMENTS, ids=name)
def test_a_statement_opens_with_what_it_does_and_documents_its_parameters(statement: Path) -> None:
    text = statement.read_text()
    header = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    assert text.startswith("--"), f"{name(statement)} has no header"
    for parameter in set(re.findall(r"\$\d+", body)):
        assert parameter in header, f"{name(statement)} does not document {parameter}"


@pytest.mark.parametrize("statement", STATEMENTS, ids=name)
def test_every_statement_is_used(statement: Path) -> None:
    assert re.search(rf'["\']{re.escape(statement.stem)}["\']', SOURCES), f"nobody loads {name(statement)}"


@pytest.mark.parametrize("folder", TOP)
def test_each_top_folder_has_a_readme(folder: str) -> None:
    assert (ROOT / folder / "README.md").read_text().strip()


def test_the_distribution_is_the_only_one_with_our_packages() -> None:
    owners = importlib.metadata.packages_distributions()
    for package in PACKAGES:
        assert owners.get(package, ["seatrial"]) == ["seatrial"]


def test_no_machine_path_and_no_registry_stands_in_a_file() -> None:
    """What is committed works anywhere: see CONTRIBUTING of every registry that moved."""
    hosts = re.compile(r"(https?:)?//[a-z0-9.-]*(pypi|pythonhosted|npmjs|crates)\.(org|com|io)|/work/[a-z]")
    for path in (
        ROOT / "requirements.lock",
        ROOT / "harbor-patches" / "harness.lock",
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ):
        assert not hosts.search(path.read_text()), name(path)


NAMED = re.compile(rf"(?<![\w/.<-])((?:{'|'.join(TOP)}|reference)/[\w./-]*[\w-])")
"""A path in our tree, as prose and comments name it; `app/x/{{y}}`, `…` and `<…>` end it."""
PROSE = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.sql", "*.sh", "*.toml", "Makefile"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()
    if (ROOT / name).exists() and not name.startswith("tests/packs/")
)  # fmt: skip


def words_of(path: Path) -> str:
    """All of a document; of a program its docstrings and comments."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    comments = [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    return "\n".join([*comments, *docstrings])


@pytest.mark.parametrize("path", PROSE, ids=name)
def test_every_file_that_is_named_is_there(path: Path) -> None:
    """So that a reader finds what a document or a docstring points to."""
    for found in NAMED.findall(words_of(path)):
        if "NNNN" in found or found.startswith("app/_"):  # a pattern; a place inside the wheel
            continue
        there = (ROOT / found).exists() or any(ROOT.glob(f"{found}[._]*")) or any(path.parent.glob(found))
        assert there, f"{name(path)} names {found}"
