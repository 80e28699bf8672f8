"""Whatever a name holds, it is one token, and one name's subject is not another's."""

from hypothesis import given
from hypothesis import strategies as st

from app.bus import subjects

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(NAMES, NAMES.filter(bool), NAMES.filter(bool))
def test_an_event_has_seven_tokens_and_its_stream_comes_back(team: str, category: str, stream: str) -> None:
    subject = subjects.event(team, category, stream, "trial.scored")
    tokens = subject.split(".")
    assert len(tokens) == 7
    assert all(token and token.isascii() and not set(token) & set(" \t\r\n*>") for token in tokens)
    assert subjects.stream_token(subject) == (stream.removeprefix(f"{category}/") or subjects.NONE)


@given(NAMES, NAMES)
def test_two_names_have_two_tokens(one: str, other: str) -> None:
    known = {subjects.NONE, ""}
    assert (subjects.token(one) == subjects.token(other)) == (one == other or {one, other} == known)


@given(NAMES.filter(bool))
def test_a_cancel_names_its_work(work_id: str) -> None:
    assert subjects.cancelled_work(subjects.cancel(work_id)) == work_id


def test_subjects_are_readable() -> None:
    trial = "trl_01m8q4qt4zff0bw4vpm4vjem6g"
    assert (
        subjects.event("tem_1", "trial", trial, "trial.scored") == f"seatrial.events.tem_1.trial.{trial}.trial.scored"
    )
    assert (
        subjects.event("tem_1", "erasure", "erasure/12", "event.erased")
        == "seatrial.events.tem_1.erasure.12.event.erased"
    )
    assert subjects.logs("tem_1", "trial", trial) == f"seatrial.logs.tem_1.trial.{trial}"
