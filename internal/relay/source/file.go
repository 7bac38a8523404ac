package source

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

const (
	firstRead = 256 << 10
	maxRead   = MaxLine + 2 // a whole line, with its carriage return and newline
)

// file is one file of a log, as far as it was read.
type file struct {
	generation int64
	born       time.Time
	path       string // where it was found
	h          handle
	info       os.FileInfo

	read   int64     // where the next line begins
	skip   int64     // over a line that is too long: how far; 0: in none
	head   []byte    // the file's beginning
	before []byte    // what stands before the place that is read next
	rest   int       // bytes of a line without an end
	wrote  time.Time // when it was written last, as of the last look
	grown  time.Time

	at   mark // of read
	done mark // up to there all is committed

	left   time.Time // since when the log is another file; zero: it is this one
	frozen bool      // nobody writes it: a copy
	over   bool      // read to its end
}

// seek sets where a file is read from.
func (f *file) seek(offset int64) error {
	f.head = make([]byte, headBytes)
	n, err := f.h.ReadAt(f.head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f.head = f.head[:n]
	if f.before, err = readAt(f.h, offset-min(offset, tailBytes), min(offset, tailBytes)); err != nil {
		return err
	}
	f.read, f.skip, f.wrote = offset, 0, f.modified()
	f.mark()
	f.done = f.at
	return nil
}

// mark notes the place that was reached. It goes by what was read: the file may
// have changed since.
func (f *file) mark() {
	f.at = mark{Offset: f.read, HeadLen: int64(len(f.head)), Head: sum(f.head), Tail: sum(f.before)}
}

// collect takes lines until the batch is full or there are no more. Its error is
// errGone when the file was cut, and maybe written anew.
func (f *file) collect(c *collector, buf []byte) error {
	want := firstRead
	for !c.full() {
		from, k := max(f.read, f.skip), len(f.before)
		n, err := f.h.ReadAt(buf[:k+want], from-int64(k))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < k || !bytes.Equal(buf[:k], f.before) {
			return errGone
		}
		data := buf[k:n]
		if !f.begins(from, data) {
			return errGone
		}
		f.learn(from, data)
		used := f.take(c, data, from)
		if used > 0 {
			f.read, f.skip, f.rest = from+int64(used), 0, 0
			f.before, f.grown = last(f.before, buf[:k+used]), c.now
			f.mark()
			continue
		}
		switch {
		case len(data) < want:
			if len(data) != f.rest {
				f.rest, f.grown = len(data), c.now
			}
			return nil
		case want < maxRead:
			want = maxRead
		default:
			f.skip, f.before = from+int64(len(data)), last(f.before, buf[:n])
			c.seen += len(data)
		}
	}
	return nil
}

// begins tells whether data is what is known of the file's beginning, as far as
// it goes into it. Where nothing was read yet, nothing else tells a file that was
// cut and written anew since.
func (f *file) begins(from int64, data []byte) bool {
	if from >= int64(len(f.head)) {
		return true
	}
	return bytes.HasPrefix(data, f.head[from:])
}

// learn keeps the file's beginning.
func (f *file) learn(from int64, data []byte) {
	have := int64(len(f.head))
	if end := from + int64(len(data)); have < headBytes && from <= have && end > have {
		f.head = append(f.head, data[have-from:min(end, headBytes)-from]...)
	}
}

// take gives the lines of data, which begins at from, and tells how much they are.
func (f *file) take(c *collector, data []byte, from int64) (used int) {
	skipping := f.skip > 0
	for !c.full() {
		n := bytes.IndexByte(data[used:], '\n')
		if n < 0 {
			break
		}
		if skipping {
			skipping = false
			c.tooLong()
		} else {
			c.line(data[used:used+n], from+int64(used))
		}
		used += n + 1
	}
	return used
}

// finish takes a last line that has no end, of a file that nobody writes any more.
func (f *file) finish(c *collector, buf []byte) error {
	from := max(f.read, f.skip)
	n, err := f.h.ReadAt(buf[:maxRead], from)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case f.skip > 0:
		c.tooLong()
	case n > 0:
		c.line(buf[:n], f.read)
	default:
		return nil
	}
	f.learn(from, buf[:n])
	f.before = last(f.before, append(bytes.Clone(f.before), buf[:n]...))
	f.read, f.skip, f.rest = from+int64(n), 0, 0
	f.mark()
	return nil
}

// last keeps the end of b, in the room of to.
func last(to, b []byte) []byte {
	return append(to[:0], b[max(0, len(b)-tailBytes):]...)
}

// modified tells when the file was written last.
func (f *file) modified() time.Time {
	if s, ok := f.h.(interface{ Stat() (os.FileInfo, error) }); ok {
		if fi, err := s.Stat(); err == nil {
			return fi.ModTime()
		}
	}
	return f.info.ModTime()
}
