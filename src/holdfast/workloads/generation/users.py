"""Who a request is of: the subject of the key, never a field of the body."""

from holdfast.extend import Request


def user_of(request: Request) -> str:
    """The subject of the key, else its id; `default` where no key is needed."""
    return request.caller.subject
