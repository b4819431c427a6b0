"""A lifecycle checks itself when it is built: one test per rule, and each refusal names what is wrong."""

import pytest

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import BIT, PAIRS, VERBS, Actor, Machine, State
from holdfast.lifecycle.machine import read_moves
from tests.pure.declared import MOVES, WORDS, declare

RETRYING = {"retrying": "again"}
RETRIES = [
    "fail: running -> retrying by worker",
    "reap: running -> retrying by system",
    "claim: retrying -> running by worker",
]


def test_the_smallest_valid_lifecycle_is_accepted() -> None:
    machine = declare()
    assert machine.initial is State.QUEUED
    assert machine.targets("fail", State.RUNNING) == [State.DEAD]
    assert machine.targets("claim", State.DEAD) == []
    assert machine.move("claim", State.QUEUED, State.RUNNING) is not None
    assert machine.move("claim", State.RETRYING, State.RUNNING) is None


def test_the_mask_holds_one_bit_for_each_legal_pair() -> None:
    machine = declare()
    assert machine.mask == sum(BIT[pair] for pair in {(move.source, move.target) for move in machine.moves})
    assert {pair for pair in PAIRS if machine.has(*pair)} == {(move.source, move.target) for move in machine.moves}


def test_the_bits_of_stored_rows_never_change() -> None:
    """Rows of existing databases carry them: a pair keeps its place for ever, new ones go to the end."""
    kept = (
        *("created>queued", "queued>running", "retrying>running", "retrying>queued", "running>succeeded"),
        *("running>retrying", "running>dead", "running>queued", "running>rejected", "running>canceled"),
        *("retrying>dead", "queued>rejected", "created>canceled", "queued>canceled", "retrying>canceled"),
    )
    assert tuple(f"{source}>{target}" for source, target in PAIRS)[: len(kept)] == kept
    assert [BIT[pair] for pair in PAIRS] == [2**place for place in range(len(PAIRS))]


def test_one_line_names_several_moves() -> None:
    moves = read_moves(["claim:  queued, retrying ->  running by worker"])
    assert [str(move) for move in moves] == [
        "claim: queued -> running by worker",
        "claim: retrying -> running by worker",
    ]
    assert moves[0].actors == {Actor.WORKER}


def test_every_verb_that_moves_a_job_is_known() -> None:
    assert set(VERBS) == {"accept", "claim", "complete", "fail", "release", "reject", "cancel", "reap", "requeue"}


@pytest.mark.parametrize("name", ["", "Bakery", "9to5", "a b", "ä", "x" * 64])
def test_a_name_is_lower_case_and_short(name: str) -> None:
    with pytest.raises(Invalid, match="its name must be lower case letters, digits, - and _"):
        declare(name)


@pytest.mark.parametrize("word", ["", "two\nlines", "bell\x07"])
def test_a_state_name_must_be_printable(word: str) -> None:
    with pytest.raises(Invalid, match="the name of running must be printable"):
        declare(words={"running": word})


def test_two_states_may_not_share_a_state_name() -> None:
    with pytest.raises(Invalid, match="running and dead have the same name 'busy'"):
        declare(words={"running": "busy", "dead": "busy"})


def test_final_states_may_share_a_state_name() -> None:
    assert declare(words={"dead": "over", "canceled": "over"}).words[State.CANCELED] == "over"


@pytest.mark.parametrize("state", ["queued", "running", "succeeded", "dead"])
def test_every_lifecycle_needs_four_states(state: str) -> None:
    with pytest.raises(Invalid, match=f"every lifecycle needs a name for {state}"):
        Machine("bakery", words={name: word for name, word in WORDS.items() if name != state}, moves=MOVES)


def test_an_unknown_state_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown state 'quueued'; did you mean 'queued'\? \(in the transition 'words of"
    ) as caught:
        declare(words={"quueued": "x"})
    assert caught.value.code == "unknown_state"


@pytest.mark.parametrize(
    ("move", "code", "says"),
    [
        ("claim: quued -> running by worker", "unknown_state", "unknown state 'quued'; did you mean 'queued'?"),
        ("claim: -> running by worker", "unknown_state", "unknown state ''; known: created, queued, running"),
        ("claim: queued -> runing by worker", "unknown_state", "unknown state 'runing'; did you mean 'running'?"),
        ("claim: queued -> running by wroker", "unknown_actor", "unknown actor 'wroker'; did you mean 'worker'?"),
        ("clam: queued -> running by worker", "unknown_verb", "unknown verb 'clam'; did you mean 'claim'?"),
    ],
)
def test_an_unknown_name_in_a_move_is_found(move: str, code: str, says: str) -> None:
    with pytest.raises(UnknownName) as caught:
        declare(moves=[move])
    assert caught.value.code == code
    assert says in caught.value.message


