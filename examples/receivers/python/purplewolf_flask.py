"""Receives the purple-wolf relay's audit events with Flask.

PURPLEWOLF_SECRET=… python purplewolf_flask.py

During a rotation PURPLEWOLF_SECRET_PREVIOUS is the secret before. Answers: 200 for
an event that is kept, duplicates too; 400 for missing headers; 401 for a wrong
signature or time; 422 for a schema of another major version; 503 for what may pass.
"""

import hashlib
import hmac
import json
import os
import re
import sqlite3
import threading
import time

from flask import Flask, abort, request
from waitress import create_server

SCHEMA = "purple-wolf.audit/v1"
TOLERANCE = 300  # seconds, to either side
MAX_BODY = 1_000_000  # bytes

SECRETS = [s.encode() for s in (os.environ["PURPLEWOLF_SECRET"], os.environ.get("PURPLEWOLF_SECRET_PREVIOUS", "")) if s]
if not SECRETS:
    raise SystemExit("PURPLEWOLF_SECRET is empty")
DATABASE = os.environ.get("DATABASE", "inbox.db")

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
arrived = threading.Event()


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=2, isolation_level=None)


def check(headers, body: bytes) -> int:
    """200, or why not."""
    timestamp = headers.get("X-PurpleWolf-Timestamp", "")
    signature = headers.get("X-PurpleWolf-Signature", "")
    if not re.fullmatch("[0-9]{1,12}", timestamp) or not signature or not headers.get("X-PurpleWolf-Event-Id"):
        return 400
    if abs(time.time() - int(timestamp)) > TOLERANCE:
        return 401
    # The raw bytes: parsed and written again they would be others.
    content = timestamp.encode() + b"." + body
    wanted = [b"sha256=" + hmac.new(s, content, hashlib.sha256).hexdigest().encode() for s in SECRETS]
    if not any(hmac.compare_digest(signature.encode("latin-1"), w) for w in wanted):
        return 401
    return 200


def identify(headers, body: bytes) -> tuple[str, int]:
    """The event's id and 200, or why not. Members that aren't known are ignored."""
    try:
        envelope = json.loads(body)
        schema, event_id = envelope["schema"], envelope["event_id"]
    except (ValueError, KeyError, TypeError):
        return "", 422
    if schema != SCHEMA:
        return "", 422
    # The body is signed, the header isn't: an id that was put there later would
    # pass a captured request off as a new event.
    if not isinstance(event_id, str) or event_id != headers["X-PurpleWolf-Event-Id"]:
        return "", 400
    return event_id, 200


@app.post("/webhook")
def webhook():
    body = request.get_data(cache=False)  # before anything that parses it
    status = check(request.headers, body)
    if status != 200:
        abort(status)
    event_id, status = identify(request.headers, body)
    if status != 200:
        abort(status)
    try:
        with connect() as db:
            # An id that is there already is a duplicate: kept once, answered 200.
            db.execute("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", (event_id, body, int(time.time())))
    except sqlite3.OperationalError:
        abort(503)  # locked or full: it may pass, and the relay tries again
    arrived.set()
    return "", 200


def work() -> None:
    """Does what the events are for, outside of any request."""
    db = connect()
    while arrived.wait():
        arrived.clear()
        try:
            for event_id, body in db.execute("SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at").fetchall():
                event = json.loads(body)["event"]
                print(f"{event_id}: {event.get('action')} {event.get('blocked_rule')}", flush=True)  # yours; it may run twice after a crash
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
