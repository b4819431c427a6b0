"""Libraries that are not part of the base install: who needs one that is not there is told what to type."""

from importlib import import_module

from holdfast.errors import Invalid


def require(library: str, *, extra: str, who: str) -> None:
    """`who`: the setting that asks for it. It is imported, for one that is there may still not work."""
    try:
        import_module(library)
    except ImportError:
        raise Invalid(
            f"{who} needs a library that is not installed: pip install 'holdfast[{extra}]'", code="extra_missing"
        ) from None
