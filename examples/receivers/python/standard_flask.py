"""Receives Standard Webhooks, as Surehook sends them, with Flask.

WEBHOOK_SECRET=whsec_… python standard_flask.py

During a rotation WEBHOOK_SECRET_PREVIOUS is the secret before. What came is kept
in the table inbox (DATABASE, inbox.db) under its id, and only then answered 200;
a thread does the work afterwards.
"""

import base64
import hashlib
import hmac
import os
import re
import sqlite3
import threading
import time

from flask import Flask, abort, request
from waitress import create_server

TOLERANCE = 300  # seconds, to either side
MAX_BODY = 1_000_000  # bytes


def key(secret: str) -> bytes:
    """The key of a whsec_ secret. One that is empty or cut must not start."""
    if not secret.startswith("whsec_"):
        raise SystemExit("WEBHOOK_SECRET must begin with whsec_")
    raw = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    if not 24 <= len(raw) <= 64:
        raise SystemExit("WEBHOOK_SECRET must hold 24 to 64 bytes")
    return raw


SECRETS = [os.environ["WEBHOOK_SECRET"], os.environ.get("WEBHOOK_SECRET_PREVIOUS", "")]
KEYS = [key(s) for s in SECRETS if s]
DATABASE = os.environ.get("DATABASE", "inbox.db")

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
arrived = threading.Event()


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=2, isolation_level=None)


def signed(headers, body: bytes) -> tuple[str, int]:
    """The event's id and 200, or why not."""
    event_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "")
    # A dot separates what is signed, so an id with one could be cut elsewhere.
    if not event_id or "." in event_id or not signatures or not re.fullmatch("[0-9]{1,12}", timestamp):
        return "", 400
    if abs(time.time() - int(timestamp)) > TOLERANCE:
        return "", 401
    # The raw bytes: parsed and written again they would be others.
    content = f"{event_id}.{timestamp}.".encode("latin-1") + body
    wanted = [b"v1," + base64.b64encode(hmac.digest(k, content, hashlib.sha256)) for k in KEYS]
    # Any signature under any key will do: during a rotation there are two.
    for got in signatures.encode("latin-1").split(b" ")[:32]:
        if any(hmac.compare_digest(got, w) for w in wanted):
            return event_id, 200
    return "", 401


@app.post("/webhook")
def webhook():
    body = request.get_data(cache=False)  # before anything that parses it
    event_id, status = signed(request.headers, body)
    if status != 200:
        abort(status)
    try:
        with connect() as db:
            # An id that is there already is a duplicate: kept once, answered 200.
            db.execute("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", (event_id, body, int(time.time())))
    except sqlite3.OperationalError:
        abort(503)  # locked or full: it may pass, and the sender tries again
    arrived.set()
    return "", 200


def work() -> None:
    """Does what the events are for, outside of any request."""
    db = connect()
    while arrived.wait():
        arrived.clear()
        try:
            for event_id, body in db.execute("SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at").fetchall():
                print(f"{event_id}: {len(body)} bytes", flush=True)  # yours; it may run twice after a crash
                db.execute("UPDATE inbox SET done_at = ? WHERE id = ?", (int(time.time()), event_id))
        except sqlite3.OperationalError:
            time.sleep(1)
            arrived.set()


if __name__ == "__main__":
    with connect() as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)")
    arrived.set()  # what an earlier run left
    threading.Thread(target=work, daemon=True).start()
    server = create_server(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), max_request_body_size=MAX_BODY + 1)
    print(f"listening on http://127.0.0.1:{server.effective_port}/webhook", flush=True)
    server.run()
