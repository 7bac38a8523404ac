// Receives Standard Webhooks, as Surehook sends them, with Express and the official
// package.
//
//   WEBHOOK_SECRET=whsec_… npx tsx standard_express.ts
//
// During a rotation WEBHOOK_SECRET_PREVIOUS is the secret before. The package is right
// for JSON; the three places where it must be helped are marked.
import type { AddressInfo } from "node:net";
import express from "express";
import Database from "libsql";
import { Webhook } from "standardwebhooks";

const MAX_BODY = 1_000_000; // bytes

const webhooks = [process.env.WEBHOOK_SECRET ?? "", ...(process.env.WEBHOOK_SECRET_PREVIOUS ? [process.env.WEBHOOK_SECRET_PREVIOUS] : [])].map((s) => new Webhook(s));

const db = new Database(process.env.DATABASE ?? "inbox.db");
db.exec(`PRAGMA busy_timeout = 1000; PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)`);
// An id that is there already is a duplicate: kept once, answered 200.
const keep = db.prepare("INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING");
const waiting = db.prepare("SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at");
const done = db.prepare("UPDATE inbox SET done_at = ? WHERE id = ?");
const now = () => Math.floor(Date.now() / 1000);
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** 200, or why not. */
function check(headers: Record<string, string>, body: Buffer): number {
  if (!headers["webhook-id"] || !headers["webhook-timestamp"] || !headers["webhook-signature"]) return 400;
  // 1. The package takes ids with a dot, which can be cut at another place.
  if (headers["webhook-id"].includes(".")) return 400;
  // 2. It signs a Buffer's UTF-8 decoding, in which bytes that aren't UTF-8 are all
  // the same character: whoever sits in between could change them. So give it text.
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    return 415;
  }
  for (const webhook of webhooks) {
    try {
      webhook.verify(text, headers, { jsonParse: false });
      return 200;
    } catch {
      // 3. Malformed headers raise other errors than its own, too.
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

/** The raw body; undefined: it is over the bound. express.json would parse it, and
 * express.raw would read one that is too long to its end before it says so. */
async function raw(req: express.Request): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of req.iterator({ destroyOnReturn: false })) {
    size += part.length;
    if (size > MAX_BODY) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

const app = express(); // a global app.use(express.json()) before the route would eat the body

app.post("/webhook", async (req, res) => {
  const body = await raw(req);
  if (!body) return void res.set("Connection", "close").sendStatus(413);
  const headers = Object.fromEntries(Object.entries(req.headers).map(([name, value]) => [name, String(value ?? "")]));
  const status = check(headers, body);
  if (status !== 200) return void res.sendStatus(status);
  try {
    keep.run(headers["webhook-id"], body, now());
  } catch {
    return void res.sendStatus(503); // locked or full: it may pass, and the sender tries again
  }
  setImmediate(work);
  res.sendStatus(200);
});

work(); // what an earlier run left
const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}/webhook`);
});
