"""Logs each attempt that has ended: how long it ran, its outcome, and the new state of its job.

Written when its report is stored. Where job logging is off, only failed attempts are logged, as warnings.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model.reports import Settled
from holdfast.observe.log_formats import LogFormat
from holdfast.observe.logs import ATTEMPTS, Log
from holdfast.observe.state_names import state_name
from holdfast.redaction import redacted, redacted_end, redacted_value, text_of
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Recorded, Rejected, Released

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution
    from holdfast.worker.source import Answers

KNOWN_MAX = 10_000
ERROR_CHARS_MAX = 200
SUCCEEDED, FAILED, REJECTED, RELEASED, LOST = "succeeded", "failed", "rejected", "released", "lost"

_log = logging.getLogger(ATTEMPTS)
_OUTCOMES: dict[type[Any], str] = {
    Completed: SUCCEEDED,
    Recorded: SUCCEEDED,
    Failed: FAILED,
    Rejected: REJECTED,
    Released: RELEASED,
}
_ERRORS = (Failed, Rejected)
_LEVELS: dict[type[Any], int] = {Failed: logging.WARNING, Abandoned: logging.WARNING}


class AttemptLog:
    def __init__(self, log: Log | None = None, lifecycles: Lifecycles | None = None) -> None:
        self._log, self._lifecycles = log, lifecycles or Lifecycles()
        self._known: dict[Any, tuple[str, str] | None] = {}

    def ended(self, group: Sequence[tuple[Execution, Outcome]], answers: Answers) -> None:
        """The reports of these are stored or rejected."""
        if self._log is None:
            for run, outcome in group:
                if isinstance(outcome, Failed):
                    _warn(run, outcome)
            return
        states = [answer.state if isinstance(answer, Settled) else None for answer in answers]
        self._write(self._log, group, states)

    def abandoned(self, group: Sequence[tuple[Execution, Outcome]]) -> None:
        """The leases of these are lost."""
        if self._log is not None:
            self._write(self._log, group, [None] * len(group))

    def _write(self, log: Log, group: Sequence[tuple[Execution, Outcome]], states: Sequence[State | None]) -> None:
        """`None` for a state: the lease is lost."""
        head, timed, least = log.head(), log.form.timed, _log.getEffectiveLevel()
        id_chars = log.form.id_chars
        pieces: list[str] = []
        for (run, outcome), state in zip(group, states, strict=True):
            around = self._known_around(log.form, least, run, outcome, state)
            if around is not None:
                trace = None if run.span is None else run.span.get_span_context().trace_id or None
                pieces += (head, around[0], run.lease.id[:id_chars], timed(run.seconds or 0.0, trace), around[1])
        log.put(pieces)

    def _known_around(
        self, form: LogFormat, least: int, run: Execution, outcome: Outcome, state: State | None
    ) -> tuple[str, str] | None:
        """Most attempts of a job type end alike: their common text is cached. None: not to be logged."""
        lease, kind = run.lease, type(outcome)
        if kind in _ERRORS:
            return self._around(form, least, run, outcome, state)
        if run.seconds is None:  # released before it began
            return None
        facts = (lease.type, lease.queue, lease.tenant, lease.lifecycle, lease.attempt, lease.max_attempts)
        key = (facts, kind, state, least)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= KNOWN_MAX:  # clients choose some of its keys
                self._known.clear()
            found = self._known[key] = self._around(form, least, run, outcome, state)
            return found

    def _around(
        self, form: LogFormat, least: int, run: Execution, outcome: Outcome, state: State | None
    ) -> tuple[str, str] | None:
        """The text before the job's id and after its duration."""
        lease = run.lease
        how = LOST if state is None else _OUTCOMES[type(outcome)]
        level = _LEVELS.get(type(outcome), logging.INFO)
        if level < least:
            return None
        went = None if state is None else state_name(self._lifecycles, lease.lifecycle, _went(state, outcome))
        fields: dict[str, Any] = {
            "job_type": lease.type,
            "queue": lease.queue,
            "attempt": lease.attempt,
            "of": lease.max_attempts,
            "retries": lease.attempt - 1,
            "outcome": how,
            "state": went,
            **_error(outcome),
        }
        if lease.tenant != "default":
            fields["tenant"] = lease.tenant
        message = f"attempt {lease.attempt} of {lease.max_attempts} {how}"
        if went not in (None, how):
            message += f", now {went}"
        name = logging.getLevelName(level).lower()
        trouble = {"exception": text} if (text := traceback_of(outcome)) else {}
        return form.around_id(name, ATTEMPTS, message, redacted_value(fields), trouble=trouble, timed=True)


def _error(outcome: Outcome) -> dict[str, str]:
    if not isinstance(outcome, _ERRORS):
        return {}
    code, message = text_of(outcome.code), text_of(outcome.message)
    return {"error_code": redacted(code, ERROR_CHARS_MAX), "error": redacted(message, ERROR_CHARS_MAX)}


def traceback_of(outcome: Outcome) -> str:
    """The traceback of the handler's error, without secrets."""
    context = outcome.context if isinstance(outcome, Failed) else None
    told = context.get("traceback") if isinstance(context, dict) else None
    return redacted_end(text_of(told)).rstrip() if told else ""


def _went(state: State, outcome: Outcome) -> State:
    """A server does not tell the states of an unfinished job apart."""
    return State.RETRYING if isinstance(outcome, Failed) and state not in FINAL else state


def _warn(run: Execution, outcome: Failed) -> None:
    if _log.isEnabledFor(logging.WARNING):
        lease = run.lease
        message = "job %s (%s), attempt %d of %d, failed: %s %.200r"
        said = (lease.id, lease.type, lease.attempt, lease.max_attempts, outcome.code, outcome.message)
        record = _log.makeRecord(_log.name, logging.WARNING, __file__, 0, message, said, None)
        record.exc_text = traceback_of(outcome) or None  # every formatter puts it below the message
        _log.handle(record)
