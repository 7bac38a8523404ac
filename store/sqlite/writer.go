package sqlite

import (
	"errors"
	"os"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// batchWeight bounds one transaction: about this many rows.
const batchWeight = 512

// Under load, a transaction that waits a moment for company costs each of its
// jobs less: a commit writes whole pages, and the last pages of a few tables
// take most of them. Below busyWeight nobody waits.
const (
	busyWeight  = 24
	gatherPause = 500 * time.Microsecond
)

// A checkpoint waits this long for readers, and is tried no sooner again.
const (
	checkpointWait  = 50 * time.Millisecond
	checkpointPause = time.Second
)

// job is something to be done in a transaction. run may run more than once,
// each time from the start in a transaction that knows nothing of the time
// before, so it must set its results anew.
type job struct {
	run    func(c *conn) error
	weight int
	bare   bool // runs alone and without a transaction
	solo   bool // with bare: in a transaction, alone, and once
	done   chan error
}

// writer owns the only connection that writes. Jobs that wait while a
// transaction commits share the next one.
type writer struct {
	s    *Store
	c    *conn
	jobs chan *job // unbuffered: a job that was taken is always answered
	quit chan struct{}
	gone chan struct{}
	busy bool  // the last batch was large
	err  error // of closing; read after gone

	again  time.Time       // when the write-ahead log may be checkpointed next
	backup *sqlite3.Backup // under way on c, if any
}

func startWriter(s *Store, c *conn) *writer {
	w := &writer{s: s, c: c, jobs: make(chan *job), quit: make(chan struct{}), gone: make(chan struct{})}
	go w.loop()
	return w
}

// stop finishes the jobs that wait, then closes the connection.
func (w *writer) stop() error {
	close(w.quit)
	<-w.gone
	return w.err
}

// write runs f in a transaction of the writer and waits for its commit. The
// wait can't be cancelled: an answer "unknown" would be worse than a late one.
func (s *Store) write(weight int, f func(c *conn) error) error {
	return s.ask(&job{run: f, weight: weight, done: make(chan error, 1)})
}

func (s *Store) ask(j *job) error {
	select {
	case s.w.jobs <- j:
		return wrap(<-j.done)
	case <-s.w.gone:
		return errClosed
	}
}

// change is write for what people and programs configure: f may refuse, which
// undoes what it did and leaves the others in the transaction alone.
func (s *Store) change(f func(c *conn) error) error {
	var refused error
	err := s.write(1, func(c *conn) (err error) {
		config := s.config.Load()
		if refused, err = c.savepoint(func() error { return f(c) }); refused != nil {
			s.config.Store(config)
		}
		return err
	})
	if err != nil {
		return err
	}
	return wrap(refused)
}

func (w *writer) loop() {
	var batch []*job
	for {
		batch = batch[:0]
		select {
		case j := <-w.jobs:
			batch = append(batch, j)
		case <-w.quit:
			select {
			case j := <-w.jobs:
				batch = append(batch, j)
			default:
				w.close()
				return
			}
		}
		if w.busy {
			time.Sleep(gatherPause) //nolint:forbidigo // the pause is the point: see gatherPause
		}
		var bare *job
		batch, bare = w.gather(batch)
		if len(batch) > 0 {
			w.commit(batch)
		}
		if bare != nil {
			bare.done <- w.alone(bare)
		}
		w.checkpoint()
	}
}

// gather adds to the batch what waits, up to the bound of a transaction or a
// job that runs alone, after it.
func (w *writer) gather(batch []*job) (_ []*job, bare *job) {
	if batch[0].bare {
		return batch[:0], batch[0]
	}
	weight := batch[0].weight
	defer func() { w.busy = weight >= busyWeight }()
	for weight < batchWeight {
		select {
		case j := <-w.jobs:
			if j.bare {
				return batch, j
			}
			batch = append(batch, j)
			weight += j.weight
		default:
			return batch, nil
		}
	}
	return batch, nil
}

func (w *writer) alone(j *job) error {
	if j.solo {
		return w.transact([]*job{j})
	}
	if w.c == nil {
		if err := w.reopen(); err != nil {
			return err
		}
	}
	return j.run(w.c)
}

func (w *writer) close() {
	if w.c != nil {
		w.err = w.shut()
	}
	close(w.gone)
}

// shut closes the connection and what works on it.
func (w *writer) shut() error {
	_ = w.backup.Close() // an unfinished one: its maker learns of it at the next step
	w.backup = nil
	err := w.c.close()
	w.c = nil
	return err
}

// commit runs the jobs in one transaction. When one of them fails, the others
// must not suffer: each then runs in a transaction of its own.
func (w *writer) commit(batch []*job) {
	start := time.Now()
	err := w.transact(batch)
	if err != nil && len(batch) > 1 && !storeIsGone(err) {
		for _, j := range batch {
			j.done <- w.transact([]*job{j})
		}
	} else {
		for _, j := range batch {
			j.done <- err
		}
	}
	if w.s.opt.OnBatch != nil {
		w.s.opt.OnBatch(BatchStats{Jobs: len(batch), Duration: time.Since(start), Err: err})
	}
}

// storeIsGone tells errors that every job would meet from those of one job.
func storeIsGone(err error) bool {
	return surehook.CodeOf(wrap(err)) == surehook.Unavailable
}

func (w *writer) transact(batch []*job) error {
	if w.c == nil {
		if err := w.reopen(); err != nil {
			return err
		}
	}
	config := w.s.config.Load()
	if err := w.work(batch); err != nil {
		// What was changed isn't: appends are checked against the file's version.
		w.s.config.Store(config)
		return w.failed(err)
	}
	w.s.keys.settled()
	return nil
}

func (w *writer) work(batch []*job) error {
	if _, err := w.c.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	for _, j := range batch {
		if err := j.run(w.c); err != nil {
			return err
		}
	}
	if err := w.s.keys.settle(w.c); err != nil {
		return err
	}
	_, err := w.c.exec(`COMMIT`)
	return err
}

// failed rolls back. An I/O error leaves it unknown what is in the file, so
// the connection is opened anew, under a new epoch: rows that were written
// after all are then free, and what our lanes hold is no longer theirs.
func (w *writer) failed(err error) error {
	if errors.Is(err, sqlite3.IOERR) && w.s.space.spent(w.s.path) {
		err = errors.Join(sqlite3.FULL, err) // the driver calls a full disk an I/O error
	}
	if errors.Is(err, sqlite3.FULL) {
		w.s.space.full()
	}
	if !w.c.GetAutocommit() {
		if e := w.c.Exec(`ROLLBACK`); e != nil {
			err = errors.Join(err, e)
		}
	}
	if errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.CORRUPT) || !w.c.GetAutocommit() {
		w.s.log.Error("the store's file failed; opening it anew", "error", err)
		_ = w.shut() // the connection is given up, whatever it says
	}
	return err
}

