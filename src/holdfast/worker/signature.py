"""The signature of a handler: validates its payload and its result by its annotations, as JSON, never pickle."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.model.names import kind_of
from holdfast.model.payload_schema import SCHEMA_BYTES_MAX
from holdfast.worker.context import Context, SyncContext
from holdfast.worker.not_json import find_fault
from holdfast.worker.outcomes import SAID

_CONTEXTS = (Context, SyncContext)
_SCALARS = (str, int, float, bool)


class Signature:
    """`payload` validates a call before it is stored; `arguments` and `result` validate an execution."""

    def __init__(self, function: Callable[..., Any], job_type: str) -> None:
        self._type, self._what = job_type, f"payload of {job_type}"
        hints = _hints(function, job_type)
        parameters = inspect.signature(function).parameters.values()
        self.context = next((p.name for p in parameters if _without_none(hints.get(p.name)) in _CONTEXTS), None)
        own = [parameter for parameter in parameters if parameter.name != self.context]
        for fault in _faults(function, own, _without_none(hints.get(self.context or ""))):
            raise Invalid(f"job type {job_type}: {fault}", code="invalid_handler")
        self._rest = next((hints.get(p.name, Any) for p in own if p.kind is p.VAR_KEYWORD), None)
        self.open = self._rest is not None
        named = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
        self.names = tuple(parameter.name for parameter in named)
        self._bound = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in own])
        self.shape = _shape(named, hints, job_type, closed=not self.open)
        self._required = {parameter.name for parameter in named if parameter.default is parameter.empty}
        self._scalars = {name: kind for name in self.names if (kind := hints.get(name)) in _SCALARS}
        self._returns = _promised(hints.get("return", Any), job_type)
        self._free = self._returns is Any or self._returns is type(None)

    @property
    def schema(self) -> str | None:
        """The JSON Schema of the payload, as text; None if the annotations cannot be expressed in one."""
        try:
            return _schema_of(self.shape, self._rest)
        except Exception:  # a third-party model may raise anything
            return None

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments as JSON; raises if the function could not take them."""
        named = self._named(args, kwargs) if args else kwargs
        payload: dict[str, Any] = _plain(named, f"arguments of {self._type}", "invalid_payload")
        if self.open:
            self.arguments(payload)
        else:
            _converted(payload, self.shape, self._what, "invalid_payload")
        return payload

    def payloads(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """`payload` of many calls by keyword, in a few steps for all of them."""
        if self.open:
            return [self.payload((), call) for call in calls]
        payloads: list[dict[str, Any]] = _plain(calls, f"arguments of {self._type}", "invalid_payload")
        _converted(payloads, list[self.shape], self._what, "invalid_payload")  # type: ignore[name-defined]
        return payloads

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            called = self._bound.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise Invalid(f"job type {self._type}: {error}", code="invalid_payload") from None
        rest: dict[str, Any] = next((called.pop(name) for name in list(called) if name not in self.names), {})
        return {**called, **rest}

    def arguments(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function; missing fields are left to its defaults."""
        if self.is_plain(payload):
            return dict(payload)
        shaped = _converted(payload, self.shape, self._what, "invalid_payload")
        arguments: dict[str, Any] = msgspec.structs.asdict(shaped)
        if len(self._required) < len(self.names):
            arguments = {name: value for name, value in arguments.items() if value is not msgspec.UNSET}
        for name in payload.keys() - self.names if self.open else ():
            arguments[name] = _converted(payload[name], self._rest, f"{self._what}, {name}", "invalid_payload")
        return arguments

    def is_plain(self, payload: Any) -> bool:
        """Whether a conversion would change nothing: it takes more time than to look at the types of a few scalars."""
        if type(payload) is not dict:
            return False
        scalars = self._scalars
        for name, value in payload.items():
            if scalars.get(name) is not type(value):
                return False
        return len(payload) == len(self.names) or self._required <= payload.keys()

    def result(self, value: Any) -> Any:
        """The return value as JSON; raises if it does not match the annotation."""
        if value is None and self._free:
            return None
        plain = _plain(value, f"result of {self._type}", "result_not_json", path="result")
        encode(plain, "result", max_bytes=RESULT_BYTES_MAX)
        self.returned(plain)
        return plain

    def returned(self, plain: Any) -> Any:
        """A stored result converted back to the annotated type."""
        return plain if self._free else _converted(plain, self._returns, f"result of {self._type}", "invalid_result")


def _hints(function: Callable[..., Any], job_type: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # an unknown name, or any other error of an annotation
        raise Invalid(
            f"job type {job_type}: cannot read the annotations of {function.__qualname__}: {error}",
            code="invalid_handler",
        ) from error


def _without_none(annotation: Any) -> Any:
    """`Context | None = None`, for a function that is also called directly, is `Context` for a worker."""
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    return kinds[0] if _is_union(annotation) and len(kinds) == 1 else annotation


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _faults(function: Callable[..., Any], parameters: list[inspect.Parameter], context: Any) -> Iterator[str]:
    """Why the function cannot be a handler."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield "it yields, so calling it runs nothing; return its result"
    if context is SyncContext and inspect.iscoroutinefunction(function):
        yield "an async function gets a Context, not a SyncContext"
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            yield f"parameter {parameter.name!r} has no name in a payload; make it a keyword"
    for parameter in parameters:  # those that by convention are not payload
        if parameter.name == "ctx" and parameter.annotation is parameter.empty:
            yield "parameter 'ctx' has no annotation; write `ctx: Context`, or in a plain function `ctx: SyncContext`"
        if parameter.name in ("self", "cls") and parameter is parameters[0]:
            yield f"it is a method: a worker cannot pass {parameter.name!r}; use a function or a bound method"


def _shape(named: list[inspect.Parameter], hints: dict[str, Any], job_type: str, *, closed: bool) -> type[Any]:
    """Defaults are applied by the function: here they only make the field optional."""
    fields: list[Any] = [
        (p.name, hints.get(p.name, Any)) if p.default is p.empty else (p.name, hints.get(p.name, Any), msgspec.UNSET)
        for p in named
    ]
    shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=closed)
    _check_kind(shape, job_type)
    return shape


def _promised(returns: Any, job_type: str) -> Any:
    """The type of the result, without control values: `Snooze` in `-> dict | Snooze` is not a result."""
    if _is_union(returns):
        results = [kind for kind in typing.get_args(returns) if kind not in SAID]
        returns = functools.reduce(operator.or_, results) if results else Any
    if returns in (*SAID, typing.NoReturn, typing.Never):
        returns = Any
    _check_kind(returns, job_type)
    return returns


def _check_kind(kind: Any, job_type: str) -> None:
    """Raises at definition if an annotation cannot be validated against."""
    try:
        with contextlib.suppress(msgspec.ValidationError):  # {} lacks required fields, as expected
            msgspec.convert({}, kind, dec_hook=_from_json)
    except TypeError as error:
        raise Invalid(f"job type {job_type}: {error}", code="invalid_handler") from None


def _schema_of(shape: type[Any], rest: Any) -> str | None:
    defined: dict[str, Any] = {}

    def of_model(kind: type[Any]) -> dict[str, Any]:
        """For pydantic models; their inner definitions are moved to ours under unique names."""
        name = f"{kind.__module__}.{kind.__qualname__}"
        schema: dict[str, Any] = kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        defined.update({f"{name}.{inner}": body for inner, body in schema.pop("$defs", {}).items()})
        return schema

    kinds = [shape] if rest in (None, Any) else [shape, rest]
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=of_model, ref_template="#/$defs/{name}")
    top = components.pop(schemas[0]["$ref"].removeprefix("#/$defs/"))
    top.pop("title", None)
    if len(schemas) == 2:
        top["additionalProperties"] = schemas[1]
    whole = _lenient({**top, **({"$defs": {**components, **defined}} if components or defined else {})})
    text = msgspec.json.encode(whole, order="deterministic")
    return text.decode() if len(text) <= SCHEMA_BYTES_MAX else None


def _lenient(schema: Any) -> Any:
    """Where msgspec accepts more than its schema says: a decimal may also be a number."""
    if isinstance(schema, list):
        return [_lenient(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal" and schema.get("type") == "string":
        return {**schema, "type": ["string", "number"]}
    return {name: _lenient(value) for name, value in schema.items()}


def _converted(plain: Any, kind: Any, what: str, code: str) -> Any:
    try:
        return msgspec.convert(plain, kind, dec_hook=_from_json, str_keys=True)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise Invalid(f"{what}: {error}", code=code) from None


def _plain(value: Any, what: str, code: str, path: str = "") -> Any:
    try:
        return _builtins(value)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        fault = find_fault(value, path, _builtins)
        raise Invalid(
            f"cannot store the {what} as JSON: {fault}; use plain types, a dataclass or a model", code=code
        ) from None


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True)


def _to_json(value: Any) -> Any:
    """Encodes pydantic models."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise NotImplementedError(kind_of(value))


def _from_json(kind: type[Any], value: Any) -> Any:
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(msgspec.json.encode(value))
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise TypeError(f"{getattr(kind, '__qualname__', kind)} cannot be read from JSON; use plain types or a model")
