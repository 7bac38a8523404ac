// Stores a paid order, and the event that tells of it, in one transaction.
//
//     npx tsx order.ts ORDER TOTAL

import pg from "pg";

async function pay(client: pg.Client, order: string, total: string): Promise<string> {
  await client.query("BEGIN");
  try {
    await client.query("INSERT INTO orders (id, total) VALUES ($1, $2)", [order, total]);
    const { rows } = await client.query<{ id: string }>(
      "SELECT surehook.enqueue('order.paid', $1::json, owner => $2) AS id",
      [JSON.stringify({ order, total }), order],
    );
    await client.query("COMMIT");
    return rows[0].id;
  } catch (err) {
    await client.query("ROLLBACK");
    throw err;
  }
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  console.log(await pay(client, process.argv[2], process.argv[3]));
} finally {
  await client.end();
}
