"""Tests pystalk (PyPI). The library parses YAML and reads each short reply with a single recv(). The server must
therefore send short replies in one piece. The last step tests such replies many times."""

import time

from pystalk import BeanstalkClient, BeanstalkError

import checks
from checks import later, ok, raises, same, timed, within


def connect(tube=None, **options):
    c = BeanstalkClient.from_uri(f"beanstalkd://{checks.HOST}:{checks.PORT}", socket_timeout=30, **options)
    if tube:
        c.use(tube)
        c.watch(tube)
    return c


def error(word, call, what):
    raises(BeanstalkError, call, what, lambda e: e.message == word)


def put_reserve_delete(tube):
    c = connect(tube)
    first = c.put_job("hello", pri=7, delay=0, ttr=90)[1]
    second = c.put_job(b"urgent", pri=3)[1]
    status, third = c.put_job("hello again", pri=7)
    same(status, b"INSERTED", "reply to put")
    ok(first < second < third, "ids grow")
    same(c.stats_job(first)["ttr"], 90, "ttr")
    jobs = list(c.reserve_iter())
    same([(j.job_id, j.job_data) for j in jobs],
         [(second, b"urgent"), (first, b"hello"), (third, b"hello again")], "order and bodies")
    for job in jobs:
        c.delete_job(job)
    error("NOT_FOUND", lambda: c.delete_job(first), "delete twice")
    c.close()


def statistics(tube):
    c = connect(tube)
    stats = c.stats()
    for key in checks.STATS_KEYS:
        ok(key in stats, f"stats has {key}")
    ok(stats["draining"] is False, "draining is a YAML boolean")
    ok(isinstance(stats["rusage-utime"], float), "rusage-utime is a YAML number")
    ok(isinstance(stats["version"], str), "version is a YAML string")
    ok(isinstance(stats["hostname"], str), "hostname is a YAML string")
    same(stats["max-job-size"], 65535, "max-job-size")
    id = c.put_job("x", pri=10)[1]
    got = c.stats_job(id)
    same(list(got), checks.STATS_JOB_KEYS, "keys of stats-job")
    same((got["id"], got["tube"], got["state"], got["pri"]), (id, tube, "ready", 10), "stats-job")
    got = c.stats_tube(tube)
    same(list(checks.of_tube(got)), checks.STATS_TUBE_KEYS, "keys of stats-tube")
    same((got["name"], got["current-jobs-ready"], got["current-jobs-urgent"], got["current-using"]),
         (tube, 1, 1, 1), "stats-tube")
    ok(c.list_tubes()[0] == "default" and tube in c.list_tubes(), "list-tubes")
    c.delete_job(id)
    error("NOT_FOUND", lambda: c.stats_job(id), "stats-job of a missing job")
    error("NOT_FOUND", lambda: c.stats_tube("no-such-tube"), "stats-tube of a missing tube")
    c.close()


def reserve_times_out(tube):
    c = connect(tube)
    within(0, timed(lambda: error("TIMED_OUT", lambda: c.reserve_job(0), "timeout 0"))[1], 0.9, "no wait")
    within(0.995, timed(lambda: error("TIMED_OUT", lambda: c.reserve_job(1), "timeout 1"))[1], 2, "one second")
    producer = connect(tube)
    timer = later(0.3, lambda: producer.put_job("wake up"))
    job, seconds = timed(lambda: c.reserve_job(10))
    timer.join()
    within(0.29, seconds, 1.3, "woken by a put")
    c.delete_job(job)
    c.close()


def release_bury_kick(tube):
    c = connect(tube)
    id = c.put_job("job", pri=5, delay=100)[1]
    same((c.peek_delayed().job_id, c.peek_delayed().job_data), (id, b"job"), "peek-delayed")
    error("NOT_FOUND", c.peek_ready, "peek-ready")
    error("NOT_FOUND", c.peek_buried, "peek-buried")
    c.kick_job(id)
    same(c.peek_ready().job_id, id, "kicked")
    error("NOT_FOUND", lambda: c.kick_job(id), "kick-job of a ready job")
    job = c.reserve_job(0)
    same(c.release_job(job, pri=8, delay=1), b"RELEASED", "release")
    got = c.stats_job(id)
    same((got["state"], got["pri"], got["delay"]), ("delayed", 8, 1), "released with a delay")
    job, seconds = timed(lambda: c.reserve_job(5))
    within(0.95, seconds, 2, "delay of release")
    same(c.bury_job(job, pri=6), b"BURIED", "bury")
    same(c.peek_buried().job_id, id, "peek-buried")
    same(c.kick_jobs(10), (b"KICKED", 1), "kick")
    same(c.stats_job(id)["pri"], 6, "priority of bury")
    same([j.job_id for j in (c.peek_ready(),)], [id], "ready again")
    c.delete_job(id)
    error("NOT_FOUND", lambda: c.release_job(id), "release of a missing job")
    error("NOT_FOUND", lambda: c.bury_job(id), "bury of a missing job")
    c.close()


