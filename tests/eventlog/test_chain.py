"""The hashes: Python and Postgres agree, the tree is that of RFC 6962, and proofs prove."""

import datetime
import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.eventlog.chain import (
    LEAF_BYTES,
    event_hash,
    includes,
    inclusion_proof,
    leaf,
    merkle_root,
    private_hash_of,
    split_leaves,
)
from app.eventlog.read import read_stream
from tests.eventlog.samples import event, opened, rows, unit, write

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_golden_vectors_hold_in_python(vector: dict[str, str]) -> None:
    salt = vector["salt"]
    private_hash = private_hash_of(bytes.fromhex(salt), bytes.fromhex(vector["private"])) if salt else None
    assert event_hash(
        bytes.fromhex(vector["previous"]),
        stream=vector["stream"],
        version=int(vector["version"]),
        event_id=uuid.UUID(vector["event_id"]),
        type=vector["type"],
        schema_version=int(vector["schema_version"]),
        team=vector["team"],
        recorded_at=datetime.datetime.fromisoformat(vector["recorded_at"]),
        data=bytes.fromhex(vector["data"]),
        meta=bytes.fromhex(vector["meta"]),
        private_hash=private_hash,
    ) == bytes.fromhex(vector["hash"])


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
async def test_golden_vectors_hold_in_postgres(database: str, vector: dict[str, str]) -> None:
    [row] = await rows(
        database,
        """select eventlog.link(null, $1,
               eventlog.frame(convert_to($2, 'UTF8')) || eventlog.frame(int4send($3)) || eventlog.frame(uuid_send($4))
               || eventlog.frame(convert_to($5, 'UTF8')) || eventlog.frame(int2send($6::int2))
               || eventlog.frame(convert_to($7, 'UTF8')) || eventlog.frame(timestamptz_send($8))
               || eventlog.frame($9) || eventlog.frame($10) || eventlog.frame(coalesce(sha256($11::bytea), ''))) as hash""",
        bytes.fromhex(vector["previous"]),
        vector["stream"],
        int(vector["version"]),
        uuid.UUID(vector["event_id"]),
        vector["type"],
        int(vector["schema_version"]),
        vector["team"],
        datetime.datetime.fromisoformat(vector["recorded_at"]),
        bytes.fromhex(vector["data"]),
        bytes.fromhex(vector["meta"]),
        bytes.fromhex(vector["salt"] + vector["private"]) if vector["salt"] else None,
    )
    assert row["hash"].hex() == vector["hash"]


async def test_what_the_function_writes_verifies_in_python(database: str) -> None:
    odd = event("prüfung.übergeben", data='{"text":"\u00e4\U0001f6a2"}'.encode(), private=b"{}")
    async with opened(database) as connection:
        await write(connection, unit("strøm/1", count=2, private=b'{"a":"b"}'))
        await write(connection, unit("strøm/1", 2, events=(odd, event())))
        events = await read_stream(connection, "strøm/1")
        private_hashes = [
            r["private_hash"]
            for r in await connection.fetch("select private_hash from eventlog.event order by version")
        ]
    previous = b""
    for recorded, private_hash in zip(events, private_hashes, strict=True):
        previous = event_hash(
            previous,
            stream=recorded.stream,
            version=recorded.version,
            event_id=recorded.event_id,
            type=recorded.type,
            schema_version=recorded.schema_version,
            team=recorded.team,
            recorded_at=recorded.recorded_at,
            data=recorded.data,
            meta=recorded.meta,
            private_hash=private_hash,
        )
        assert previous == recorded.hash
    assert len(events) == 4


# The inputs and roots that Certificate Transparency's reference implementations share.
CT_INPUTS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
CT_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("size", range(9))
def test_the_tree_is_that_of_rfc_6962(size: int) -> None:
    assert merkle_root(CT_INPUTS[:size]).hex() == CT_ROOTS[size]


@given(st.integers(1, 70), st.data())
def test_every_leaf_can_be_proved_and_nothing_else(size: int, data: st.DataObject) -> None:
    leaves = [leaf(n, bytes([n]) * 32) for n in range(size)]
    root = merkle_root(leaves)
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(leaves, index)
    assert includes(root, size, index, leaves[index], proof)
    assert not includes(root, size, index, leaf(size, b"x" * 32), proof)
    assert not includes(root, size, index, leaves[index], [*proof, b"\0" * 32])
    assert not includes(root, size, size, leaves[index], proof)
    if proof:
        assert not includes(root, size, index, leaves[index], proof[:-1])
        at, bit = data.draw(st.integers(0, len(proof) - 1)), data.draw(st.integers(0, 255))
        changed = bytearray(proof[at])
        changed[bit // 8] ^= 1 << bit % 8
        assert not includes(root, size, index, leaves[index], [*proof[:at], bytes(changed), *proof[at + 1 :]])
    other = data.draw(st.integers(0, size - 1).filter(lambda n: n != index)) if size > 1 else None
    if other is not None:
        assert not includes(root, size, other, leaves[index], proof)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32)), max_size=20))
def test_leaves_can_be_split_again(entries: list[tuple[int, bytes]]) -> None:
    joined = b"".join(leaf(*entry) for entry in entries)
    assert split_leaves(joined) == entries
    with pytest.raises(ValueError, match="whole leaves"):
        split_leaves(joined + b"\0" * (LEAF_BYTES - 1))


FIELDS = st.fixed_dictionaries(
    {
        "previous": st.binary(max_size=32),
        "stream": st.text(max_size=8),
        "version": st.integers(1, 2**31 - 1),
        "event_id": st.uuids(),
        "type": st.text(max_size=8),
        "schema_version": st.integers(1, 2**15 - 1),
        "team": st.text(max_size=8),
        "recorded_at": st.datetimes(timezones=st.just(datetime.UTC)),
        "data": st.binary(max_size=8),
        "meta": st.binary(max_size=8),
        "private_hash": st.none() | st.binary(min_size=32, max_size=32),
    }
)


@settings(max_examples=40)
@given(FIELDS, FIELDS)
def test_two_events_that_differ_in_anything_differ_in_their_hash(
    one: dict[str, object], two: dict[str, object]
) -> None:
    def digest(fields: dict[str, object]) -> bytes:
        return event_hash(fields.pop("previous"), **fields)  # type: ignore[arg-type]

    same = one == two
    assert (digest(dict(one)) == digest(dict(two))) is same
    for name, value in two.items():
        if one[name] != value:
            assert digest(one | {name: value}) != digest(dict(one)), name
