"""Keys: what they look like, what they allow. Only a digest of the secret part is ever stored."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a key may do. A client's key has the first three unless it is told otherwise, a worker's has `work`."""

    JOBS_CREATE = "jobs:create"
    JOBS_READ = "jobs:read"
    JOBS_CANCEL = "jobs:cancel"
    WORK = "work"
    ADMIN_READ = "admin:read"
    ADMIN_PAYLOAD = "admin:payload"
    ADMIN_OPERATE = "admin:operate"
    ADMIN_KEYS = "admin:keys"
    ADMIN_WEBHOOKS = "admin:webhooks"


class Kind(StrEnum):
    CLIENT = "client"
    WORKER = "worker"
    ADMIN = "admin"


SCOPES = {
    Kind.CLIENT: (Scope.JOBS_CREATE, Scope.JOBS_READ, Scope.JOBS_CANCEL),
    Kind.WORKER: (Scope.WORK,),
    Kind.ADMIN: (
        *(Scope.ADMIN_READ, Scope.ADMIN_PAYLOAD, Scope.ADMIN_OPERATE, Scope.ADMIN_KEYS, Scope.ADMIN_WEBHOOKS),
    ),
}
