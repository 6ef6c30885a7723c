"""Sends mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in the tube
mail-dead."""
import sys
import time

import greenstalk

from client import Client


def send(body, touch):
    address = body.decode()
    if "@" not in address:
        raise ValueError(f"not an address: {address}")
    touch()  # Restarts the time to run (60 s). During long work, call this repeatedly.
    print(f"sent to {address}", flush=True)


def work(queue):
    queue.set_tube("mail", "try:5:10 dead:mail-dead")
    while True:
        job = queue.reserve()
        try:
            try:
                send(job.body, lambda: queue.touch(job))
            except Exception as error:
                queue.fail(job, f"{type(error).__name__}: {error}")
            else:
                queue.delete(job)
        except greenstalk.NotFoundError:
            print(f"job {job.id}: no longer reserved by this worker", file=sys.stderr)


while True:
    try:
        with Client(watch="mail") as queue:
            work(queue)
    except OSError as error:
        print(f"{error}; connecting again", file=sys.stderr)
        time.sleep(1)
