// Receives Standard Webhooks, as Surehook sends them, with Hono.
//
//   WEBHOOK_SECRET=whsec_… npx tsx standard_hono.ts
//
// During a rotation WEBHOOK_SECRET_PREVIOUS is the secret before. What came is kept
// in the table inbox (DATABASE, inbox.db) under its id, and only then answered 200;
// the work is done afterwards.
import { createHmac, timingSafeEqual } from "node:crypto";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import Database from "libsql";

const TOLERANCE = 300; // seconds, to either side
const MAX_BODY = 1_000_000; // bytes

/** The key of a whsec_ secret. One that is empty or cut must not start. */
function key(secret: string): Buffer {
  const raw = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  if (!/^whsec_[A-Za-z0-9+/]+=*$/.test(secret) || raw.length < 24 || raw.length > 64) {
    throw new Error("WEBHOOK_SECRET must be whsec_ and base64 of 24 to 64 bytes");
  }
  return raw;
}

const keys = [process.env.WEBHOOK_SECRET ?? "", ...(process.env.WEBHOOK_SECRET_PREVIOUS ? [process.env.WEBHOOK_SECRET_PREVIOUS] : [])].map(key);

const db = new Database(process.env.DATABASE ?? "inbox.db");
db.exec(`PRAGMA busy_timeout = 1000; PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)`);
// An id that is there already is a duplicate: kept once, answered 200.
const keep = db.prepare("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING");
const waiting = db.prepare("SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at");
const done = db.prepare("UPDATE inbox SET done_at = ? WHERE id = ?");
const now = () => Math.floor(Date.now() / 1000);

/** 200, or why not. */
function check(id: string, timestamp: string, signatures: string, body: Buffer): number {
  // A dot separates what is signed, so an id with one could be cut elsewhere.
  if (!id || id.includes(".") || !signatures || !/^[0-9]{1,12}$/.test(timestamp)) return 400;
  if (Math.abs(now() - Number(timestamp)) > TOLERANCE) return 401;
  // Any signature under any key will do: during a rotation there are two. The
  // body is a Buffer all the way: as a string it would lose what isn't UTF-8.
  for (const k of keys) {
    const wanted = Buffer.from("v1," + createHmac("sha256", k).update(`${id}.${timestamp}.`, "latin1").update(body).digest("base64"));
    for (const one of signatures.split(" ", 32)) {
      const got = Buffer.from(one, "latin1");
      if (got.length === wanted.length && timingSafeEqual(got, wanted)) return 200;
    }
  }
  return 401;
}

/** Does what the events are for, outside of any request. */
function work(): void {
  try {
    for (const { id, body } of waiting.all() as { id: string; body: Uint8Array }[]) {
      console.log(`${id}: ${body.length} bytes`); // yours; it may run twice after a crash
      done.run(now(), id);
    }
  } catch {
    setTimeout(work, 1000); // locked: later
  }
}

const app = new Hono();

app.post("/webhook", bodyLimit({ maxSize: MAX_BODY, onError: (c) => c.body(null, 413) }), async (c) => {
  const body = Buffer.from(await c.req.arrayBuffer()); // not json(): the raw bytes are signed
  const id = c.req.header("webhook-id") ?? "";
  const status = check(id, c.req.header("webhook-timestamp") ?? "", c.req.header("webhook-signature") ?? "", body);
  if (status !== 200) return c.body(null, status as 400);
  try {
    keep.run(id, body, now());
  } catch {
    return c.body(null, 503); // locked or full: it may pass, and the sender tries again
  }
  setImmediate(work);
  return c.body(null, 200);
});

work(); // what an earlier run left
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(process.env.PORT ?? 8000) }, (info: AddressInfo) => {
  console.log(`listening on http://127.0.0.1:${info.port}/webhook`);
});
