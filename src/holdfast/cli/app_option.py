"""The option `--app MODULE:APP`: imports the app and reports import errors in one sentence."""

from __future__ import annotations

import argparse
import os
import sysconfig
import traceback
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.errors import Invalid
from holdfast.model.names import kind_of
from holdfast.settings import load

if TYPE_CHECKING:
    from holdfast.assembly.engine import AppParts
    from holdfast.sdk.app import App


def named_app(options: argparse.Namespace) -> App | None:
    """The app that `--app` or HOLDFAST_APP names, imported once, on the database that `--database` may name.

    A command of an extension has a `default_app`.
    """
    reference = options.app or load(extensions=None).app or getattr(options, "default_app", None)
    if not reference:
        return None
    if getattr(options, "loaded_app", None) is None:
        options.loaded_app = load_app(reference)
        load(extensions=options.loaded_app.sections)  # rejects misspelled settings of the app's extensions
        if options.database is not None:
            options.loaded_app.settings = replace(options.loaded_app.settings, database_url=options.database)
            options.loaded_app.loaded_as = ""
    found: App = options.loaded_app
    return found


def required_app(options: argparse.Namespace) -> App:
    if (app := named_app(options)) is None:
        raise _invalid("no app given: use --app MODULE:APP, such as tasks:app, or set HOLDFAST_APP")
    return app


def app_parts(options: argparse.Namespace) -> AppParts:
    from holdfast.assembly.engine import AppParts

    app = named_app(options)
    return AppParts() if app is None else app.parts()


def import_reference(reference: str) -> Any:
    """Import it with the current directory first on the path. Any error becomes one sentence."""
    from holdfast.worker.processes.app_loader import load as imported

    try:
        return imported(reference, [os.getcwd()])
    except ModuleNotFoundError as error:
        module = reference.partition(":")[0]
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise _invalid(f"there is no module {module!r}; is it installed, or a file in this directory?") from None
        raise _import_error(reference, error) from error
    except Exception as error:
        raise _import_error(reference, error) from error


def load_app(reference: str) -> App:
    from holdfast.sdk.app import App

    found = import_reference(reference)
    if not isinstance(found, App):
        raise _invalid(f"{reference} is {kind_of(found)}, not a holdfast.App; name the variable that holds the App")
    if not found.handlers and not found.extensions:
        raise _invalid(
            f"{reference} defines no jobs; write `@app.job()` above a function, or import the modules that do"
        )
    found.loaded_as = reference
    return found


def _import_error(reference: str, error: Exception) -> Invalid:
    """The error, and the line in the app's own code."""
    location = _location(error)
    if isinstance(error, Invalid):
        return Invalid(f"{error.message} ({location})" if location else error.message, code=error.code)
    message = error.msg if isinstance(error, SyntaxError) else error
    where = f" ({location})" if location else ""
    return _invalid(f"{reference} cannot be imported: {type(error).__name__}: {message}{where}")


def _invalid(message: str) -> Invalid:
    return Invalid(message, code="invalid_app")


def _location(error: Exception) -> str:
    """The innermost line of the app: not of Python, Holdfast or another library."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_app_code(frame.filename)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _is_app_code(file: str) -> bool:
    not_app = ("<", sysconfig.get_path("stdlib"), f"{files('holdfast')}")
    return not file.startswith(not_app) and "site-packages" not in file
