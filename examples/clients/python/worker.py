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
    """Extends the claim three times in each lease, as long as the work takes, and tells when it is another worker's."""
    over, is_lost = threading.Event(), threading.Event()

    def extend():
        while not over.wait(lease / 3):
            # What fails is tried again by the next.
            with contextlib.suppress(OSError):
                if not server.end(claim, "extend", lease=f"{lease}s"):
                    is_lost.set()
                    return

    keeping = threading.Thread(target=extend, daemon=True)
    keeping.start()
    try:
        yield is_lost
    finally:
        over.set()
        keeping.join()


def work(server, kind, lease):
    for claim, task in server.claim([kind], lease=f"{lease}s"):
        try:
            with kept(server, claim, lease) as is_lost:
                build(task["payload"], is_lost)
        except Exception as failure:
            held = server.end(claim, "retry", reason=str(failure))
        else:
            held = server.end(claim)
        if not held:
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
