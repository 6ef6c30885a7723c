"""A kombu transport for using beanpole as a Celery broker:

    import beanpole_transport
    app = Celery("shop", broker="beanpole://127.0.0.1:11300")
    app.conf.update(worker_enable_remote_control=False, task_acks_late=True, task_reject_on_worker_lost=True,
                    task_acks_on_failure_or_timeout=False, broker_transport_options={"ttr": 60})

    celery -A shop worker --without-gossip --without-mingle --without-heartbeat

- A task belongs to its worker until it is acknowledged. With `task_acks_late`, a task whose worker crashes runs again.
- While a task runs, the worker touches its job, so a task can take as long as it needs. If the worker's machine fails, the
  task runs on another worker after `ttr` seconds. The minimum of `ttr` is 3.
- `eta` and `countdown` become the delay of the job: until then, the server keeps the task, not a worker.
- With `task_acks_on_failure_or_timeout=False`, a task that raises an exception becomes a failed try. The settings of the
  tube, such as `try:5:10 dead:celery-dead`, then determine retries, and tasks need no `retry()`.
- `send_mail.apply_async(..., headers={"tags": "idp:welcome-7:3600 con:smtp:2"})` adds tags to the job.

Remote control, events and broadcasts do not work, because they need a broker with fan-out. Tested with Celery 5.7 and the
prefork pool; with the solo pool, jobs are not touched. Needs: pip install celery greenstalk
"""
import json
import math
import re
from collections import deque
from contextlib import suppress
from datetime import datetime, timezone
from queue import Empty
from time import monotonic

import greenstalk
import kombu.transport
from kombu.transport import virtual

kombu.transport.TRANSPORT_ALIASES["beanpole"] = "beanpole_transport:Transport"


def tube_of(queue):
    """Returns the name of a tube in the syntax of the protocol. For example, celery@host needs quotes."""
    if re.fullmatch(r"[\w+/;.$()][\w+/;.$()-]*", queue, re.ASCII):
        return queue
    return '"' + re.sub(r'(["\\])', r"\\\1", queue) + '"'


def delay_of(headers):
    """Returns the whole seconds until the task is due."""
    if not headers.get("eta"):
        return 0
    eta = datetime.fromisoformat(headers["eta"])
    eta = eta if eta.tzinfo else eta.replace(tzinfo=timezone.utc)
    return max(0, math.ceil((eta - datetime.now(timezone.utc)).total_seconds()))


def tags_of(headers):
    """Returns the tags of a job. A retry gets no `idp` tag, because the server would treat the retry as a duplicate
    of the original task."""
    tags = headers.get("tags", "").split()
    return "".join(f" {tag}" for tag in tags if not (headers.get("retries") and tag.startswith("idp:")))


def priority_of(properties):
    """Converts the priority of a task to that of a job. The most urgent priority is 0 for the server and 9 for
    Celery."""
    return 65536 + 9 - min(max(int(properties.get("priority") or 0), 0), 9)


class QoS(virtual.QoS):
    def ack(self, delivery_tag):
        self.channel.finish(f"delete {delivery_tag}", b"DELETED")
        super().ack(delivery_tag)

    def reject(self, delivery_tag, requeue=False):
        priority = priority_of(self._delivered[delivery_tag].properties)
        if requeue:
            self.channel.finish(f"release {delivery_tag} {priority} 0", b"RELEASED")
        else:
            self.channel.finish(f"fail {delivery_tag} {priority} 0\r\n", b"RELEASED")
        super().ack(delivery_tag)


class Channel(virtual.Channel):
    QoS = QoS
    # The server itself releases the jobs of a closed connection.
    do_restore = False
    from_transport_options = virtual.Channel.from_transport_options + ("ttr",)
    ttr = 60

    def __init__(self, connection, **kwargs):
        super().__init__(connection, **kwargs)
        server = connection.client
        self.queue = greenstalk.Client((server.hostname or "127.0.0.1", server.port or 11300), encoding=None)
        self.watched = {"default"}
        # Holds commands of other threads, because the pool acknowledges tasks while this channel waits for a job.
        self.finished = deque()
        self.touched = monotonic()

    def finish(self, command, reply):
        self.finished.append((command, reply))

    def catch_up(self):
        """Sends the commands from other threads, and touches the jobs of running tasks."""
        while self.finished:
            command, reply = self.finished.popleft()
            # The server replies BURIED after the last try of a job, and NOT_FOUND if another worker has reserved
            # the job.
            with suppress(greenstalk.NotFoundError, greenstalk.BuriedError):
                self.queue._send_cmd(command.encode(), reply)
        if monotonic() - self.touched > self.ttr / 3:
            self.queue._send_cmd(b"touch-all", b"TOUCHED_ALL")
            self.touched = monotonic()

    def reserve(self, queues, timeout):
        for queue in set(queues) - self.watched:
            self.queue.watch(tube_of(queue))
        for queue in self.watched - set(queues):
            self.queue.ignore(tube_of(queue))
        self.watched = set(queues)
        try:
            job = self.queue.reserve(timeout=timeout)
        except (greenstalk.TimedOutError, greenstalk.DeadlineSoonError):
            raise Empty() from None
        try:
            message = json.loads(job.body)
            message["properties"]["delivery_tag"] = str(job.id)
            return message
        except (KeyError, TypeError, ValueError) as error:
            self.refuse(job, f"not a message of Celery: {error!r}".encode(errors="backslashreplace")[:4096])
            raise Empty() from None

    def refuse(self, job, reason):
        """Reports the failure of a job that another program has put. Without this, the job would stop the worker."""
        with suppress(greenstalk.NotFoundError, greenstalk.BuriedError):
            self.queue._send_cmd(b"fail %d 65536 %d\r\n%b" % (job.id, len(reason), reason), b"RELEASED")

    def drain_events(self, timeout=None, callback=None):
        self.catch_up()
        if not self._consumers or not self.qos.can_consume():
            raise Empty()
        # The channel sends acknowledgments only after this reserve command has ended.
        message = self.reserve(self._active_queues, 1)
        (callback or self.connection._deliver)(message, message["queue"])

    def _get(self, queue, timeout=None):
        self.catch_up()
        return self.reserve([queue], 0)

    def _put(self, queue, message, **kwargs):
        body, headers = json.dumps({**message, "queue": queue}).encode(), message["headers"]
        numbers = f"{priority_of(message['properties'])} {delay_of(headers)} {self.ttr} {len(body)}"
        self.queue.use(tube_of(queue))
        self.queue._send_cmd(f"put {numbers}{tags_of(headers)}\r\n".encode() + body, b"INSERTED")

    def _size(self, queue):
        with suppress(greenstalk.NotFoundError):
            return self.queue.stats_tube(tube_of(queue))["current-jobs-ready"]
        return 0

    def _purge(self, queue):
        return self.queue._int_cmd(f"flush-tube {tube_of(queue)}".encode(), b"FLUSHED")

    def close(self):
        if not self.closed:
            with suppress(OSError):
                self.catch_up()
            self.queue.close()
        super().close()


class Transport(virtual.Transport):
    Channel = Channel
    default_port = 11300
    driver_type = driver_name = "beanpole"
    # The pause between two checks of whether the worker can accept tasks. If it can, a reserve command waits for jobs.
    polling_interval = 0.05
    connection_errors = virtual.Transport.connection_errors + (OSError,)
    channel_errors = virtual.Transport.channel_errors + (greenstalk.BeanstalkdError,)
