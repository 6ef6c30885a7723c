"""greenstalk with tags, tube settings and reasons for failures. Needs: pip install greenstalk"""
import os

import greenstalk

HOST, PORT = os.environ.get("BEANPOLE_SERVER", "127.0.0.1:11300").rsplit(":", 1)


class Client(greenstalk.Client):
    def __init__(self, **options):
        super().__init__((HOST, int(PORT)), **options)

    def put_tagged(self, body, tags, priority=65536, delay=0, ttr=60):
        """Returns the job's ID. With `idp`, it is the ID of the earlier job that has the same key."""
        body = body.encode()
        line = f"put {priority} {delay} {ttr} {len(body)} {tags}\r\n"
        return int(self._send_cmd(line.encode() + body, b"INSERTED")[0])

    def set_tube(self, tube, settings):
        self._send_cmd(f"set-tube {tube} {settings}".encode(), b"SET")

    def fail(self, job, reason, priority=65536):
        """Reports a failed try. Returns the delay before the next try, or None if that was the last one."""
        reason = reason.encode()[:4096]
        try:
            return self._int_cmd(b"fail %d %d %d\r\n%b" % (job.id, priority, len(reason), reason), b"RELEASED")
        except greenstalk.BuriedError:
            return None
