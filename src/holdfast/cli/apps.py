"""`--app module:attribute`: the app that a command works for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.app import App


def add_app_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--app",
        metavar="MODULE:APP",
        required=required,
        help="where the app is, such as tasks:app; looked for in the current directory first",
    )


def load_app(reference: str) -> App:
    """Import the app, with the current directory first on the path. Whatever is wrong becomes one sentence."""
    from holdfast.app import App

    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise Invalid(f"--app is MODULE:APP, such as tasks:app; got {reference!r}", code="invalid_app")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _attribute(_import(module_name), module_name, attribute)
    if not isinstance(found, App):
        raise Invalid(
            f"{reference} is a {type(found).__name__}, not a holdfast.App; name the variable that holds the App",
            code="invalid_app",
        )
    return found


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Invalid(
                f"there is no module {name!r}; is it installed, or a file in {os.getcwd()}?", code="invalid_app"
            ) from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> Invalid:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Invalid(
        f"module {name!r} cannot be imported: {type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
        code="invalid_app",
    )


def _attribute(module: object, module_name: str, attribute: str) -> object:
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise Invalid(f"module {module_name!r} has no {attribute!r}", code="invalid_app") from None
