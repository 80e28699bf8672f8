"""What runs left: artifacts of a trial, the archive that proves an evaluation, and the documents in it."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.params import FromPath, QueryParameter

from app import digests
from app.access import Permission
from app.boot import House
from app.commands.caller import Caller
from app.commands.refusals import not_found
from app.domain.execution import FILES, StoredFile
from app.evidence import archive as archives
from app.evidence import manifest
from app.http import answers, downloads, members, shapes, waiting
from app.http.access import needs
from app.http.given import Given
from app.http.hub import Hub
from app.http.problems import ProblemRaised
from app.http.routes.runs import run_of
from app.http.routes.trials import evaluation_of, executions_of
from app.objects import ObjectMissing, keys, read_all
from app.queries import evaluations, runs, trials
from app.queries.provenance import VIEWS, Provenance, provenance_of, provenances_of_run

READ = Permission.ARTIFACTS_READ
LISTING_BYTES = 64 * 1024**2
JSON = "application/json"
ZSTD = "application/zstd"
FILE_TYPES = (downloads.BYTES,)
OF_EVALUATION: tuple[str, ...] = (*evaluations.VIEWS, *VIEWS)
OF_RUN: tuple[str, ...] = (*runs.VIEWS, *VIEWS)
LISTING = msgspec.json.Decoder(tuple[StoredFile, ...])

WhichExecution = Annotated[
    int | None,
    QueryParameter(name="execution", description="Which try, from 1; left out: the latest with files.", ge=1),
]


@get(
    "/v1/trials/{trial:str}/artifacts",
    opt=needs(READ, views=trials.VIEWS_OF_EXECUTIONS),
    tags=["files"],
    operation_id="listArtifacts",
)
async def list_artifacts(
    house: Given[House], caller: Given[Caller], trial: FromPath[str], execution: WhichExecution = None
) -> answers.Artifacts:
    """The files that an execution of the trial left."""
    found, files = await _files(house, caller, trial, execution)
    base = f"/v1/trials/{found.trial_id}/artifacts"
    return answers.Artifacts(
        execution_id=found.id,
        items=tuple(
            shapes.shape(answers.Artifact, file, url=f"{base}/{downloads.path_of(file.path)}?execution={found.number}")
            for file in files
        ),
    )


@get(
    "/v1/trials/{trial:str}/artifacts/{path:path}",
    opt=needs(READ, views=trials.VIEWS_OF_EXECUTIONS, files=FILE_TYPES),
    tags=["files"],
    operation_id="getArtifact",
)
async def get_artifact(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    trial: FromPath[str],
    path: FromPath[str],
    execution: WhichExecution = None,
) -> Response[Any]:
    """One file, whole or a range."""
    _, files = await _files(house, caller, trial, execution)
    name = path.removeprefix("/")
    file = next((file for file in files if file.path == name), None)
    if file is None:
        raise not_found("artifact")
    stored = downloads.of_object(keys.blob(file.sha256), file.sha256, file.size_bytes, name.rpartition("/")[2])
    return await downloads.respond(request, house.objects, stored)


@get(
    "/v1/evaluations/{evaluation:str}/archive",
    opt=needs(READ, views=OF_EVALUATION, files=(ZSTD,)),
    tags=["files"],
    operation_id="getArchive",
)
async def get_archive(
    request: Request[Any, Any, Any], house: Given[House], caller: Given[Caller], evaluation: FromPath[str]
) -> Response[Any]:
    """The sealed archive of an evaluation (tar.zst)."""
    found = await evaluation_of(house, caller, evaluation)
    sealed = await _sealed(house, caller, found.id)
    return await downloads.respond(request, house.objects, _archive(sealed, f"seatrial-{found.id}.tar.zst"))


@get(
    "/v1/runs/{run:str}/archive",
    opt=needs(READ, views=OF_RUN, files=(ZSTD, "application/x-tar"), waits=True),
    tags=["files"],
    operation_id="getArchiveOfRun",
)
async def get_archive_of_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    run: FromPath[str],
) -> Response[Any]:
    """The archive of a run's one evaluation, or a tar of the archives of all. `Prefer: wait=N` waits until all is sealed."""

    async def read() -> tuple[runs.Run, tuple[Provenance, ...]]:
        found = await run_of(house, caller, run)
        return found, (await provenances_of_run(house.pool, caller.team, found.id)).item

    waited = await waiting.until(
        request,
        hub,
        caller.team,
        read,
        of=lambda both: both[0].id,
        ended=lambda both: _all_sealed(*both),
        types=("run.completed", "evidence.sealed"),
        views=OF_RUN,
    )
    found, sealed = waited.row
    if not _all_sealed(found, sealed):
        done = sum(one.status == "sealed" for one in sealed)
        raise _owed(f"{done} of {found.evaluations_created} archives of this run are sealed")
    if not sealed:
        raise ProblemRaised(404, "not_found", "there is no archive: the run was cancelled before anything of it began")
    name = f"seatrial-run-{found.number}"
    if len(sealed) == 1:
        return await downloads.respond(request, house.objects, _archive(sealed[0], f"{name}.tar.zst"))
    listed = sorted(sealed, key=lambda one: one.evaluation_id)
    together = downloads.as_tar(
        [(f"{name}/{one.evaluation_id}.tar.zst", *_stored(one)) for one in listed], f"{name}.tar"
    )
    return await downloads.respond(request, house.objects, together)


