"""Tests greenstalk (PyPI). The library ignores quotation marks around values and therefore accepts quoted and
unquoted names."""

import socket
import time

import greenstalk
from greenstalk import Client

import checks
from checks import later, ok, raises, same, timed, within


def connect(tube="default", encoding="utf-8"):
    return Client((checks.HOST, checks.PORT), encoding=encoding, use=tube, watch=tube)


def put_reserve_delete(tube):
    with connect(tube) as c:
        first = c.put("hello", priority=7, delay=0, ttr=90)
        second = c.put("urgent", priority=3)
        third = c.put("hello again", priority=7)
        ok(0 < first < second < third, "ids grow")
        order = [c.reserve(timeout=0) for _ in range(3)]
        same([j.id for j in order], [second, first, third], "order by priority, then by id")
        same([j.body for j in order], ["urgent", "hello", "hello again"], "bodies")
        for job in order:
            c.delete(job)
        for job in order:
            raises(greenstalk.NotFoundError, lambda: c.delete(job), "delete twice")
            raises(greenstalk.NotFoundError, lambda: c.peek(job.id), "peek a deleted job")


def job_statistics(tube):
    with connect(tube) as c:
        id = c.put("x", priority=10, delay=0, ttr=60)
        wanted = {
            "id": id, "tube": tube, "state": "ready", "pri": 10, "age": 0, "delay": 0, "ttr": 60,
            "time-left": 0, "file": 0, "reserves": 0, "timeouts": 0, "releases": 0, "buries": 0, "kicks": 0,
        }
        same(c.stats_job(id), wanted, "stats-job, ready")
        same(list(c.stats_job(id)), checks.STATS_JOB_KEYS, "stats-job, order of keys")
        job = c.reserve()
        wanted.update({"state": "reserved", "time-left": 59, "reserves": 1})
        same(c.stats_job(job), wanted, "stats-job, reserved")
        c.release(job, priority=4, delay=100)
        wanted.update({"state": "delayed", "pri": 4, "delay": 100, "time-left": 99, "releases": 1})
        same(c.stats_job(id), wanted, "stats-job, delayed")
        same(c.kick(5), 1, "kick a delayed job")
        job = c.reserve(timeout=0)
        c.bury(job, priority=9)
        wanted.update({"state": "buried", "pri": 9, "time-left": 0, "reserves": 2, "buries": 1, "kicks": 1})
        same(c.stats_job(id), wanted, "stats-job, buried")
        c.kick_job(id)
        wanted.update({"state": "ready", "kicks": 2})
        same(c.stats_job(id), wanted, "stats-job, kicked")
        c.delete(id)
        raises(greenstalk.NotFoundError, lambda: c.stats_job(id), "stats-job of a missing job")


def tube_statistics(tube):
    with connect(tube) as c:
        wanted = {
            "name": tube, "current-jobs-urgent": 0, "current-jobs-ready": 0, "current-jobs-reserved": 0,
            "current-jobs-delayed": 0, "current-jobs-buried": 0, "total-jobs": 0, "current-using": 1,
            "current-watching": 1, "current-waiting": 0, "cmd-delete": 0, "cmd-pause-tube": 0, "pause": 0,
            "pause-time-left": 0,
        }
        same(checks.of_tube(c.stats_tube(tube)), wanted, "stats-tube, new")
        same(list(checks.of_tube(c.stats_tube(tube))), checks.STATS_TUBE_KEYS, "stats-tube, order of keys")
        c.put("urgent", priority=1023)
        c.put("not urgent", priority=1024)
        late = c.put("late", delay=50)
        wanted.update({"current-jobs-urgent": 1, "current-jobs-ready": 2, "current-jobs-delayed": 1, "total-jobs": 3})
        same(checks.of_tube(c.stats_tube(tube)), wanted, "stats-tube after three puts")
        buried, held = c.reserve(), c.reserve()
        c.bury(buried)
        wanted.update({"current-jobs-urgent": 0, "current-jobs-ready": 0, "current-jobs-reserved": 1,
                       "current-jobs-buried": 1})
        same(checks.of_tube(c.stats_tube(tube)), wanted, "stats-tube, one in each state")
        c.pause_tube(tube, 300)
        got = checks.of_tube(c.stats_tube(tube))
        ok(got["pause-time-left"] in (299, 300), "pause-time-left")
        wanted.update({"pause": 300, "cmd-pause-tube": 1, "pause-time-left": got["pause-time-left"]})
        same(got, wanted, "stats-tube, paused")
        c.pause_tube(tube, 0)
        for job in (late, buried, held):
            c.delete(job)
        wanted.update({"pause": 0, "pause-time-left": 0, "cmd-pause-tube": 2, "cmd-delete": 3,
                       "current-jobs-reserved": 0, "current-jobs-delayed": 0, "current-jobs-buried": 0})
        same(checks.of_tube(c.stats_tube(tube)), wanted, "stats-tube, emptied")
        raises(greenstalk.NotFoundError, lambda: c.stats_tube("no-such-tube"), "stats-tube of a missing tube")


