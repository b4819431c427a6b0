"""The code of an error, with the field that it is about."""

from holdfast.errors import HoldfastError, InvalidField


def code_of(error: HoldfastError) -> str:
    return f"{error.code} {error.fields['field']}" if isinstance(error, InvalidField) else error.code
