"""A shop that cancels unpaid orders, and changes its mind about some.

    python3 shop.py http://127.0.0.1:7700
"""

import sys

from delayline import Delayline, Refused


def main():
    server = Delayline(sys.argv[1])
    answer, task = server.schedule("order.cancel", "order/1", {"order": 1}, after="15m")
    print(answer, task["state"])
    print(server.schedule("order.cancel", "order/1", {"order": 1}, after="15m")[0])
    before = task["due_at"]
    answer, task = server.shift("order.cancel", "order/1", "+10m")
    print(answer, "later" if task["due_at"] > before else "not later")
    print(server.cancel("order.cancel", "order/1")[0])
    print(server.cancel("order.cancel", "order/1")[0])
    print(server.find("order.cancel", "order/1")["state"])
    print(server.cancel("order.cancel", "order/2")[0], server.find("order.cancel", "order/2"))
    try:
        server.schedule("order.cancel", "order/3", after="soon")
    except Refused as refused:
        print("refused:", refused.problem["status"])


if __name__ == "__main__":
    main()