def server_statistics(tube):
    with connect(tube) as c:
        before = c.stats()
        known = [key for key in before if key in checks.STATS_KEYS]
        same(known, checks.STATS_KEYS, "keys of stats and their order")
        for key in ("version", "id", "hostname", "platform"):
            ok(str(before[key]) != "", f"{key} is not empty")
            ok('"' not in str(before[key]), f"{key} has no stray quote")
        for key in ("rusage-utime", "rusage-stime"):
            whole, _, part = str(before[key]).partition(".")
            ok(whole.isdigit() and part.isdigit() and len(part) == 6, f"{key} has six decimals")
        same(before["draining"], "false", "draining")
        same(before["max-job-size"], 65535, "max-job-size")
        id = c.put("x")
        c.delete(c.reserve())
        after = c.stats()
        grown = {k: after[k] - before[k] for k in checks.STATS_KEYS
                 if k.startswith("cmd-") or k in ("total-jobs", "job-timeouts", "total-connections")}
        wanted = dict.fromkeys(grown, 0)
        wanted.update({"cmd-put": 1, "cmd-reserve": 1, "cmd-delete": 1, "cmd-stats": 1, "total-jobs": 1})
        same(grown, wanted, f"counters that moved (job {id})")
        same(after["current-producers"] - before["current-producers"], 1, "producers")
        same(after["current-workers"] - before["current-workers"], 1, "workers")


def reserve_times_out(tube):
    with connect(tube) as c:
        def reserve(seconds):
            raises(greenstalk.TimedOutError, lambda: c.reserve(timeout=seconds), f"reserve of {seconds} s")

        within(0, timed(lambda: reserve(0))[1], 0.9, "no wait with timeout 0")
        within(0.995, timed(lambda: reserve(1))[1], 2, "a wait of 1 s")
        within(1.995, timed(lambda: reserve(2))[1], 3, "a wait of 2 s")


def blocked_reserve_is_woken(tube):
    with connect(tube) as worker, connect(tube) as producer:
        timer = later(0.3, lambda: producer.put("wake up"))
        job, seconds = timed(worker.reserve)
        timer.join()
        same(job.body, "wake up", "body")
        within(0.29, seconds, 1.3, "woken by the put")
        worker.delete(job)
        timer = later(0.3, lambda: producer.put("again"))
        job, seconds = timed(lambda: worker.reserve(timeout=10))
        timer.join()
        within(0.29, seconds, 1.3, "woken by the put before the timeout")
        worker.delete(job)


def delay_and_release(tube):
    with connect(tube) as c:
        id = c.put("later", delay=1)
        same(c.peek_delayed().id, id, "peek-delayed")
        raises(greenstalk.NotFoundError, c.peek_ready, "not ready yet")
        raises(greenstalk.TimedOutError, lambda: c.reserve(timeout=0), "not yet available to workers")
        job, seconds = timed(lambda: c.reserve(timeout=5))
        same(job.id, id, "reserved after its delay")
        within(0.95, seconds, 2, "delay of put")
        c.release(job, priority=2, delay=1)
        stats = c.stats_job(id)
        same((stats["state"], stats["pri"], stats["delay"], stats["releases"]), ("delayed", 2, 1, 1), "released")
        job, seconds = timed(lambda: c.reserve(timeout=5))
        within(0.95, seconds, 2, "delay of release")
        other = c.put("more urgent", priority=1)
        c.release(job, priority=2)
        same([c.reserve().id, c.reserve().id], [other, id], "order after a release")
        c.delete(other)
        c.delete(job)
        raises(greenstalk.NotFoundError, lambda: c.release(job), "release of a job that is not reserved")


