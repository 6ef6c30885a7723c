"""greenstalk with tags, tube settings and reasons for failures. Needs: pip install greenstalk"""
import os
import re

import greenstalk

HOST, PORT = os.environ.get("BEANPOLE_SERVER", "127.0.0.1:11300").rsplit(":", 1)


class Client(greenstalk.Client):
    """Bodies of reserved jobs are bytes. With an `encoding`, a body that cannot be decoded is an exception in `reserve`,
    where a worker cannot report the failure of the job."""

    def __init__(self, encoding=None, **options):
        super().__init__((HOST, int(PORT)), encoding, **options)

    def require(self, extension):
        """Raises an exception if the server lacks an extension. beanstalkd executes the body of a job with tags as commands."""
        if extension not in re.findall(r"\w+", str(self.stats().get("extensions"))):
            raise greenstalk.Error(f"the server lacks the extension {extension}")

    def put_tagged(self, body, tags, priority=65536, delay=0, ttr=60):
        """Puts a job and returns its ID. With the tag `idp`, returns the ID of an existing job with the same key."""
        body = body if isinstance(body, bytes) else body.encode()
        line = f"put {priority} {delay} {ttr} {len(body)} {tags}\r\n"
        return int(self._send_cmd(line.encode() + body, b"INSERTED")[0])

    def set_tube(self, tube, settings):
        self._send_cmd(f"set-tube {tube} {settings}".encode(), b"SET")

    def fail(self, job, reason, priority=65536):
        """Reports a failed try. Returns the delay before the next try, or None after the last try. In a tube without the
        setting `try`, a job has only one try, unless a tag sets the number."""
        reason = reason.encode(errors="backslashreplace")[:4096]
        try:
            return self._int_cmd(b"fail %d %d %d\r\n%b" % (job.id, priority, len(reason), reason), b"RELEASED")
        except greenstalk.BuriedError:
            return None