def delete_in_each_state(tube):
    c, other = connect(tube), connect(tube)
    held = c.put_job("held", pri=0)[1]
    same(c.reserve_job(0).job_id, held, "reserved")
    error("NOT_FOUND", lambda: other.delete_job(held), "held by another connection")
    buried = c.put_job("buried", pri=0)[1]
    c.bury_job(c.reserve_job(0))
    ready, late = c.put_job("ready")[1], c.put_job("late", delay=100)[1]
    for id in (buried, ready, late):
        other.delete_job(id)
    c.delete_job(held)
    same(c.stats_tube(tube)["cmd-delete"], 4, "deletes counted")
    c.close()
    other.close()


def deadline_soon(tube):
    c = connect(tube)
    c.put_job("work", ttr=2)
    job = c.reserve_job(0)
    call = lambda: error("DEADLINE_SOON", lambda: c.reserve_job(10), "waiting near a deadline")
    within(0.9, timed(call)[1], 1.6, "one second before the deadline")
    c.delete_job(job)
    c.close()


def tubes(tube):
    c = connect()
    same(c.put_job_into(tube, "there")[0], b"INSERTED", "put into another tube")
    with c.using(tube) as inserter:
        inserter.put_job("there, too")
    same(c.stats_tube(tube)["current-jobs-ready"], 2, "both jobs exist")
    c.watch(tube)
    c.watch(tube + "2")
    same(c.watchlist, {tube, tube + "2"}, "watch list")
    same([j.job_data for j in c.reserve_iter()], [b"there", b"there, too"], "from the watched tube")
    c.ignore(tube)
    error("NOT_IGNORED", lambda: c.ignore(tube + "2"), "the last tube stays watched")
    error("BAD_FORMAT", lambda: c.use("-bad"), "bad tube name")
    c.close()


def pause(tube):
    c = connect(tube)
    c.put_job("x")
    same(c.pause_tube(tube, 60), b"PAUSED", "pause")
    error("TIMED_OUT", lambda: c.reserve_job(0), "paused")
    got = c.stats_tube(tube)
    same((got["pause"], got["cmd-pause-tube"]), (60, 1), "shown in stats-tube")
    same(c.unpause_tube(tube), b"PAUSED", "resume")
    c.delete_job(c.reserve_job(1))
    error("NOT_FOUND", lambda: c.pause_tube("no-such-tube"), "pause of a missing tube")
    c.close()


def bodies(tube):
    c = connect(tube)
    every = bytes(range(256))
    for body in (b"", b"\r\n", b"a\r\nb\r\n", b"\0", every, every * 255 + every[1:], b"x" * 65535):
        id = c.put_job(body)[1]
        same(c.peek_ready().job_data, body, f"peek, {len(body)} bytes")
        job = c.reserve_job(0)
        same((job.job_id, job.job_data), (id, body), f"reserve, {len(body)} bytes")
        c.delete_job(job)
    error("JOB_TOO_BIG", lambda: c.put_job(b"x" * 65536), "65536 bytes are too many")
    same(c.put_job("fine")[0], b"INSERTED", "the connection is usable afterwards")
    decoding = connect(tube, auto_decode=True)
    same(decoding.peek_ready().job_data, "fine", "decoded body")
    c.close()
    decoding.close()


def closing_gives_jobs_back(tube):
    c, other = connect(tube), connect(tube)
    id = c.put_job("orphan")[1]
    other.reserve_job(0)
    other.close()
    job = c.reserve_job(3)
    same(job.job_id, id, "the job is ready again")
    c.delete_job(job)
    c.close()


def short_replies_come_whole(tube):
    c = connect(tube)
    start = time.monotonic()
    for n in range(1500):
        id = c.put_job(b"n%d" % n, ttr=60)[1]
        c.watch(f"{tube}{n % 7}x")
        job = c.reserve_job(0)
        same((job.job_id, job.job_data), (id, b"n%d" % n), "a short job")
        c.release_job(job)
        c.use(f"{tube}{n % 3}y")
        c.use(tube)
        c.bury_job(c.reserve_job(0))
        same(c.kick_jobs(1), (b"KICKED", 1), "kick")
        c.delete_job(id)
        c.ignore(f"{tube}{n % 7}x")
        if time.monotonic() - start > 20:
            break
    c.close()


checks.run([
    put_reserve_delete, statistics, reserve_times_out, release_bury_kick, delete_in_each_state, deadline_soon,
    tubes, pause, bodies, closing_gives_jobs_back, short_replies_come_whole,
])