def peek_and_kick(tube):
    with connect(tube) as c:
        for peek in (c.peek_ready, c.peek_delayed, c.peek_buried):
            raises(greenstalk.NotFoundError, peek, "peek in an empty tube")
        ids = [c.put(f"b{n}") for n in range(3)]
        for _ in ids:
            c.bury(c.reserve(timeout=0))
        late = c.put("late", delay=100)
        ready = c.put("now")
        same((c.peek_buried().id, c.peek_buried().body), (ids[0], "b0"), "oldest buried")
        same((c.peek_delayed().id, c.peek_ready().id), (late, ready), "delayed, ready")
        same((c.peek(late).body, c.peek(ids[2]).body), ("late", "b2"), "peek by id")
        same(c.kick(2), 2, "two buried jobs first")
        same(c.peek_buried().id, ids[2], "the third job is left")
        same(c.stats_job(late)["state"], "delayed", "delayed jobs stay while there are buried jobs")
        same(c.kick(100), 1, "the last buried job")
        same(c.kick(100), 1, "then the delayed job")
        same(c.kick(100), 0, "nothing left to kick")
        raises(greenstalk.NotFoundError, lambda: c.kick_job(late), "kick-job of a ready job")
        for id in ids + [late, ready]:
            c.delete(id)
        raises(greenstalk.NotFoundError, lambda: c.kick_job(late), "kick-job of a missing job")
        raises(greenstalk.NotFoundError, lambda: c.bury(greenstalk.Job(late, "")), "bury of a missing job")


def delete_in_each_state(tube):
    with connect(tube) as c, connect(tube) as other:
        ready, late = c.put("ready"), c.put("late", priority=9, delay=100)
        held = c.put("held", priority=0)
        job = c.reserve()
        same(job.id, held, "the most urgent job")
        raises(greenstalk.NotFoundError, lambda: other.delete(held), "held by another connection")
        raises(greenstalk.NotFoundError, lambda: other.touch(job), "touch by another connection")
        raises(greenstalk.NotFoundError, lambda: other.release(job), "release by another connection")
        c.bury(job)
        for id in (ready, late, held):
            other.delete(id)
        c.put("x")
        c.delete(c.reserve())


def touch_and_deadline(tube):
    with connect(tube) as c, connect(tube) as other:
        id = c.put("work", ttr=2)
        job = c.reserve()
        started = time.monotonic()
        raises(greenstalk.DeadlineSoonError, lambda: c.reserve(timeout=10), "waiting while a deadline comes near")
        within(0.9, time.monotonic() - started, 1.6, "one second before the deadline")
        raises(greenstalk.DeadlineSoonError, lambda: c.reserve(timeout=0), "the deadline is still near")
        c.touch(job)
        raises(greenstalk.TimedOutError, lambda: c.reserve(timeout=0), "touch extends the deadline")
        time.sleep(1.3)
        c.touch(job)
        same(c.stats_job(id)["time-left"], 1, "time left after a touch")
        raises(greenstalk.TimedOutError, lambda: other.reserve(timeout=0), "still held")
        c.delete(job)
        raises(greenstalk.NotFoundError, lambda: c.touch(job), "touch of a missing job")


def expiry(tube):
    with connect(tube) as c, connect(tube) as other:
        id = c.put("slow", ttr=1)
        c.reserve()
        time.sleep(1.2)
        c.using()
        job = other.reserve(timeout=3)
        same(job.id, id, "given to another worker")
        stats = other.stats_job(id)
        same((stats["timeouts"], stats["reserves"]), (1, 2), "counted")
        raises(greenstalk.NotFoundError, lambda: c.delete(job), "the first worker no longer holds the job")
        other.delete(job)


def closing_gives_jobs_back(tube):
    with connect(tube) as c:
        id = c.put("orphan")
        with connect(tube) as other:
            same(other.reserve(timeout=0).id, id, "reserved")
        job = c.reserve(timeout=3)
        same(job.id, id, "the job is ready again")
        stats = c.stats_job(job)
        same((stats["releases"], stats["timeouts"], stats["reserves"]), (0, 0, 2), "a close is not a release")
        c.delete(job)


def reserve_by_id(tube):
    with connect() as c, connect(tube) as p:
        ready, late = p.put("ready"), p.put("late", delay=100)
        for id, body in ((late, "late"), (ready, "ready")):
            job = c.reserve_job(id)
            same((job.id, job.body), (id, body), "reserve-job")
            same(c.stats_job(id)["state"], "reserved", "state")
            raises(greenstalk.NotFoundError, lambda: p.reserve_job(id), "reserve-job of a reserved job")
        c.bury(greenstalk.Job(ready, ""))
        same(p.reserve_job(ready).id, ready, "reserve-job of a buried job")
        p.delete(ready)
        c.delete(late)
        raises(greenstalk.NotFoundError, lambda: c.reserve_job(late), "reserve-job of a missing job")


