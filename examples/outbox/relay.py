"""Moves jobs from a PostgreSQL table to the queue, each exactly once: python3 relay.py 'dbname=shop'

An application inserts a job into the table outbox (schema.sql) in the transaction that changes its data, and the
database commits both or neither. The relay deletes rows, puts their jobs, and commits. If the relay crashes before the commit,
the rows still exist, and the next relay puts the jobs again. Because of the tag `idp`, the server ignores such a put if the
job still exists, or ended within the last week. Several relays can run at a time.

The server needs `-b DIRECTORY -f0`, so that it stores a job before it replies. A job can still run twice if a worker crashes
after the work but before the delete.

Needs: pip install greenstalk psycopg2-binary
"""
import os
import select
import sys

import psycopg2

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from client import Client  # noqa: E402

# Seconds for which the server remembers a key. Must exceed any outage after which a relay puts jobs again.
KEEP_KEYS = 7 * 24 * 3600

TAKE = """
    DELETE FROM outbox WHERE place IN (SELECT place FROM outbox ORDER BY place LIMIT 100 FOR UPDATE SKIP LOCKED)
    RETURNING place, key, tube, body
"""


def relay(database, queue):
    """Moves one batch of jobs. Returns the number of jobs."""
    with database, database.cursor() as rows:
        rows.execute(TAKE)
        jobs = sorted(rows)
        for _, key, tube, body in jobs:
            queue.put_tagged(body, f"tub:{tube} idp:outbox-{key}:{KEEP_KEYS}")
        return len(jobs)


def wait(listener, seconds=60):
    """Waits for a NOTIFY. After the timeout, the caller also finds rows that were locked by a crashed relay."""
    select.select([listener], [], [], seconds)
    listener.poll()
    listener.notifies.clear()


if __name__ == "__main__":
    database, listener = psycopg2.connect(sys.argv[1]), psycopg2.connect(sys.argv[1])
    listener.autocommit = True
    listener.cursor().execute("LISTEN outbox")
    with Client() as queue:
        while True:
            while relay(database, queue):
                pass
            wait(listener)
