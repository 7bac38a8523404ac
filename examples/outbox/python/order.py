"""Stores a paid order, and the event that tells of it, in one transaction.

    python order.py ORDER TOTAL
"""

import json
import os
import sys

import psycopg


def pay(conn: psycopg.Connection, order: str, total: str) -> str:
    with conn.transaction():
        conn.execute("INSERT INTO orders (id, total) VALUES (%s, %s)", (order, total))
        row = conn.execute(
            "SELECT surehook.enqueue('order.paid', %s::json, owner => %s)",
            (json.dumps({"order": order, "total": total}), order),
        ).fetchone()
    return row[0]


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
    print(pay(conn, *sys.argv[1:3]))
