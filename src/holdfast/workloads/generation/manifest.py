"""What every process may know of the generation service, whether or not it runs it. Imports none of its extras."""

from holdfast.manifest import Argument, Command, CommandGroup, Manifest
from holdfast.workloads.generation.lifecycle import GENERATION
from holdfast.workloads.generation.settings import Settings

DEFAULT_TENANT = "default"
_COMMANDS = "holdfast.workloads.generation.commands"
_USER = Argument("user", about="the user: the subject of a key, or its id")
_TENANT = Argument("--tenant", about="the tenant of the user", default=DEFAULT_TENANT)

CREDITS = CommandGroup(
    name="credits",
    about="show, grant and check the credits of the generation service",
    commands=(
        Command(
            name="check",
            about="prove the ledger of credits",
            more="It reads all entries: each must follow from the one before it, and reserved credits must be those of "
            "unfinished jobs. The exit code is 1 if something is wrong.",
            run=f"{_COMMANDS}:check",
            examples=("holdfast credits check", "holdfast credits check --json"),
        ),
        Command(
            name="show",
            about="show the credits of a user",
            run=f"{_COMMANDS}:show",
            examples=("holdfast credits show alice",),
            arguments=(_USER, _TENANT),
        ),
        Command(
            name="grant",
            about="grant credits to a user",
            run=f"{_COMMANDS}:grant",
            examples=('holdfast credits grant alice 50 --reason "a refund"',),
            arguments=(
                _USER,
                Argument("amount", about="number of credits", kind=int, least=1, most=10**12),
                Argument("--reason", about="why, for the statement and the audit log", required=True),
                _TENANT,
            ),
        ),
        Command(
            name="statement",
            about="list the newest entries of a user",
            run=f"{_COMMANDS}:statement",
            examples=("holdfast credits statement alice --limit 100",),
            arguments=(
                _USER,
                Argument("--limit", about="number of entries, 1 to 500", kind=int, least=1, most=500, default=20),
                _TENANT,
            ),
        ),
    ),
)

manifest = Manifest(
    name="generation",
    settings=Settings,
    lifecycles=(GENERATION,),
    job_types=(
        "GENERATION_RUN",
        "GENERATION_THUMBNAIL",
        "GENERATION_DELETE",
        "GENERATION_ABANDON",
        "GENERATION_SWEEP",
    ),
    scopes=("generation:read", "generation:write"),
    commands=(CREDITS,),
    app="holdfast.workloads.generation:app",
)
