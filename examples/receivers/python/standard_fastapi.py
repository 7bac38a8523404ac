"""Receives Standard Webhooks, as Surehook sends them, with FastAPI and the
official package.

WEBHOOK_SECRET=whsec_… python standard_fastapi.py

During a rotation WEBHOOK_SECRET_PREVIOUS is the secret before. The package is
right for JSON; the three places where it must be helped are marked.
"""

import os
import sqlite3
import threading
import time
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from standardwebhooks import Webhook

MAX_BODY = 1_000_000  # bytes

SECRETS = [os.environ["WEBHOOK_SECRET"], os.environ.get("WEBHOOK_SECRET_PREVIOUS", "")]
WEBHOOKS = [Webhook(s) for s in SECRETS if s]
DATABASE = os.environ.get("DATABASE", "inbox.db")
arrived = threading.Event()


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=2, isolation_level=None)


def verified(headers, body: bytes) -> int:
    """200, or why not."""
    if not all(headers.get(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")):
        return 400
    # 1. The package takes ids with a dot, which can be cut at another place.
    if "." in headers["webhook-id"]:
        return 400
    # 2. It verifies text: what isn't UTF-8 isn't JSON either.
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return 415
    for webhook in WEBHOOKS:
        try:
            webhook.verify(text, dict(headers), json_parse=False)
            return 200
        except Exception:  # 3. Malformed signatures raise ValueError and others, not its own error alone.
            continue
    return 401


def keep(event_id: str, body: bytes) -> bool:
    """Keeps an event under its id; one that is there already is a duplicate."""
    try:
        with connect() as db:
            db.execute("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", (event_id, body, int(time.time())))
    except sqlite3.OperationalError:
        return False
    arrived.set()
    return True


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


@asynccontextmanager
async def lifespan(_: FastAPI):
    with connect() as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)")
    arrived.set()  # what an earlier run left
    threading.Thread(target=work, daemon=True).start()
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/webhook")
async def webhook(request: Request) -> Response:
    # The raw bytes, and no more of them than the bound: a model as parameter
    # would have parsed them.
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            return Response(status_code=413, headers={"Connection": "close"})
    status = verified(request.headers, bytes(body))
    if status == 200 and not await run_in_threadpool(keep, request.headers["webhook-id"], bytes(body)):
        status = 503  # locked or full: it may pass, and the sender tries again
    return Response(status_code=status)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), access_log=False)