def tubes(tube):
    with connect() as c:
        same((c.using(), c.watching()), ("default", ["default"]), "a new connection")
        raises(greenstalk.NotIgnoredError, lambda: c.ignore("default"), "the last tube stays watched")
        same([c.watch(tube), c.watch(tube), c.watch(tube + "2")], [2, 2, 3], "watch counts")
        same(sorted(c.watching()), sorted(["default", tube, tube + "2"]), "watched")
        same([c.ignore("default"), c.ignore("default"), c.ignore(tube + "2")], [2, 2, 1], "ignore counts")
        raises(greenstalk.NotIgnoredError, lambda: c.ignore(tube), "the last tube stays watched")
        same(c.tubes()[0], "default", "default comes first")
        ok(tube in c.tubes() and tube + "2" not in c.tubes(), "an unused tube disappears")
        c.use(tube + "3")
        same(c.using(), tube + "3", "used")
        ok(tube + "3" in c.tubes(), "a used tube exists")
        c.use("default")
        ok(tube + "3" not in c.tubes(), "and disappears afterwards")
        longest = "n" * 200
        c.use(longest)
        same(c.using(), longest, "a name of 200 bytes")
        c.use("a+/;.$_()-9Z")
        for bad in ("n" * 201, "-x", "a b", "a:b", ""):
            raises(greenstalk.BeanstalkdError, lambda: c.use(bad), f"bad name {bad[:9]!r}")
        with connect(tube) as p:
            p.put("only here")
            same(c.reserve(timeout=0).body, "only here", "from the watched tube")


def pause(tube):
    with connect(tube) as c:
        id = c.put("held back")
        c.pause_tube(tube, 60)
        raises(greenstalk.TimedOutError, lambda: c.reserve(timeout=0), "paused")
        same(c.peek_ready().id, id, "peek ignores a pause")
        timer = later(0.3, lambda: connect().pause_tube(tube, 0))
        job, seconds = timed(lambda: c.reserve(timeout=10))
        timer.join()
        within(0.29, seconds, 1.5, "resumed immediately")
        c.release(job)
        c.pause_tube(tube, 1)
        job, seconds = timed(lambda: c.reserve(timeout=10))
        within(0.95, seconds, 2, "a pause ends by itself")
        c.delete(job)
        raises(greenstalk.NotFoundError, lambda: c.pause_tube("no-such-tube", 1), "pause of a missing tube")


def bodies(tube):
    with connect(tube, encoding=None) as c:
        every = bytes(range(256))
        for body in (b"", b"\r\n", b"a\r\nb\r\n", b"\0", every, every[::-1] * 255, b"RESERVED 1 1\r\nx\r\n",
                     b"x" * 65535, every * 255 + every[:255]):
            id = c.put(body)
            same(c.peek(id).body, body, f"peek, {len(body)} bytes")
            job = c.reserve(timeout=0)
            same((job.id, job.body), (id, body), f"reserve, {len(body)} bytes")
            c.delete(job)
        for size in (65536, 200000):
            raises(greenstalk.JobTooBigError, lambda: c.put(b"x" * size), f"{size} bytes are too many")
            same(c.using(), tube, "the connection is usable afterwards")
        raises(greenstalk.TimedOutError, lambda: c.reserve(timeout=0), "nothing was queued")


def utf8(tube):
    with connect(tube) as c:
        text = "Gr\u00fc\u00dfe, \u4e16\u754c \U0001fad8"
        c.put(text)
        job = c.reserve(timeout=0)
        same(job.body, text, "text")
        c.delete(job)


def limits(tube):
    with connect(tube) as c:
        top = 2**32 - 1
        id = c.put("x", priority=top, delay=top, ttr=top)
        stats = c.stats_job(id)
        same((stats["pri"], stats["delay"], stats["ttr"]), (top, top, top), "the largest numbers")
        c.delete(id)
        for numbers in ((top + 1, 0, 1), (-1, 0, 1), (0, top + 1, 1), (0, 0, top + 1)):
            with connect(tube) as bad:
                raises(greenstalk.BadFormatError, lambda: bad.put("", *numbers), f"put with {numbers}")
        id = c.put("x", ttr=0)
        same(c.stats_job(id)["ttr"], 1, "a ttr of 0 becomes 1")
        c.delete(id)
        same(c.stats_tube(tube)["current-jobs-ready"], 0, "nothing left")


def own_socket(tube):
    with Client(socket.create_connection((checks.HOST, checks.PORT)), use=tube, watch=[tube, "default"]) as c:
        same(sorted(c.watching()), sorted(["default", tube]), "watched")


checks.run([
    put_reserve_delete, job_statistics, tube_statistics, server_statistics, reserve_times_out,
    blocked_reserve_is_woken, delay_and_release, peek_and_kick, delete_in_each_state, touch_and_deadline, expiry,
    closing_gives_jobs_back, reserve_by_id, tubes, pause, bodies, utf8, limits, own_socket,
])
