"""Request and response bodies of the HTTP API, shared by server and clients.

Responses are in camelCase; requests may also use snake_case.
"""

from holdfast.wire.admin import *
from holdfast.wire.base import *
from holdfast.wire.health import *
from holdfast.wire.jobs import *
from holdfast.wire.limits import *
from holdfast.wire.problems import *
from holdfast.wire.webhooks import *
from holdfast.wire.work import *
