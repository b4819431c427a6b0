"""What goes over HTTP: every body and every answer, once for servers and clients. camelCase out; in, both cases."""

from holdfast.wire.admin import *
from holdfast.wire.base import *
from holdfast.wire.health import *
from holdfast.wire.jobs import *
from holdfast.wire.problems import *
from holdfast.wire.webhooks import *
from holdfast.wire.work import *
