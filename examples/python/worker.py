"""Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead."""
from client import Client


def send(address):
    if "@" not in address:
        raise ValueError(f"not an address: {address}")
    print(f"sent to {address}", flush=True)


with Client(watch="mail") as queue:
    queue.set_tube("mail", "try:5:10 dead:mail-dead")
    while True:
        job = queue.reserve()
        try:
            send(job.body)
        except Exception as error:
            queue.fail(job, f"{type(error).__name__}: {error}")
        else:
            queue.delete(job)
