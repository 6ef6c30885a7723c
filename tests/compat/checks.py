"""Shared helpers of the Python scripts in this directory: the server's address, and checks that are counted."""

import sys
import threading
import time

HOST = sys.argv[1]
PORT = int(sys.argv[2])

# The paths of the key, the certificate and the authority, for clients that support TLS. Empty without TLS.
TLS = sys.argv[3:6]

_count = 0


def fail(text):
    raise AssertionError(text)


def ok(condition, what):
    global _count
    _count += 1
    if not condition:
        fail(what)


def same(got, wanted, what):
    ok(got == wanted, f"{what}: got {got!r}, wanted {wanted!r}")


def within(low, seconds, high, what):
    ok(low <= seconds <= high, f"{what}: took {seconds:.3f} s, wanted {low} to {high} s")


def raises(kind, call, what, test=None):
    global _count
    _count += 1
    try:
        got = call()
    except kind as error:
        if test is not None and not test(error):
            fail(f"{what}: wrong {kind.__name__}: {error!r}")
        return
    fail(f"{what}: no {kind.__name__}, got {got!r}")


def timed(call):
    """Calls a function. Returns the result and the duration in seconds."""
    start = time.monotonic()
    result = call()
    return result, time.monotonic() - start


def later(seconds, call):
    """Calls a function in another thread after a delay. Returns the thread, which the caller must join."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    return timer


def run(steps):
    """Runs all steps in order, each with its own tube."""
    for step in steps:
        name = step.__name__
        try:
            step("compat-" + name.replace("_", "-"))
        except Exception as error:
            import traceback

            traceback.print_exc()
            print(f"{name}: {type(error).__name__}: {error}")
            sys.exit(1)
    print(f"{_count} checks")


# The keys of beanstalkd's `stats`, in order. A server can append more keys.
STATS_KEYS = """
current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed current-jobs-buried
cmd-put cmd-peek cmd-peek-ready cmd-peek-delayed cmd-peek-buried cmd-reserve cmd-reserve-with-timeout
cmd-delete cmd-release cmd-use cmd-watch cmd-ignore cmd-bury cmd-kick cmd-touch cmd-stats cmd-stats-job
cmd-stats-tube cmd-list-tubes cmd-list-tube-used cmd-list-tubes-watched cmd-pause-tube job-timeouts
total-jobs max-job-size current-tubes current-connections current-producers current-workers
current-waiting total-connections pid version rusage-utime rusage-stime uptime binlog-oldest-index
binlog-current-index binlog-records-migrated binlog-records-written binlog-max-size draining id hostname
os platform
""".split()

STATS_JOB_KEYS = "id tube state pri age delay ttr time-left file reserves timeouts releases buries kicks".split()

STATS_TUBE_KEYS = """
name current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed current-jobs-buried
total-jobs current-using current-watching current-waiting cmd-delete cmd-pause-tube pause pause-time-left
""".split()


def of_tube(stats):
    """Returns the statistics of a tube that beanstalkd also has. The server must send these statistics first."""
    return dict(list(stats.items())[:len(STATS_TUBE_KEYS)])
