// Receives Standard Webhooks, as Surehook sends them, with package receiver and Gin: WrapH takes an http.Handler. Nothing may bind or read the body before it.
//
//	WEBHOOK_SECRET=whsec_… go run ./gin
//
// During a rotation WEBHOOK_SECRET_PREVIOUS is the secret before. The event is
// put into the table inbox (DATABASE, inbox.db) in the very transaction that
// keeps its id, and only then answered 200; a goroutine does the work.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/surehook/surehook/receiver"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open("sqlite3", "file:"+cmp.Or(os.Getenv("DATABASE"), "inbox.db")+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	const inbox = "CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)"
	if _, err := db.ExecContext(ctx, inbox); err != nil {
		return err
	}
	ids := receiver.NewSQL(db, "webhook_ids")
	if err := ids.CreateTable(ctx); err != nil {
		return err
	}
	secrets := []string{os.Getenv("WEBHOOK_SECRET")}
	if previous := os.Getenv("WEBHOOK_SECRET_PREVIOUS"); previous != "" {
		secrets = append(secrets, previous)
	}
	rc, err := receiver.New(receiver.Standard(secrets...), ids)
	if err != nil {
		return err
	}
	arrived := make(chan struct{}, 1)
	arrived <- struct{}{} // what an earlier run left
	go work(ctx, db, arrived)

	take := func(ctx context.Context, m receiver.Message) error {
		tx, _ := receiver.Tx(ctx)
		_, err := tx.ExecContext(ctx, "INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?)", m.ID, m.Body, time.Now().Unix())
		if err != nil {
			return receiver.Answer(http.StatusServiceUnavailable, err)
		}
		select {
		case arrived <- struct{}{}:
		default:
		}
		return nil
	}
	gin.SetMode(gin.ReleaseMode)
	mux := gin.New()
	mux.POST("/webhook", gin.WrapH(rc.Handle(take)))

	l, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s/webhook\n", l.Addr())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

// work does what the events are for, outside of any request. It is rung before
// the commit, so it looks again a little later too.
func work(ctx context.Context, db *sql.DB, arrived <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	for {
		select {
		case <-arrived:
		case <-tick.C:
		}
		for {
			var id string
			var body []byte
			if db.QueryRowContext(ctx, "SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at LIMIT 1").Scan(&id, &body) != nil {
				break // none is left, or the database is busy
			}
			fmt.Printf("%s: %d bytes\n", id, len(body)) // yours; it may run twice after a crash
			if _, err := db.ExecContext(ctx, "UPDATE inbox SET done_at = ? WHERE id = ?", time.Now().Unix(), id); err != nil {
				break
			}
		}
	}
}