@pytest.mark.parametrize("line", ["claim queued -> running", "claim: queued -> running", ""])
def test_a_malformed_move_is_refused_with_the_expected_form(line: str) -> None:
    with pytest.raises(Invalid) as caught:
        declare(moves=[line])
    assert caught.value.code == "invalid_lifecycle"
    assert repr(line) in caught.value.message
    assert "verb: state, ... -> state, ... by actor, ..." in caught.value.message


@pytest.mark.parametrize(
    ("move", "says"),
    [
        ("claim: queued -> running by worker", "the transition 'claim: queued -> running by worker' is listed twice"),
        (
            "fail: dead -> queued by worker",
            "the transition 'fail: dead -> queued by worker' leaves a final state; redrive creates a new job instead",
        ),
        (
            "complete: queued -> succeeded by worker",
            "the transition 'complete: queued -> succeeded by worker' does not exist",
        ),
        (
            "cancel: queued -> canceled by client",
            "the transition 'cancel: queued -> canceled by client' uses canceled, which has no name in words",
        ),
    ],
)
def test_an_offending_move_is_named(move: str, says: str) -> None:
    """R001-22: what is not in the table is illegal by design."""
    with pytest.raises(Invalid) as caught:
        declare(moves=[move])
    assert caught.value.code == "invalid_lifecycle"
    assert caught.value.message == f"lifecycle 'bakery': {says}"


def test_an_actor_who_may_never_make_a_move_is_refused() -> None:
    """R000-25..27, C-8: a lifecycle cannot give the API what only a worker may do."""
    with pytest.raises(Invalid) as caught:
        declare(without="claim", moves=["claim: queued -> running by worker, api"])
    assert "the transition 'claim: queued -> running by api, worker' names an actor that is not allowed" in str(
        caught.value
    )
    assert "allowed: 'claim: queued -> running by worker'" in str(caught.value)


@pytest.mark.parametrize(
    ("verb", "pair", "why"),
    [
        ("claim", "queued -> running", "no job could run"),
        ("complete", "running -> succeeded", "no job could succeed"),
        ("release", "running -> queued by worker", "a worker that stops must be able to release its jobs"),
    ],
)
def test_a_lifecycle_without_a_way_through_is_refused(verb: str, pair: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        declare(without=verb)
    assert f"the transition '{verb}: {pair}' is missing: {why}" in caught.value.message


def test_a_lifecycle_with_cancel_of_running_jobs_needs_a_reap_to_canceled() -> None:
    wish = "cancel: running -> canceled by worker, system"
    with pytest.raises(Invalid, match="'reap: running -> canceled' is missing"):
        declare(words={"canceled": "called off"}, moves=[wish])


def test_release_must_be_a_move_of_the_worker() -> None:
    with pytest.raises(Invalid, match="'release: running -> queued by worker' is missing"):
        declare(without="release", moves=["release: running -> queued by system"])


@pytest.mark.parametrize("verb", ["fail", "reap"])
def test_a_lifecycle_needs_a_way_to_dead(verb: str) -> None:
    with pytest.raises(Invalid, match=f"'{verb}' never leads to dead: a job that always fails would run forever"):
        declare(without=verb)


def test_a_created_job_must_be_able_to_start() -> None:
    with pytest.raises(
        Invalid, match="the transition 'accept: created -> queued' is missing: created jobs could never run"
    ):
        declare(words={"created": "ordered"})


@pytest.mark.parametrize("verb", ["fail", "reap"])
def test_a_lifecycle_with_a_retrying_state_must_use_it(verb: str) -> None:
    moves = [move for move in RETRIES if not move.startswith(verb)]
    with pytest.raises(
        Invalid, match=f"the transition '{verb}: running -> retrying' is missing: no attempt could be retried"
    ):
        declare(words=RETRYING, moves=moves)


def test_a_retry_must_not_wait_for_ever() -> None:
    with pytest.raises(Invalid, match="without a claim from retrying, a retry would wait forever"):
        declare(words=RETRYING, moves=RETRIES[:2])


def test_dead_may_be_reached_through_retrying_alone() -> None:
    """C-3."""
    machine = declare(
        words=RETRYING,
        without="fail",
        moves=[*RETRIES, "fail: retrying -> dead by worker"],
    )
    assert not machine.move("fail", State.RUNNING, State.DEAD)
    assert machine.has(State.RETRYING, State.DEAD)
