"""A receiver of webhooks: due tasks are posted to it, and it handles only signed ones, each once.

    HOOK_SECRET=whsec_… python3 webhook.py 8000
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import sys
import threading
import time

TOLERANCE_SECONDS = 300


def is_genuine(secret, headers, body):
    """Whether it was sent by who has the secret, and not long ago."""
    name, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{name}.{sent}.".encode() + body, hashlib.sha256)
    expected = b"v1," + base64.b64encode(digest)
    # One for each secret, while one is replaced by another.
    signatures = headers.get("webhook-signature", "").encode().split(b" ")
    is_signed = any([hmac.compare_digest(expected, signature) for signature in signatures])
    return is_signed and abs(time.time() - int(sent)) <= TOLERANCE_SECONDS


def remind(task):
    """The work itself."""
    print("reminded of", task["invoice"], flush=True)


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A service has them in its database, written in one transaction with what it does.
    done = set()
    # The same webhook comes again while it is handled if that takes longer than the server waits.
    one_at_a_time = threading.Lock()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not is_genuine(os.environ["HOOK_SECRET"], self.headers, body):
            return self.answer(401, "not signed")
        # The same for every attempt: an answer can be lost.
        name = self.headers["webhook-id"]
        try:
            with self.one_at_a_time:
                if name not in self.done:
                    remind(json.loads(body))
                self.done.add(name)
        except Exception as failure:
            return self.answer(500, str(failure))
        self.answer(200, "")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print(f"receiving at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
