"""A handler's annotations, as the shape of its payload and its result. JSON in and JSON out, never pickle."""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.worker.context import Context, SyncContext

_CONTEXTS = (Context, SyncContext)


class Signature:
    """`payload` checks a call before it is stored; `arguments` and `result` check an execution of it."""

    def __init__(self, function: Callable[..., Any], job_type: str) -> None:
        self._type = job_type
        hints = _hints(function, job_type)
        parameters = inspect.signature(function).parameters.values()
        self.context = next((p.name for p in parameters if hints.get(p.name) in _CONTEXTS), None)
        own = [parameter for parameter in parameters if parameter.name != self.context]
        _refuse_unnamed(own, job_type)
        self.open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in own)
        named = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
        self.names = tuple(parameter.name for parameter in named)
        self._bound = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in own])
        self._shape = _shape(named, hints, job_type, closed=not self.open)
        self._returns = hints.get("return", Any)
        self._free = self._returns is Any or self._returns is type(None)

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The call as JSON, if the function could take it."""
        payload: dict[str, Any] = _plain(
            self._named(args, kwargs) if args else kwargs, f"payload of {self._type}", "invalid_payload"
        )
        self._shaped(payload)
        return payload

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            called = self._bound.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise Invalid(f"job type {self._type}: {error}", code="invalid_payload") from None
        rest = next((called.pop(name) for name in list(called) if name not in self.names), {})
        return {**called, **rest}

    def _shaped(self, payload: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(payload, self._shape, dec_hook=_from_json)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise Invalid(f"payload of {self._type}: {error}", code="invalid_payload") from None

    def arguments(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function; what the payload leaves out is left to the function's own defaults."""
        shaped = self._shaped(payload)
        arguments = {name: value for name in self.names if (value := getattr(shaped, name)) is not msgspec.UNSET}
        if self.open:
            arguments.update({name: value for name, value in payload.items() if name not in arguments})
        return arguments

    def result(self, value: Any) -> Any:
        """What the function returned, as JSON, if it is what its annotation promises."""
        if value is None and self._free:
            return None
        plain = _plain(value, f"result of {self._type}", "result_not_json")
        encode(plain, "result", max_bytes=RESULT_BYTES_MAX)
        self.returned(plain)
        return plain

    def returned(self, plain: Any) -> Any:
        """A stored result as the function's annotation has it: the model again, not its JSON."""
        if self._free:
            return plain
        try:
            return msgspec.convert(plain, self._returns, dec_hook=_from_json)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise Invalid(f"result of {self._type}: {error}", code="invalid_result") from None


def _hints(function: Callable[..., Any], job_type: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a name that cannot be found, or whatever else an annotation may evaluate to
        raise Invalid(
            f"job type {job_type}: cannot read the annotations of {function.__qualname__}: {error}",
            code="invalid_handler",
        ) from error


def _refuse_unnamed(parameters: list[inspect.Parameter], job_type: str) -> None:
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise Invalid(
                f"job type {job_type}: parameter {parameter.name!r} has no name in a payload; make it a keyword",
                code="invalid_handler",
            )


def _shape(named: list[inspect.Parameter], hints: dict[str, Any], job_type: str, *, closed: bool) -> type[Any]:
    """A default is the function's own business: here it only means that the name may be missing."""
    fields: list[Any] = [
        (p.name, hints.get(p.name, Any)) if p.default is p.empty else (p.name, hints.get(p.name, Any), msgspec.UNSET)
        for p in named
    ]
    try:
        shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=closed)
        with contextlib.suppress(msgspec.ValidationError):  # {} lacks something, as it should
            msgspec.convert({}, shape, dec_hook=_from_json)
        return shape
    except TypeError as error:
        raise Invalid(f"job type {job_type}: {error}", code="invalid_handler") from None


def _plain(value: Any, what: str, code: str) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True)
    except (TypeError, ValueError, RecursionError, NotImplementedError) as error:
        raise Invalid(f"{what} is not JSON: {error}", code=code) from None


def _to_json(value: Any) -> Any:
    """Models that are not msgspec's own: pydantic's."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"a {type(value).__qualname__}")


def _from_json(kind: type[Any], value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise TypeError(f"{getattr(kind, '__qualname__', kind)} cannot be read from JSON; use plain types or a model")
