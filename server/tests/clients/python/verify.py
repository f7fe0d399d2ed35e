"""Says of webhooks whether they are genuine, by the verifier that is published for Python and by the example's own.

Reads a line of JSON for each: `secret`, `headers`, `body`, and `later`, the seconds after its timestamp at which it is
looked at.
"""

import importlib.util
import json
import sys
from datetime import datetime, timezone
from unittest import mock

import standardwebhooks.webhooks as published


def said_by_published(secret, headers, body, now):
    """"genuine", or why not."""
    with mock.patch.object(published, "datetime", wraps=datetime) as clock:
        clock.now.return_value = datetime.fromtimestamp(now, timezone.utc)
        try:
            published.Webhook(secret).verify(body, headers, json_parse=False)
        except published.WebhookVerificationError as refused:
            return str(refused)
        return "genuine"


def said_by_example(example, secret, headers, body, now):
    with mock.patch.object(example.time, "time", return_value=now):
        return "genuine" if example.is_genuine(secret, headers, body) else "refused"


def main():
    spec = importlib.util.spec_from_file_location("webhook", sys.argv[1])
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for line in sys.stdin:
        given = json.loads(line)
        now = int(given["headers"]["webhook-timestamp"]) + given["later"]
        asked = given["secret"], given["headers"], given["body"].encode(), now
        print(json.dumps([said_by_published(*asked), said_by_example(example, *asked)]), flush=True)


if __name__ == "__main__":
    main()
