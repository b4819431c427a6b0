import asyncio, time, statistics, pytest, msgspec
from holdfast.settings import Settings
from tests.dispatch.stories import *
async def test_lat(fresh_postgres_url, nats_server, redis_server):
    base=Settings(database_url=fresh_postgres_url, poll_seconds=60)
    sets={"database":base,"nats":msgspec.structs.replace(base,dispatch="nats",nats_url=nats_server.url),"redis":msgspec.structs.replace(base,dispatch="redis",redis_url=redis_server.url)}
    out={k:[] for k in sets}
    for rnd in range(3):
      for name,s in sets.items():
        async with creating(s) as c, hand(s, queues=[name]) as w:
            if name!="database": await until(lambda: w.dispatch.up)
            await asyncio.sleep(0.5)
            for i in range(60):
                await asyncio.sleep(0.06)
                n=len(w.done); t=time.perf_counter()
                await jobs(c.engine,1,queue=name)
                while len(w.done)==n: await asyncio.sleep(0)
                out[name].append(time.perf_counter()-t)
    for k,v in out.items(): print(k, "p50 %.2f ms p90 %.2f"%(statistics.median(v)*1e3, sorted(v)[int(len(v)*.9)]*1e3))
