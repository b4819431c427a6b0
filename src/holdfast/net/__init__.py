"""Outbound HTTP for extensions and webhooks: a client that refuses internal addresses and limits time and size."""

from holdfast.errors import (
    AddressRefused,
    AnswerTooLarge,
    MalformedAnswer,
    OutboundError,
    OutboundTimeout,
    TooManyRedirects,
    Unreachable,
)
from holdfast.net.client import DEFAULT_HEADERS, GuardedClient
from holdfast.net.egress_rules import EgressRules, Resolver, Target
from holdfast.net.limits import Limits
from holdfast.net.responses import Response, StreamedResponse

__all__ = [
    "DEFAULT_HEADERS",
    "AddressRefused",
    "AnswerTooLarge",
    "EgressRules",
    "GuardedClient",
    "Limits",
    "MalformedAnswer",
    "OutboundError",
    "OutboundTimeout",
    "Resolver",
    "Response",
    "StreamedResponse",
    "Target",
    "TooManyRedirects",
    "Unreachable",
]
