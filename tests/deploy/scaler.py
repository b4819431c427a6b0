"""KEDA's part: how its metrics-api scaler asks, what it reads, and what the autoscaler makes of it."""

import math
import re
from typing import Any
from urllib.parse import urlsplit

from holdfast.model.key import Kind, NewKey, Scope
from tests.server.steps import Served, bearer


def at(location: str, answer: Any) -> Any:
    """What stands at a plain path as gjson has it: names with dots between them; a dot in a name has a backslash."""
    for name in re.findall(r"(?:[^.\\]|\\.)+", location):
        answer = answer[re.sub(r"\\(.)", r"\1", name)]
    return answer


async def asked_by_keda(served: Served, trigger: dict[str, Any], key: str) -> float:
    """As the metrics-api scaler does it with `authMode: bearer`: a 200, and a number at its location."""
    metadata = trigger["metadata"]
    assert metadata["authMode"] == "bearer"
    url = urlsplit(metadata["url"])
    answer = await served.http.get(f"{url.path}?{url.query}", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    value = at(metadata["valueLocation"], answer.json())
    assert type(value) in (int, float)
    return float(value)


async def reading_key(served: Served) -> str:
    return (await served.engine.keys.create(NewKey(kind=Kind.ADMIN, scopes=[Scope.ADMIN_READ]))).text


def workers_for(value: float, trigger: dict[str, Any]) -> int:
    """What the autoscaler makes of it: an average over all workers is to be the target."""
    assert trigger["metricType"] == "AverageValue"
    return math.ceil(value / float(trigger["metadata"]["targetValue"]))