func (w *writer) reopen() error {
	w.s.space.makeRoom(w.s.path)
	c, err := open(w.s.path, false, 6<<10, w.s.opt.Sync)
	if err != nil {
		return err
	}
	if err := w.s.takeOver(c, false); err != nil {
		return closing(c, err)
	}
	w.c = c
	return privateLog(w.s.path)
}

// checkpoint keeps the write-ahead log small. The automatic checkpoint at each
// commit is passive and gives way to readers; past the soft limit the writer
// waits for them, but never long: a reader may stay (a backup by another
// process), and appends must not wait for it with each batch.
func (w *writer) checkpoint() {
	size := w.s.space.walSize()
	if size < walSoftLimit || w.c == nil || time.Now().Before(w.again) {
		return
	}
	w.again = time.Now().Add(checkpointPause)
	if err := w.c.BusyTimeout(checkpointWait); err != nil {
		w.s.log.Warn("the write-ahead log couldn't be checkpointed", "error", err, "bytes", size)
		return
	}
	mode := sqlite3.CHECKPOINT_RESTART
	if size > 4*walSoftLimit {
		mode = sqlite3.CHECKPOINT_TRUNCATE
	}
	if _, _, err := w.c.WALCheckpoint("main", mode); err != nil {
		w.s.log.Warn("the write-ahead log couldn't be checkpointed", "error", err, "bytes", size)
	}
	if err := w.c.BusyTimeout(busyTimeout); err != nil {
		w.s.log.Warn("the wait for locks couldn't be set back", "error", err)
	}
	w.s.space.measure(w.s)
}

func fileSize(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
