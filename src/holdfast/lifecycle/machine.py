"""The state machine of a lifecycle: state names, transitions, policy; validated when it is built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NoReturn, TypeVar

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle.policy import Policy
from holdfast.lifecycle.states import BIT, CANON, FINAL, Actor, Move, State

_LINE = re.compile(r"\s*(\w+)\s*:\s*([\w\s,]+?)\s*->\s*([\w\s,]+?)\s+by\s+([\w\s,]+?)\s*")
_Name = TypeVar("_Name", State, Actor)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def read_moves(lines: Iterable[str]) -> tuple[Move, ...]:
    """`"claim: queued, retrying -> running by worker"` is two transitions."""
    return tuple(move for line in lines for move in _read_line(line))


def _read_line(line: str) -> list[Move]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise Invalid(
            f"cannot read the transition {line!r}; write it as 'verb: state, ... -> state, ... by actor, ...'",
            code="invalid_lifecycle",
        )
    verb, sources, targets, actors = match.groups()
    who = frozenset(_known(Actor, "actor", actor, line) for actor in _names(actors))
    return [
        Move(verb, _known(State, "state", source, line), _known(State, "state", target, line), who)
        for source in _names(sources)
        for target in _names(targets)
    ]


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",")]


def _known(names: type[_Name], kind: str, name: str, line: str) -> _Name:
    try:
        return names(name)
    except ValueError:
        error = UnknownName.of(kind, name, [str(known) for known in names])
        raise UnknownName(f"{error.message} (in the transition {line.strip()!r})", code=error.code) from None


_CANON = {(move.verb, move.source, move.target): move for move in read_moves(CANON)}
LAWFUL = frozenset(_CANON)  # (verb, source, target) of every allowed transition
VERBS = tuple(dict.fromkeys(move.verb for move in _CANON.values()))


class Machine:
    """One declared lifecycle.

    `words` names its states; a state without a name does not exist in it.
    `accept_separately`: requests over HTTP are created and accepted in two commits.
    """

    def __init__(
        self,
        name: str,
        *,
        words: Mapping[str, str],
        moves: Iterable[str],
        policy: Policy | None = None,
        accept_separately: bool = False,
        about: str = "",
    ) -> None:
        self.name = name
        self.about = about
        self.words = {_known(State, "state", state, f"words of {name}"): word for state, word in words.items()}
        self.moves = read_moves(moves)
        self.policy = policy or Policy()
        self.accept_separately = accept_separately
        self._check()

    @classmethod
    def of_mask(cls, name: str, mask: int) -> Machine:
        """A lifecycle of the allowed pairs of states, with the default names."""
        moves = [move for move in _CANON.values() if BIT[move.source, move.target] & mask]
        states = {state for move in moves for state in (move.source, move.target)}
        return cls(name, words={state: state.value for state in State if state in states}, moves=map(str, moves))

    @property
    def initial(self) -> State:
        return State.CREATED if State.CREATED in self.words else State.QUEUED

    @cached_property
    def mask(self) -> int:
        """The allowed pairs of states as a bit mask, stored with every job."""
        return sum({BIT[move.source, move.target] for move in self.moves})

    def has(self, source: State, target: State) -> bool:
        return bool(self.mask & BIT.get((source, target), 0))

    def move(self, verb: str, source: State, target: State) -> Move | None:
        return self._table.get((verb, source, target))

    def targets(self, verb: str, source: State) -> list[State]:
        """The target states of a verb from a state; empty if not allowed."""
        return [move.target for move in self.moves if move.verb == verb and move.source == source]

    def allows(self, verb: str, source: State, target: State, actor: Actor) -> bool:
        move = self.move(verb, source, target)
        return move is not None and actor in move.actors

    @cached_property
    def _table(self) -> dict[tuple[str, State, State], Move]:
        return {(move.verb, move.source, move.target): move for move in self.moves}

    # -- validation ---------------------------------------------------------------------------------------

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            self._refuse(f"its name must be lower case letters, digits, - and _, got {self.name!r}")
        self._check_words()
        self._check_moves()
        self._check_paths()

    def _check_words(self) -> None:
        seen: dict[str, State] = {}
        for state, word in self.words.items():
            if not word or not word.isprintable():
                self._refuse(f"the name of {state} must be printable, got {word!r}")
            if word in seen and not {seen[word], state} <= FINAL:
                both = f"{seen[word]} and {state} have the same name {word!r}"
                self._refuse(f"{both}; only final states may share one")
            seen[word] = state
        for needed in (State.QUEUED, State.RUNNING, State.SUCCEEDED, State.DEAD):
            if needed not in self.words:
                self._refuse(f"every lifecycle needs a name for {needed}: add it to words")

    def _check_moves(self) -> None:
        if len(self._table) != len(self.moves):
            doubled = next(m for m in self.moves if sum(m[:3] == n[:3] for n in self.moves) > 1)
            self._refuse(f"the transition '{doubled}' is listed twice")
        for move in self.moves:
            canon = _CANON.get(move[:3])
            if move.verb not in VERBS:
                raise UnknownName.of("verb", move.verb, list(VERBS))
            if move.source in FINAL:
                self._refuse(f"the transition '{move}' leaves a final state; redrive creates a new job instead")
            if canon is None:
                self._refuse(f"the transition '{move}' does not exist")
            for state in (move.source, move.target):
                if state not in self.words:
                    self._refuse(f"the transition '{move}' uses {state}, which has no name in words")
            if not move.actors <= canon.actors:
                self._refuse(f"the transition '{move}' names an actor that is not allowed; allowed: '{canon}'")

    def _check_paths(self) -> None:
        def need(verb: str, source: State, target: State, why: str, *, by: Actor | None = None) -> None:
            move = self.move(verb, source, target)
            if move is None or (by is not None and by not in move.actors):
                who = f" by {by}" if by else ""
                self._refuse(f"the transition '{verb}: {source} -> {target}{who}' is missing: {why}")

        need("claim", State.QUEUED, State.RUNNING, "no job could run")
        need("complete", State.RUNNING, State.SUCCEEDED, "no job could succeed")
        need(
            *("release", State.RUNNING, State.QUEUED),
            "a worker that stops must be able to release its jobs",
            by=Actor.WORKER,
        )
        if self.move("cancel", State.RUNNING, State.CANCELED):
            need("reap", State.RUNNING, State.CANCELED, "a cancel that the worker ignores could never end")
        if State.CREATED in self.words:
            need("accept", State.CREATED, State.QUEUED, "created jobs could never run")
        if State.RETRYING in self.words:
            for verb in ("fail", "reap"):
                need(verb, State.RUNNING, State.RETRYING, "no attempt could be retried")
            if not self.has(State.RETRYING, State.RUNNING):
                need(
                    *("requeue", State.RETRYING, State.QUEUED),
                    "without a claim from retrying, a retry would wait forever",
                    by=Actor.SYSTEM,
                )
        for verb in ("fail", "reap"):
            if not any(self.move(verb, source, State.DEAD) for source in (State.RUNNING, State.RETRYING)):
                self._refuse(f"'{verb}' never leads to dead: a job that always fails would run forever")

    def _refuse(self, why: str) -> NoReturn:
        raise Invalid(f"lifecycle {self.name!r}: {why}", code="invalid_lifecycle", lifecycle=self.name)
