"""What operators see of the generation service: `holdfast doctor` and `holdfast jobs why`."""

from __future__ import annotations

import asyncio

from holdfast.errors import Invalid, StorageError
from holdfast.extend import Checked, Tx, fail, ok, warn
from holdfast.model import Job
from holdfast.workloads.generation import objects
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.guard.classifier import load_classifier
from holdfast.workloads.generation.hooks import prompt_guard
from holdfast.workloads.generation.jobs import moderator

CHECK_SECONDS = 4.0  # less than a check may take
ADVICE = "see HOLDFAST_GENERATION_STORAGE_URL and its credentials"


@ext.check("storage")
async def storage_works() -> Checked:
    storage, key = objects.storage(), f"checks/{ext.app.ids.bits(64):016x}"
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await storage.check()
            await storage.put(key, b"a check of holdfast doctor")
            await storage.delete(key)
    except TimeoutError:
        return fail(f"{storage.url} does not respond within {CHECK_SECONDS:g} s", ADVICE)
    except (StorageError, Invalid) as error:
        return fail(error.full, ADVICE)
    return ok(f"images are kept in {storage.url}")


@ext.check("prompt_guard")
async def lists_are_valid(tx: Tx) -> Checked:
    try:
        guard = prompt_guard()
        guard.refuses("")
    except Invalid as error:
        return fail(error.message, "mend the file, and start the processes again")
    if guard.problem is not None:
        return warn(guard.problem, "mend the file; until then the lists before it are in force")
    return ok("the lists of the prompt guard are valid")


@ext.check("plug_ins")
async def plug_ins_are_installed() -> Checked:
    try:
        classifier = load_classifier(ext.settings)
        if classifier is not None:
            await classifier.close()
        moderator()
    except Invalid as error:
        return fail(error.message, "correct the settings, or install the plug-in, and start the processes again")
    return ok(f"classifier of prompts: {ext.settings.classifier or 'none'}; moderator: {ext.settings.moderator}")


@ext.explain
async def generation_of_job(tx: Tx, job: Job) -> str:
    row = await tx.one(ext.q.request_of_job, job_id=job.id)
    if row is None:
        return "no generation has it as its newest job"
    return f"its generation {row['id']} of {row['user_id']} is {row['status']}, with {row['credits']} credits reserved"
