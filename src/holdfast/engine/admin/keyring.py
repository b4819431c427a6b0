"""Keys: who holds which, and which of them are good."""

from __future__ import annotations

from holdfast.engine.admin import keys as _keys
from holdfast.engine.admin import sessions as _sessions
from holdfast.engine.admin import workers as _workers
from holdfast.engine.admin.audited import Audited
from holdfast.model import Worker
from holdfast.model.key import Key, Kind, NewKey
from holdfast.store import Tx


class Keyring(Audited):
    """The part of the engine that knows who may come in."""

    async def register_with_key(
        self, new: _workers.NewWorker, queues: list[str] | None = None, *, by: str | None = None
    ) -> tuple[Worker, str]:
        """A worker that comes over HTTP, and the text of its key, which may be bound to some queues."""
        return await self._by(
            by,
            lambda tx: _keys.register(tx, self.rules, new, queues),
            lambda made: ("worker.register", made[0].id, {"name": new.name, "queues": queues}),
        )

    async def create_key(self, new: NewKey, *, by: str | None = None) -> _keys.Issued:
        return await self._by(
            by, lambda tx: _keys.create(tx, self.rules, new), lambda made: ("key.create", made.key.id, made.key.rights)
        )

    async def rotate_key(self, key_id: str, *, overlap_seconds: float = 86_400, by: str | None = None) -> _keys.Issued:
        """For the overlap both keys are good."""
        return await self._by(
            by,
            lambda tx: _keys.rotate(tx, self.rules, key_id, overlap_seconds),
            lambda made: ("key.rotate", key_id, {"heir": made.key.id, "overlapSeconds": overlap_seconds}),
        )

    async def revoke_key(self, key_id: str, *, by: str | None = None) -> Key:
        return await self._by(by, lambda tx: _keys.revoke(tx, key_id), lambda _: ("key.revoke", key_id, {}))

    async def revoke_worker(self, worker: str, *, by: str | None = None) -> list[Key]:
        """Take all its keys back, and disable it: it gets nothing more, and what it holds it cannot finish."""

        async def work(tx: Tx) -> list[Key]:
            taken = await _keys.revoke_of_worker(tx, worker)
            await _workers.set_enabled(tx, worker, enabled=False)
            return taken

        return await self._by(by, work, lambda taken: ("worker.revoke", worker, {"keys": [key.id for key in taken]}))

    async def live_key(self, key_id: str) -> _keys.LiveKey | None:
        return await self.store.read(lambda tx: _keys.find_live(tx, key_id))

    async def key(self, key_id: str) -> Key:
        return await self.store.read(lambda tx: _keys.get(tx, key_id))

    async def keys(self) -> list[Key]:
        return await self.store.read(_keys.listed)

    async def kinds_of_keys(self) -> frozenset[Kind]:
        """Of all that were ever made."""
        return await self.store.read(_keys.kinds)

    async def begin_session(self, key_id: str, seconds: float) -> _sessions.Opened:
        """For a browser; whether the key is good was asked before."""
        return await self.store.write(lambda tx: _sessions.begin(tx, self.rules, key_id, seconds))

    async def live_session(self, digest: str) -> _sessions.Session | None:
        return await self.store.read(lambda tx: _sessions.find_live(tx, digest))

    async def end_session(self, digest: str) -> bool:
        return await self.store.write(lambda tx: _sessions.end(tx, digest))

    async def sessions_were_used(self, digests: list[str]) -> None:
        await self.store.write(lambda tx: _sessions.were_used(tx, digests), alone=True)

    async def prune_sessions(self) -> int:
        """Delete those that are over; how many."""
        return await self.store.write(lambda tx: _sessions.prune(tx, self.rules))

    async def keys_were_used(self, key_ids: list[str]) -> None:
        await self.store.write(lambda tx: _keys.were_used(tx, key_ids), alone=True)
