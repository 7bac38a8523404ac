// Receives the purple-wolf relay's audit events with net/http and nothing of
// Surehook's.
//
//	PURPLEWOLF_SECRET=… go run ./purplewolf
//
// During a rotation PURPLEWOLF_SECRET_PREVIOUS is the secret before. Answers: 200
// for an event that is kept, duplicates too; 400 for missing headers; 401 for a
// wrong signature or time; 422 for a schema of another major version; 503 for what
// may pass.
package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
)

const (
	schema    = "purple-wolf.audit/v1"
	tolerance = 5 * time.Minute
	maxBody   = 1_000_000 // bytes
)

var digits = regexp.MustCompile(`^[0-9]{1,12}$`)

// server keeps events in the table inbox (DATABASE, inbox.db).
type server struct {
	secrets [][]byte
	db      *sql.DB
	arrived chan struct{}
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s := &server{arrived: make(chan struct{}, 1)}
	for _, name := range []string{"PURPLEWOLF_SECRET", "PURPLEWOLF_SECRET_PREVIOUS"} {
		if secret := os.Getenv(name); secret != "" {
			s.secrets = append(s.secrets, []byte(secret))
		}
	}
	if len(s.secrets) == 0 {
		return errors.New("PURPLEWOLF_SECRET is empty")
	}
	var err error
	s.db, err = sql.Open("sqlite3", "file:"+cmp.Or(os.Getenv("DATABASE"), "inbox.db")+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer s.db.Close()
	const inbox = "CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, received_at INTEGER NOT NULL, done_at INTEGER)"
	if _, err := s.db.ExecContext(ctx, inbox); err != nil {
		return err
	}
	s.arrived <- struct{}{} // what an earlier run left
	go s.work(ctx)

	l, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s/webhook\n", l.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook", s.receive)
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

func (s *server) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)) // the raw bytes are signed
	if err != nil {
		http.Error(w, "body", http.StatusRequestEntityTooLarge)
		return
	}
	id := r.Header.Get("X-PurpleWolf-Event-Id")
	if status := s.check(id, r.Header.Get("X-PurpleWolf-Timestamp"), r.Header.Get("X-PurpleWolf-Signature"), body); status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	// An id that is there already is a duplicate: kept once, answered 200.
	_, err = s.db.ExecContext(r.Context(), "INSERT INTO inbox (id, body, received_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", id, body, time.Now().Unix())
	if err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable) // locked or full: it may pass
		return
	}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// check gives 200, or why not.
func (s *server) check(id, timestamp, signature string, body []byte) int {
	if id == "" || signature == "" || !digits.MatchString(timestamp) {
		return http.StatusBadRequest
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return http.StatusUnauthorized
	}
	right := false
	for _, secret := range s.secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(timestamp + "."))
		mac.Write(body)
		right = hmac.Equal([]byte("sha256="+hex.EncodeToString(mac.Sum(nil))), []byte(signature)) || right
	}
	if !right {
		return http.StatusUnauthorized
	}
	var envelope struct { // members that aren't known are ignored
		Schema  string `json:"schema"`
		EventID string `json:"event_id"`
	}
	switch err := json.Unmarshal(body, &envelope); {
	case err != nil || envelope.Schema != schema:
		return http.StatusUnprocessableEntity
	case envelope.EventID != id:
		// The body is signed, the header isn't: an id that was put there later would
		// pass a captured request off as a new event.
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// work does what the events are for, outside of any request.
func (s *server) work(ctx context.Context) {
	tick := time.NewTicker(time.Second) // a database that was busy isn't later
	for {
		select {
		case <-s.arrived:
		case <-tick.C:
		}
		for {
			var id string
			var body []byte
			if s.db.QueryRowContext(ctx, "SELECT id, body FROM inbox WHERE done_at IS NULL ORDER BY received_at LIMIT 1").Scan(&id, &body) != nil {
				break // none is left, or the database is busy
			}
			fmt.Printf("%s: %d bytes\n", id, len(body)) // yours; it may run twice after a crash
			if _, err := s.db.ExecContext(ctx, "UPDATE inbox SET done_at = ? WHERE id = ?", time.Now().Unix(), id); err != nil {
				break
			}
		}
	}
}
