"""What every build backend holds. A backend's own test subclasses this and gives the fixtures `backend` and `base`."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from app import ids
from app.images.packages import Package
from tests.builder.registry import Registry
from tests.images.samples import dpkg
from workers.builder.build import port
from workers.builder.build.port import Backend, BuildLine, BuildSpec, BuiltImage

Build = Callable[..., object]


class Lines:
    """Keeps a build's log, and can be waited on."""

    def __init__(self) -> None:
        self.lines: list[BuildLine] = []
        self._came = asyncio.Event()

    async def __call__(self, line: BuildLine) -> None:
        self.lines.append(line)
        self._came.set()

    def text(self, stream: str) -> str:
        return "".join(line.text for line in self.lines if line.stream == stream)

    async def seen(self, text: str) -> None:
        while text not in self.text("stdout"):
            self._came.clear()
            await self._came.wait()


def processes_with(argument: str) -> list[str]:
    """Command lines on this machine, the engine's included, that hold the argument."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if argument in line and "docker" not in line:
                found.append(line)
    return found


async def gone(argument: str) -> None:
    while processes_with(argument):
        await asyncio.sleep(0.05)


class BuildBackendConformance:
    """Fixtures that a subclass gives: `backend` (Backend), `base` (the name of a present image with sh and busybox)."""

    @pytest.fixture
    async def revision(self, backend: Backend) -> AsyncGenerator[str]:
        name = ids.new("revision")
        yield name
        await backend.remove(name)

    @pytest.fixture
    def lines(self) -> Lines:
        return Lines()

    @pytest.fixture
    def spec(self, revision: str, tmp_path: Path) -> Callable[..., BuildSpec]:
        """Makes a spec for a Dockerfile and further files."""

        def make(dockerfile: str | None, files: dict[str, bytes] | None = None, **settings: object) -> BuildSpec:
            context = tmp_path / "context"
            context.mkdir(exist_ok=True)
            for path, content in (files or {}).items():
                (context / path).parent.mkdir(parents=True, exist_ok=True)
                (context / path).write_bytes(content)
            if dockerfile is not None:
                (context / "Dockerfile").write_text(dockerfile)
            return msgspec.structs.replace(
                BuildSpec(
                    revision=revision,
                    team="tem_x",
                    instance="test",
                    pack_digest="sha256:" + "0" * 64,
                    context=context,
                    pull=False,
                ),
                **settings,
            )

        return make

    @pytest.fixture
    def image_spec(self, revision: str) -> Callable[..., BuildSpec]:
        def make(image: str, **settings: object) -> BuildSpec:
            spec = BuildSpec(revision=revision, team="tem_x", instance="test", pack_digest="sha256:0", image=image)
            return msgspec.structs.replace(spec, **settings)

        return make

    # ------------------------------------------------------------ what comes out

    async def test_a_build_says_what_it_built(self, backend: Backend, base: str, spec: Build, lines: Lines) -> None:
        built: BuiltImage = await backend.build(
            spec(
                f"FROM {base}\nWORKDIR /app\nUSER 1000\nRUN : {uuid.uuid4()}; echo said && echo warned >&2 && echo ünï\n"
            ),
            lines,
        )
        image = built.image
        assert image.digest.startswith("sha256:")
        assert len(image.digest) == 71
        assert (image.workdir, image.user, image.prebuilt) == ("/app", "1000", False)
        assert image.size_bytes > 0
        assert image.architecture
        assert len(image.base_images) == 1
        assert image.base_images[0].startswith(f"{base}@sha256:")
        assert built.steps >= 3
        assert lines.text("stdout") == "said\nünï\n"
        assert lines.text("stderr") == "warned\n"
        assert any("echo said" in line.step for line in lines.lines if line.stream == "stdout")

    async def test_building_again_is_cached_and_gives_the_same_image(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        made = spec(f"FROM {base}\nRUN echo {uuid.uuid4()} | tee /x\n")
        again = Lines()
        first, second = await backend.build(made, lines), await backend.build(made, again)
        assert first.image.digest == second.image.digest
        assert lines.text("stdout")
        assert not again.text("stdout")
        assert second.cached_steps

    async def test_many_builds_at_once_do_not_mix(self, backend: Backend, base: str, spec: Build) -> None:
        specs = [
            msgspec.structs.replace(spec(None), revision=ids.new("revision"), dockerfile=f"D{number}")
            for number in range(3)
        ]
        for number, made in enumerate(specs):
            (made.context / f"D{number}").write_text(f"FROM {base}\nWORKDIR /w{number}\nRUN echo {uuid.uuid4()}\n")
        built = await asyncio.gather(*(backend.build(made, Lines()) for made in specs))
        assert [result.image.workdir for result in built] == ["/w0", "/w1", "/w2"]
        for made in specs:
            await backend.remove(made.revision)

    async def test_the_inventory_is_that_of_the_image(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        files = {"status": dpkg("bash=5.2", "gone=1"), "less": dpkg("bash=5.2")}
        text = f"FROM {base}\nCOPY status /var/lib/dpkg/status\nCOPY less /var/lib/dpkg/status\n"
        built = await backend.build(spec(text, files), lines)
        inventory = await backend.inventory(built.image.reference)
        assert inventory.packages == (Package("deb", "bash", "5.2", "amd64"),)
        assert len(inventory.layers) == 3

    async def test_the_inventory_of_an_image_that_is_gone_is_missing(self, backend: Backend) -> None:
        with pytest.raises(port.ImageMissing):
            await backend.inventory("sha256:" + "0" * 64)

    async def test_a_removed_image_is_gone_and_removing_again_is_no_error(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        made = spec(f"FROM {base}\nRUN echo {uuid.uuid4()}\n")
        built = await backend.build(made, lines)
        await backend.remove(made.revision)
        await backend.remove(made.revision)
        with pytest.raises(port.ImageMissing):
            await backend.inventory(built.image.reference)

    # ------------------------------------------------------------ the task's faults

    async def test_a_failing_step_is_named_with_its_exit_code(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        with pytest.raises(port.StepFailed) as failed:
            await backend.build(spec(f"FROM {base}\nRUN echo before && exit 42\nRUN echo after\n"), lines)
        assert failed.value.exit_code == 42
        assert "exit 42" in failed.value.step
        assert lines.text("stdout") == "before\n"

    async def test_a_step_that_prints_the_words_of_other_failures_is_still_a_failed_step(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        words = (
            "ERROR: failed to solve: no space left on device; Cannot connect to the Docker daemon; load metadata for"
        )
        with pytest.raises(port.StepFailed):
            await backend.build(spec(f"FROM {base}\nRUN echo '{words}' >&2; exit 1\n"), lines)

    async def test_a_missing_file_fails_its_step(self, backend: Backend, base: str, spec: Build, lines: Lines) -> None:
        with pytest.raises(port.StepFailed) as failed:
            await backend.build(spec(f"FROM {base}\nCOPY nothing /x\n"), lines)
        assert "COPY nothing" in failed.value.step

    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "HELLO\n",
            "FROM {base}\nRUN --nonsense=1 x\n",
            "FROM {base}\nRUN <<EOF\n",
            "FROM {base} AS\n",
            "FROM not//an/image\n",
            "FROM {base}\nCOPY --from=7 a b\n",
            "FROM {base}\n#" + "x" * 1_100_000,
        ],
    )
    async def test_a_dockerfile_that_cannot_be_built_is_invalid(
        self, text: str | None, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        with pytest.raises((port.DockerfileInvalid, port.BaseImageMissing)) as failed:
            await backend.build(spec(text and text.replace("{base}", base)), lines)
        assert isinstance(failed.value, port.DockerfileInvalid) or (text is not None and "=7" in text)
        assert str(failed.value)

    async def test_a_dockerfile_that_is_not_text_is_invalid(self, backend: Backend, spec: Build, lines: Lines) -> None:
        with pytest.raises(port.DockerfileInvalid):
            await backend.build(spec(None, {"Dockerfile": b"FROM \xff\xfe\n"}), lines)

    async def test_a_build_that_takes_too_long_is_stopped(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        argument = f"4{uuid.uuid4().int % 10**8:08}"
        with pytest.raises(port.BuildTimedOut):
            await backend.build(spec(f"FROM {base}\nRUN sleep {argument}\n", timeout_seconds=1.5), lines)
        await gone(f"sleep {argument}")

    async def test_a_cancelled_build_leaves_nothing_running(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        argument = f"4{uuid.uuid4().int % 10**8:08}"
        task = asyncio.create_task(backend.build(spec(f"FROM {base}\nRUN echo begun; sleep {argument}\n"), lines))
        await lines.seen("begun")
        assert processes_with(f"sleep {argument}")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(f"sleep {argument}")

    async def test_an_image_that_is_too_large_is_refused_and_removed(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        made = spec(f"FROM {base}\nRUN echo {uuid.uuid4()}\n", max_image_bytes=1000)
        with pytest.raises(port.ImageTooLarge):
            await backend.build(made, lines)

    async def test_a_pack_cannot_build_on_the_image_of_another(
        self, backend: Backend, base: str, spec: Build, image_spec: Build, lines: Lines
    ) -> None:
        other = msgspec.structs.replace(spec(f"FROM {base}\nRUN echo {uuid.uuid4()}\n"), revision=ids.new("revision"))
        await backend.build(other, lines)
        name = f"seatrial/{other.revision}"
        try:
            for text in (f"FROM {name}\n", f"FROM {base}\nCOPY --from={name}:latest a b\n", f"FROM docker.io/{name}\n"):
                with pytest.raises(port.DockerfileInvalid):
                    await backend.build(spec(text), lines)
            with pytest.raises(port.ImageMissing):
                await backend.build(image_spec(name), lines)
        finally:
            await backend.remove(other.revision)

    # ------------------------------------------------------------ images that are or are not there

    async def test_a_base_image_that_may_not_be_fetched_is_missing(
        self, backend: Backend, spec: Build, lines: Lines
    ) -> None:
        with pytest.raises(port.BaseImageMissing) as failed:
            await backend.build(spec("FROM nowhere.invalid/none:1\n"), lines)
        assert "nowhere.invalid/none:1" in str(failed.value)

    async def test_an_image_of_a_registry_is_fetched_and_pinned(
        self, backend: Backend, spec: Build, image_spec: Build, lines: Lines
    ) -> None:
        registry = Registry({"hello": uuid.uuid4().bytes})
        with registry.served() as host:
            name = f"{host}/served/image:1"
            built = await backend.build(spec(f"FROM {name}\nLABEL x=1\n", pull=True), lines)
            assert (built.image.workdir, built.image.user) == ("/served", "1000")
            prebuilt = await backend.build(image_spec(name), lines)
            assert prebuilt.image.prebuilt
            assert (prebuilt.image.workdir, prebuilt.image.user) == ("/served", "1000")
            assert prebuilt.image.base_images == (f"{name}@{registry.digest}",)
            pinned = await backend.build(image_spec(f"{host}/served/image@{registry.digest}"), lines)
            assert pinned.image.digest == prebuilt.image.digest

    async def test_what_a_registry_does_not_have_is_missing(
        self, backend: Backend, spec: Build, image_spec: Build, lines: Lines
    ) -> None:
        with Registry({}).served() as host:
            with pytest.raises(port.BaseImageMissing):
                await backend.build(spec(f"FROM {host}/served/image:none\nRUN x\n", pull=True), lines)
            with pytest.raises(port.ImageMissing):
                await backend.build(image_spec(f"{host}/served/image:none"), lines)

    async def test_a_registry_that_does_not_answer_is_not_the_task_s_fault(
        self, backend: Backend, spec: Build, image_spec: Build, lines: Lines
    ) -> None:
        registry = Registry({})
        registry.silent = True
        with registry.served() as host:
            with pytest.raises(port.RegistryUnreachable):
                await backend.build(spec(f"FROM {host}/served/image:1\nRUN x\n", pull=True), lines)
            with pytest.raises(port.RegistryUnreachable):
                await backend.build(image_spec(f"{host}/served/image:1"), lines)

    async def test_a_prebuilt_image_is_used_as_it_is(
        self, backend: Backend, base: str, image_spec: Build, lines: Lines
    ) -> None:
        built = await backend.build(image_spec(base, pull=False), lines)
        assert built.image.prebuilt
        assert built.image.base_images[0].startswith(f"{base}@sha256:")
        with pytest.raises(port.ImageMissing):
            await backend.build(image_spec("nowhere.invalid/none:1", pull=False), lines)
        with pytest.raises(port.ImageMissing):
            await backend.build(image_spec("Not An Image"), lines)

    # ------------------------------------------------------------ what a build gets

    async def test_a_syntax_line_does_not_need_a_registry(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        text = f"# syntax=nowhere.invalid/dockerfile:1\nFROM {base}\nCOPY . /all\nRUN : {uuid.uuid4()}; ls /all\n"
        files = {"kept": b"", "hidden": b"", "Dockerfile.dockerignore": b"hidden\n"}
        await backend.build(spec(text, files), lines)
        assert "kept" in lines.text("stdout")
        assert "hidden" not in lines.text("stdout")

    async def test_the_ignore_file_is_obeyed(self, backend: Backend, base: str, spec: Build, lines: Lines) -> None:
        files = {"kept": b"", "hidden": b"", ".dockerignore": b"hidden\n"}
        await backend.build(spec(f"FROM {base}\nCOPY . /all\nRUN : {uuid.uuid4()}; ls /all\n", files), lines)
        assert "kept" in lines.text("stdout")
        assert "hidden" not in lines.text("stdout")

    async def test_network_none_leaves_only_the_loopback(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        text = f"FROM {base}\nRUN echo {uuid.uuid4()}; cat /proc/net/dev\n"
        await backend.build(spec(text, network="none"), lines)
        assert "lo:" in lines.text("stdout")
        assert "eth0" not in lines.text("stdout")
        other = Lines()
        await backend.build(spec(text.replace("cat", "exec cat")), other)
        assert "eth0" in other.text("stdout")

    @pytest.mark.parametrize(
        "step", ["RUN --network=host true", "RUN --security=insecure true", "RUN mount -t tmpfs none /mnt"]
    )
    async def test_a_step_gets_neither_the_host_s_network_nor_its_privileges(
        self, step: str, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        with pytest.raises((port.DockerfileInvalid, port.StepFailed)):
            await backend.build(spec(f"FROM {base}\n{step}\n"), lines)

    async def test_a_build_without_network_fetches_nothing_by_add(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        registry = Registry({})
        with registry.served() as host:
            text = f"FROM {base}\nADD http://{host}/v2/ /x\nRUN : {uuid.uuid4()}\n"
            with pytest.raises(port.DockerfileInvalid):
                await backend.build(spec(text, network="none"), lines)
            assert registry.asked == []
            await backend.build(spec(text), lines)
            assert "/v2/" in registry.asked

    async def test_a_further_ca_is_mounted_and_lands_in_no_layer(
        self, backend: Backend, base: str, spec: Build, lines: Lines, tmp_path: Path
    ) -> None:
        (tmp_path / "ca.pem").write_text("certificate\n")
        mount = "--mount=type=secret,id=ca,target=/run/ca.crt"
        text = (
            f"FROM {base}\nRUN {mount} : {uuid.uuid4()}; cat /run/ca.crt\nRUN echo left: $(cat /run/ca.crt | wc -c)\n"
        )
        await backend.build(spec(text, extra_ca=tmp_path / "ca.pem"), lines)
        assert lines.text("stdout") == "certificate\nleft: 0\n"

    async def test_nothing_of_the_worker_s_environment_reaches_a_build(
        self, backend: Backend, base: str, spec: Build, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SEATRIAL_PROOF_SECRET", "do-not-leak-this")
        text = f"FROM {base}\nARG SEATRIAL_PROOF_SECRET\nRUN echo {uuid.uuid4()}; env; echo [$SEATRIAL_PROOF_SECRET]\n"
        await backend.build(spec(text), lines)
        assert os.environ["SEATRIAL_PROOF_SECRET"] not in "".join(line.text for line in lines.lines)
        assert "[]" in lines.text("stdout")

    async def test_a_log_is_cut_at_its_limit_and_says_so(
        self, backend: Backend, base: str, spec: Build, lines: Lines
    ) -> None:
        text = f"FROM {base}\nRUN echo {uuid.uuid4()}; yes 0123456789 | head -c 200000\n"
        built = await backend.build(spec(text, log_limit_bytes=20_000), lines)
        assert built.log_truncated
        assert sum(len(line.text) for line in lines.lines) < 21_000
