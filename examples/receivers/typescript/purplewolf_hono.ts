// Receives the purple-wolf relay's audit events with Hono.
//
//   PURPLEWOLF_SECRET=… npx tsx purplewolf_hono.ts
//
// During a rotation PURPLEWOLF_SECRET_PREVIOUS is the secret before. Answers: 200 for an
// event that is kept, duplicates too; 400 for missing headers; 401 for a wrong signature
// or time; 422 for a schema of another major version; 503 for what may pass.
import { createHmac, timingSafeEqual } from "node:crypto";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import Database from "libsql";

const SCHEMA = "purple-wolf.audit/v1";
const TOLERANCE = 300; // seconds, to either side
const MAX_BODY = 1_000_000; // bytes

const secrets = [process.env.PURPLEWOLF_SECRET, process.env.PURPLEWOLF_SECRET_PREVIOUS].filter((s): s is string => !!s);
if (secrets.length === 0) throw new Error("PURPLEWOLF_SECRET is empty");

const db = new Database(process.env.DATABASE ?? "inbox.db");
db.exec(`PRAGMA busy_timeout = 1000; PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)`);
// An id that is there already is a duplicate: kept once, answered 200.
const keep = db.prepare("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING");
const waiting = db.prepare("SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at");
const done = db.prepare("UPDATE inbox SET done_at = ? WHERE id = ?");
const now = () => Math.floor(Date.now() / 1000);

/** 200, or why not. */
function check(id: string, timestamp: string, signature: string, body: Buffer): number {
  if (!id || !signature || !/^[0-9]{1,12}$/.test(timestamp)) return 400;
  if (Math.abs(now() - Number(timestamp)) > TOLERANCE) return 401;
  const got = Buffer.from(signature, "latin1");
  for (const secret of secrets) {
    const wanted = Buffer.from("sha256=" + createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest("hex"));
    if (got.length === wanted.length && timingSafeEqual(got, wanted)) return 200;
  }
  return 401;
}

/** The status for what the body says. Members that aren't known are ignored. */
function judge(id: string, body: Buffer): number {
  let envelope: { schema?: unknown; event_id?: unknown } | null;
  try {
    envelope = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return 422;
  }
  if (envelope?.schema !== SCHEMA) return 422;
  // The body is signed, the header isn't: an id that was put there later would pass a
  // captured request off as a new event.
  return envelope.event_id === id ? 200 : 400;
}

/** Does what the events are for, outside of any request. */
function work(): void {
  try {
    for (const { id, body } of waiting.all() as { id: string; body: Uint8Array }[]) {
      const { event } = JSON.parse(Buffer.from(body).toString());
      console.log(`${id}: ${event?.action} ${event?.blocked_rule}`); // yours; it may run twice after a crash
      done.run(now(), id);
    }
  } catch {
    setTimeout(work, 1000); // locked: later
  }
}

const app = new Hono();

app.post("/webhook", bodyLimit({ maxSize: MAX_BODY, onError: (c) => c.body(null, 413) }), async (c) => {
  const body = Buffer.from(await c.req.arrayBuffer()); // not json(): the raw bytes are signed
  const id = c.req.header("x-purplewolf-event-id") ?? "";
  let status = check(id, c.req.header("x-purplewolf-timestamp") ?? "", c.req.header("x-purplewolf-signature") ?? "", body);
  if (status === 200) status = judge(id, body);
  if (status !== 200) return c.body(null, status as 400);
  try {
    keep.run(id, body, now());
  } catch {
    return c.body(null, 503); // locked or full: it may pass, and the relay tries again
  }
  setImmediate(work);
  return c.body(null, 200);
});

work(); // what an earlier run left
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(process.env.PORT ?? 8000) }, (info: AddressInfo) => {
  console.log(`listening on http://127.0.0.1:${info.port}/webhook`);
});
