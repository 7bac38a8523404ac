package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// takePlace makes the node's directory its own, until the process ends in
// whichever way. Then whoever was there before is gone for certain, and what it
// held needn't wait for its lease to run out. A place is named by what is written
// there and by the host: the same directory seen from two hosts is two places, since
// locks needn't reach from one to the other. Without a directory, or beside
// another node in it, the lease does.
func (s *Store) takePlace() error {
	if s.opt.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.opt.Dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(s.opt.Dir, "node.lock"))
	if free, err := lock.TryLock(); err != nil || !free {
		return err
	}
	file := filepath.Join(s.opt.Dir, "node.id")
	id, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(id) < 26 { // half written
		id = []byte(rand.Text())
		err = os.WriteFile(file, id, 0o600)
	}
	var host string
	if err == nil {
		host, err = os.Hostname()
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.lock, s.place = lock, host+" "+strings.TrimSpace(string(id))
	return nil
}

func (s *Store) leavePlace() {
	if s.lock != nil {
		_ = s.lock.Close() // the process' end does it too
	}
}

// succeed frees what processes held that were in this place before. A transaction
// of theirs that is still being ended is waited for, but not for long.
func (s *Store) succeed(ctx context.Context) error {
	if s.place == "" {
		return nil
	}
	freed := false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '3s'`); err != nil {
			return err
		}
		dead, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT epoch FROM surehook.nodes WHERE place = $1 ORDER BY epoch FOR UPDATE`), s.place)
		if err != nil || len(dead) == 0 {
			return err
		}
		freed = true
		s.log.Info("taking over from a process that ended here without a word", "epochs", dead)
		return s.free(ctx, tx, dead, 1)
	})
	if sqlState(err) == "55P03" { // lock_not_available
		s.log.Warn("what a process held that ended here is still locked; it comes free with its lease", "error", err)
		return nil
	}
	if err == nil && freed {
		s.watch.tell(surehook.Change{Rows: true})
		s.calls.add(anyone) // an endpoint may be another node's
	}
	return err
}
