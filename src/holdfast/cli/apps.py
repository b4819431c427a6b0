"""`--app module:attribute`: the app that a command works for."""

from __future__ import annotations

import argparse
import os
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
    from holdfast.worker.loading import load

    try:
        found = load(reference, [os.getcwd()])
    except ModuleNotFoundError as error:
        module = reference.partition(":")[0]
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise Invalid(
                f"there is no module {module!r}; is it installed, or a file in this directory?", code="invalid_app"
            ) from None
        raise _broken(reference, error) from error
    except Invalid:
        raise
    except Exception as error:
        raise _broken(reference, error) from error
    if not isinstance(found, App):
        raise Invalid(
            f"{reference} is a {type(found).__name__}, not a holdfast.App; name the variable that holds the App",
            code="invalid_app",
        )
    return found


def _broken(reference: str, error: Exception) -> Invalid:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Invalid(
        f"{reference} cannot be imported: {type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
        code="invalid_app",
    )
