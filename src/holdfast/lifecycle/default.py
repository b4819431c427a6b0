"""The `default` lifecycle: every transition that a job can make."""

from holdfast.lifecycle.machine import Machine
from holdfast.lifecycle.states import State

DEFAULT = Machine(
    "default",
    about="General purpose: retries are claimed directly; jobs can be canceled or rejected before or during their run.",
    words={state.value: state.value for state in State},
    moves=[
        "accept:   created -> queued                      by client, api, system",
        "claim:    queued, retrying -> running            by worker",
        "complete: running -> succeeded                   by worker",
        "fail:     running -> retrying, dead              by worker",
        "fail:     retrying -> dead                       by worker, system",
        "release:  running -> queued                      by worker, system",
        "reject:   queued -> rejected                     by system",
        "reject:   running -> rejected                    by worker",
        "cancel:   created, queued, retrying -> canceled  by client, api, system",
        "cancel:   running -> canceled                    by worker, system",
        "reap:     running -> retrying, dead, canceled    by system",
        "requeue:  retrying -> queued                     by api, system",
    ],
)
