"""A worker: claims due tasks, extends claims that take long, and reports the outcome.

    python3 worker.py http://127.0.0.1:7700 report.build 30
"""

import contextlib
import sys
import threading
import time

from delayline import Delayline


def build(report, is_lost):
    """The work itself, which may be done twice: a worker can die right after it. It stops when the claim is lost."""
    if report.get("impossible"):
        raise ValueError("such a report cannot be built")
    if not is_lost.wait(report.get("seconds", 0)):
        print("built", report["name"], flush=True)


@contextlib.contextmanager
def kept(server, claim, lease):
    """Extends the claim three times in each lease, as long as the work takes, and tells when it is another worker's, or may be."""
    over, is_lost = threading.Event(), threading.Event()
    began = time.monotonic()
    held_until = began + lease

    def lose():
        is_lost.set()
        over.set()

    def extend():
        nonlocal held_until
        sent = began
        while not over.wait(sent + lease / 3 - time.monotonic()):
            sent = time.monotonic()
            if sent >= held_until:
                return lose()
            # What fails, or hangs, is tried again by the next.
            with contextlib.suppress(OSError):
                if not server.end(claim, "extend", timeout=lease / 3, lease=f"{lease}s"):
                    return lose()
                held_until = sent + lease

    def watch():
        """By this worker's own clock, as the server may not answer."""
        while not over.wait(held_until - time.monotonic()):
            if time.monotonic() >= held_until:
                lose()

    for keeping in (extend, watch):
        threading.Thread(target=keeping, daemon=True).start()
    try:
        yield is_lost
    finally:
        # An extend that is on its way is not waited for.
        over.set()


def work(server, kind, lease):
    for claim, task in server.claim([kind], lease=f"{lease}s"):
        end, more = "done", {}
        with kept(server, claim, lease) as is_lost:
            try:
                build(task["payload"], is_lost)
            except Exception as failure:
                end, more = "retry", {"reason": str(failure)}
        # What was given up is neither done nor failed.
        if is_lost.is_set() or not server.end(claim, end, **more):
            print("lost the claim of", task["id"], flush=True)


def main():
    url, kind, lease = sys.argv[1:]
    server = Delayline(url)
    while True:
        try:
            work(server, kind, int(lease))
        except OSError as away:
            print("the server is away:", away, file=sys.stderr, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