@get(
    "/v1/evaluations/{evaluation:str}/provenance",
    opt=needs(READ, views=OF_EVALUATION, files=(JSON,)),
    tags=["files"],
    operation_id="getProvenance",
)
async def get_provenance(
    request: Request[Any, Any, Any], house: Given[House], caller: Given[Caller], evaluation: FromPath[str]
) -> Response[Any]:
    """The provenance document of the archive."""
    return await _document(request, house, caller, evaluation, archives.PROVENANCE, JSON)


@get(
    "/v1/evaluations/{evaluation:str}/sbom",
    opt=needs(READ, views=OF_EVALUATION, files=("application/vnd.cyclonedx+json",)),
    tags=["files"],
    operation_id="getSbom",
)
async def get_sbom(
    request: Request[Any, Any, Any], house: Given[House], caller: Given[Caller], evaluation: FromPath[str]
) -> Response[Any]:
    """The software bill of materials of the archive (CycloneDX)."""
    return await _document(request, house, caller, evaluation, archives.SBOM, "application/vnd.cyclonedx+json")


@get(
    "/v1/evaluations/{evaluation:str}/manifest",
    opt=needs(READ, views=OF_EVALUATION, files=(JSON,)),
    tags=["files"],
    operation_id="getManifest",
)
async def get_manifest(
    request: Request[Any, Any, Any], house: Given[House], caller: Given[Caller], evaluation: FromPath[str]
) -> Response[Any]:
    """The list of everything in the archive, with digests."""
    return await _document(request, house, caller, evaluation, manifest.NAME, JSON)


async def _files(
    house: House, caller: Caller, trial: str, number: int | None
) -> tuple[trials.Execution, tuple[StoredFile, ...]]:
    """The listing of one execution, or of the latest one that has any."""
    for found in reversed(await executions_of(house, caller, trial)):
        if number is None or found.number == number:
            try:
                listing = await read_all(house.objects, keys.execution(found.id, FILES), size_limit=LISTING_BYTES)
            except ObjectMissing:
                continue
            return found, LISTING.decode(listing)
    raise not_found("execution with artifacts")


async def _document(
    request: Request[Any, Any, Any], house: House, caller: Caller, evaluation: str, name: str, media_type: str
) -> Response[Any]:
    found = await evaluation_of(house, caller, evaluation)
    sealed = await _sealed(house, caller, found.id)
    key, _, _ = _stored(sealed)
    try:
        content = await members.document(house.objects, key, name)
    except members.DocumentMissing as error:
        raise ProblemRaised(404, "document_missing", f"the archive has no {name}") from error
    return await downloads.respond(request, house.objects, downloads.of_bytes(content, name, media_type))


async def _sealed(house: House, caller: Caller, evaluation_id: str) -> Provenance:
    found = await provenance_of(house.pool, caller.team, evaluation_id)
    if found is None:
        raise _owed("the evaluation has not completed yet")
    if found.item.status != "sealed":
        raise _owed("the archive of this evaluation is not sealed yet")
    return found.item


def _owed(detail: str) -> ProblemRaised:
    return ProblemRaised(409, "evidence_owed", f"{detail}; come again", retryable=True)


def _all_sealed(run: runs.Run, sealed: tuple[Provenance, ...]) -> bool:
    complete = len(sealed) == run.evaluations_created and all(one.status == "sealed" for one in sealed)
    return run.status == "completed" and complete


def _archive(sealed: Provenance, name: str) -> downloads.Download:
    key, size_bytes, sha256 = _stored(sealed)
    return downloads.of_object(key, sha256, size_bytes, name, ZSTD)


def _stored(sealed: Provenance) -> tuple[str, int, str]:
    """(key, size in bytes, sha256 in hex) of a sealed archive."""
    assert sealed.archive_key is not None
    assert sealed.archive_bytes is not None
    assert sealed.archive_digest is not None
    return sealed.archive_key, sealed.archive_bytes, digests.digits_of(sealed.archive_digest)


HANDLERS = (
    list_artifacts,
    get_artifact,
    get_archive,
    get_archive_of_run,
    get_provenance,
    get_sbom,
    get_manifest,
)
