"""How a service tests what happens to an order that is not paid for 15 minutes, without waiting for them.

    pip install pytest
    pytest test_unpaid_order.py      # with the tool `delayline` in the PATH, or at DELAYLINE
"""

import json
import os
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


class Shop:
    """What is tested: a shop that has an order cancelled 15 minutes after it was placed, unless it is paid."""

    def __init__(self):
        self.cancelled = []
        shop = self

        class Hooks(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                shop.cancelled.append(json.loads(body)["order"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        # A real one verifies the signature: see webhook.py.
        self.hooks = HTTPServer(("127.0.0.1", 0), Hooks)
        threading.Thread(target=self.hooks.serve_forever, daemon=True).start()

    def place(self, delayline, order):
        delayline.ask("PUT", f"/v1/tasks/order.cancel/{order}", {"after": "15m", "payload": {"order": order}})

    def pay(self, delayline, order):
        delayline.ask("POST", f"/v1/tasks/order.cancel/{order}/cancel", {})


class TestClock:
    """A server of this test's own, whose clock stands still unless it is turned."""

    __test__ = False

    def __init__(self, folder, hooks):
        config = folder / "delayline.toml"
        config.write_text(
            f"""
            [http]
            listen = "127.0.0.1:0"
            [webhooks]
            allow = ["127.0.0.1"]
            [kinds."order.cancel"]
            deliver = {{ url = "http://127.0.0.1:{hooks}/hooks", secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }}
            """
        )
        command = [os.environ.get("DELAYLINE", "delayline"), "serve", "--test-clock", "--config", config]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # It says where it is once it can be asked.
        self.url = self.process.stdout.readline().split()[1]

    def ask(self, method, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def advance(self, by):
        """Answers when all that is due by then has happened, and says what that was."""
        turned = self.ask("POST", "/v1/time/advance", {"by": by})
        return [event["what"] for event in turned["events"]]


@pytest.fixture(scope="module")
def shop():
    return Shop()


@pytest.fixture(scope="module")
def delayline(shop, tmp_path_factory):
    server = TestClock(tmp_path_factory.mktemp("delayline"), shop.hooks.server_port)
    yield server
    server.process.kill()
    server.process.wait()


def test_an_unpaid_order_is_cancelled_after_15_minutes(shop, delayline):
    shop.place(delayline, 42)
    assert delayline.advance("14m 59s") == []
    assert 42 not in shop.cancelled
    assert delayline.advance("1s") == ["started", "webhook", "done"]
    assert 42 in shop.cancelled


def test_a_paid_order_is_not(shop, delayline):
    shop.place(delayline, 43)
    assert delayline.advance("14m 59s") == []
    shop.pay(delayline, 43)
    assert delayline.advance("366d") == []
    assert 43 not in shop.cancelled
