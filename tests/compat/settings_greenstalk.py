"""Tests tube settings with an unmodified greenstalk. Each setting must change what a worker receives, compared with a
tube without the setting."""

import socket
import time

import greenstalk
from greenstalk import Client

import checks
from checks import ok, same


def say(line):
    with socket.create_connection((checks.HOST, checks.PORT), timeout=30) as queue:
        queue.sendall(line.encode() + b"\r\n")
        return queue.makefile("rb").readline()


def connect(tube):
    return Client((checks.HOST, checks.PORT), use=tube, watch=tube)


def gets_one(client):
    try:
        return client.reserve(timeout=0)
    except greenstalk.TimedOutError:
        return None


def dead_letters(tube):
    with connect(tube) as c, connect(tube + "-dead") as dead:
        c.put("x")
        for _ in range(2):
            c.release(gets_one(c))
        try:
            return dead.stats_job(dead.peek_buried())["dead-from"] == tube
        except greenstalk.NotFoundError:
            return False


def back_off(tube):
    with connect(tube) as c:
        c.put("x")
        with connect(tube) as lost:
            ok(gets_one(lost), "a job")
        while c.stats_tube(tube)["current-jobs-reserved"]:
            time.sleep(0.01)
        return gets_one(c) is None


def expiry(tube):
    with connect(tube) as c:
        c.put("x")
        time.sleep(1.2)
        return gets_one(c) is None


def concurrency(tube):
    with connect(tube) as c, connect(tube) as other:
        c.put("x")
        c.put("y")
        ok(gets_one(c), "a job")
        return gets_one(other) is None


def rate(tube):
    with connect(tube) as c:
        c.put("x")
        c.put("y")
        c.delete(gets_one(c))
        return gets_one(c) is None


def settings(_):
    for settings, happens in [
        ("try:2 dead:TUBE-dead", dead_letters), ("try:5:60", back_off), ("ttl:1", expiry), ("max:1", concurrency),
        ("rate:1/60", rate),
    ]:
        for is_set in (True, False):
            tube = f"{happens.__name__}-{is_set}".replace("_", "-")
            if is_set:
                same(say(f"set-tube {tube} {settings}".replace("TUBE", tube)), b"SET\r\n", settings)
            same(happens(tube), is_set, f"{happens.__name__}, {settings if is_set else 'without settings'}")


checks.run([settings])
