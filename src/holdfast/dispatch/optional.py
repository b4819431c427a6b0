"""Checks that an optional library is installed, and names the extra to install if not."""

from importlib import import_module

from holdfast.errors import Invalid


def require(library: str, *, extra: str, who: str) -> None:
    """`who`: the setting that needs it. It is imported, because an installed library may still be broken."""
    try:
        import_module(library)
    except ImportError:
        raise Invalid(
            f"{who} needs a library that is not installed: pip install 'holdfast[{extra}]'", code="extra_missing"
        ) from None
