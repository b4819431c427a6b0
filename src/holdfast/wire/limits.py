"""Request and response bodies of the admin API: limits, and the weights of tenants."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from holdfast.model.limits import RATE_MAX, UNITS_MAX, WEIGHT_MAX
from holdfast.wire.base import Body, ResponseBody, Time

# These limits are only documented in the schema; the engine checks them and answers `invalid_field`.
Units = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": UNITS_MAX})]
Rate = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": RATE_MAX})]
Burst = Annotated[float, Meta(extra_json_schema={"minimum": 1, "maximum": UNITS_MAX})]
Weight = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": WEIGHT_MAX})]


class LimitBody(Body):
    """A limit as it shall be; at least one field. What is left out or null is not limited; the weight of a tenant is
    then 1."""

    concurrency: Units | UnsetType | None = UNSET
    rate: Rate | str | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    weight: Weight | UnsetType | None = UNSET


class LimitValues(ResponseBody):
    """`rate`: units a second; `burst`: units that may be saved up."""

    concurrency: int | None = None
    rate: float | None = None
    burst: float | None = None


class AdminLimit(ResponseBody):
    """A limit in force; without `concurrency` and `rate` there is none. `used`: the units that running jobs hold; not
    of a limit for each key. `declared`: what the app declares; `setBy`: who set something else. `weight`: the share of
    claims of a tenant beside other tenants."""

    name: str
    concurrency: int | None = None
    rate: float | None = None
    burst: float | None = None
    weight: int | None = None
    used: int | None = None
    declared: LimitValues | None = None
    set_by: str | None = None
    updated_at: Time | None = None


class LimitsResponse(ResponseBody):
    limits: list[AdminLimit]
