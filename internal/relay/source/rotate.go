package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// follow looks whether the log is another file by now. Until the new one has
// something in it nothing is to be done: whoever writes still has the old one.
func (t *tail) follow() (again bool, stuck error) {
	fi, err := os.Stat(t.path)
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s isn't a regular file", t.path)
	}
	switch {
	case err == nil:
		delete(t.told, isntHere)
		delete(t.told, cantLook)
	case errors.Is(err, fs.ErrNotExist):
		t.trouble(isntHere, err)
	default:
		t.trouble(cantLook, err)
		stuck = err
	}
	there := err == nil && fi.Size() > 0
	if there {
		if i := slices.IndexFunc(t.files, func(f *file) bool { return os.SameFile(f.info, fi) && !f.frozen }); i >= 0 {
			t.scan = false
			return t.back(i), nil
		}
	}
	if !there && !t.scan {
		return false, stuck
	}
	t.scan = false
	since := t.state.Left
	if n := len(t.files); n > 0 {
		since = t.files[n-1].modified()
	}
	again = t.catchUp(since)
	if there {
		var adopted bool
		if adopted, stuck = t.adopt(t.path, time.Time{}); adopted {
			again = true
		}
	}
	return again, stuck
}

// back makes a file that is in hand the log: mostly it is so already.
func (t *tail) back(i int) bool {
	if i == len(t.files)-1 && t.files[i].left.IsZero() {
		return false
	}
	f := t.files[i]
	t.files = append(slices.Delete(t.files, i, i+1), f)
	t.leave()
	f.left, f.over = time.Time{}, false
	t.unsaved = true
	return true
}

// leave notes that the log was another file until now.
func (t *tail) leave() {
	for _, f := range t.files {
		if f.left.IsZero() {
			f.left = t.o.Now()
		}
	}
}

// adopt begins a file. left: since when it isn't the log any more, zero if it is.
func (t *tail) adopt(path string, left time.Time) (bool, error) {
	h, info, err := open(path)
	if err != nil {
		t.trouble("a file of the log can't be opened; trying again", err)
		t.scan = t.scan || !left.IsZero()
		return false, err
	}
	offset := int64(0)
	if k := t.knows(h, info); k != nil {
		if offset = k.Mark.Offset; !left.IsZero() {
			_ = h.Close()
			return false, nil
		}
	}
	t.leave()
	f := t.add(&file{path: path, h: h, info: info, left: left})
	if err := f.seek(offset); err != nil {
		t.drop(f)
		t.trouble("a file of the log can't be read; trying again", err)
		return false, err
	}
	t.log.Info("reading a file of the log", "path", path, "offset", offset)
	return true, nil
}

// since is when a rotated file was left, as far as we know: clocks may differ.
func (t *tail) since(fi os.FileInfo) time.Time {
	if now := t.o.Now(); fi.ModTime().After(now) {
		return now
	}
	return fi.ModTime()
}

// add gives a file its generation.
func (t *tail) add(f *file) *file {
	f.generation, f.born = t.state.Next, t.o.Now().UTC().Truncate(time.Millisecond)
	t.state.Next++
	t.files = append(t.files, f)
	t.unsaved, t.dirty = true, true
	return f
}

func (t *tail) drop(f *file) {
	_ = f.h.Close()
	t.files = slices.DeleteFunc(t.files, func(x *file) bool { return x == f })
}

// knows finds a file among those that aren't to be read again: the same one, or a
// compressed copy.
func (t *tail) knows(h handle, info os.FileInfo) *known {
	_, copied := h.(*unzipped)
	for i := range t.state.Done {
		k := &t.state.Done[i]
		if !k.Mark.blank() && (copied || k.Ident == identOf(info)) && k.Mark.in(h) {
			return k
		}
	}
	return nil
}

// catchUp adopts what was the log meanwhile.
func (t *tail) catchUp(since time.Time) (again bool) {
	for _, s := range t.missed(since) {
		if adopted, _ := t.adopt(s.path, t.since(s.info)); adopted { // it is tried again
			again = true
		}
	}
	return again
}

// missed finds files that were the log between one that was written last at since
// and the one that is there now: those that were written later, and aren't known.
func (t *tail) missed(since time.Time) []sibling {
	all, err := siblings(t.path)
	if err != nil {
		t.trouble("rotated files can't be looked for", err)
	}
	log, err := os.Stat(t.path)
	return slices.DeleteFunc(all, func(s sibling) bool {
		// Where the log is a link, what it leads to may look like a rotated file.
		return s.info.ModTime().Before(since) || err == nil && os.SameFile(s.info, log) || t.has(s)
	})
}

// has tells whether a sibling is in hand, or a copy of what is or was read, or not
// to be read.
func (t *tail) has(s sibling) bool {
	if slices.ContainsFunc(t.files, func(f *file) bool { return os.SameFile(f.info, s.info) }) {
		return true
	}
	h, info, err := open(s.path)
	if err != nil {
		t.trouble("a rotated file can't be looked at", err)
		return true
	}
	defer h.Close()
	return t.knows(h, info) != nil || slices.ContainsFunc(t.files, func(f *file) bool { return f.at.copied(h) })
}

// swapped tells whether a file that was empty was written and cut since: it can't be
// told from the file itself, but there is a copy then.
func (t *tail) swapped(f *file) bool {
	return f.left.IsZero() && !f.modified().Equal(f.wrote) && len(t.missed(f.wrote)) > 0
}

// cut deals with a file that was cut to nothing while it stayed the same file:
// what it had is in the copy that was made of it, if that is still there, and
// what it has now is another generation. It may have been cut more than once.
func (t *tail) cut(f *file) {
	i := slices.Index(t.files, f)
	after := slices.Clone(t.files[i+1:])
	t.files = t.files[:i]
	since := f.wrote
	if c := t.copyOf(f); c != nil {
		t.log.Info("the log was cut; reading the rest of it from its copy", "path", c.path, "offset", c.read)
		t.files, since = append(t.files, c), c.modified()
	} else if f.read > 0 {
		t.log.Info("the log was cut, and no copy with more of it is there", "path", f.path, "offset", f.read)
	}
	fresh := t.add(&file{path: f.path, h: f.h, info: f.info})
	if err := fresh.seek(0); err != nil {
		t.trouble(cantRead, err) // and it is blank
	}
	from := len(t.files) - 1
	t.catchUp(since)
	fresh.left = f.left
	slices.SortStableFunc(t.files[from:], func(a, b *file) int { return a.modified().Compare(b.modified()) })
	t.files = append(t.files, after...)
}

// copyOf finds the copy of a file that was cut.
func (t *tail) copyOf(f *file) *file {
	h, info, path := t.find(f.at, func(fi os.FileInfo) bool { return !os.SameFile(fi, f.info) })
	if h == nil {
		return nil
	}
	c := &file{generation: f.generation, born: f.born, path: path, h: h, info: info, left: t.o.Now(), frozen: true}
	if err := c.seek(f.read); err != nil {
		_ = h.Close()
		t.trouble("the copy of the log can't be read", err)
		return nil
	}
	c.done = f.done
	return c
}

// find looks for a rotated file by what stands in it, the newest first.
func (t *tail) find(m mark, suits func(os.FileInfo) bool) (handle, os.FileInfo, string) {
	if m.blank() {
		return nil, nil, ""
	}
	all, err := siblings(t.path)
	if err != nil {
		t.trouble("rotated files can't be looked for", err)
		return nil, nil, ""
	}
	for _, s := range slices.Backward(all) {
		if !suits(s.info) {
			continue
		}
		h, info, err := open(s.path)
		if err != nil {
			continue
		}
		if m.in(h) {
			return h, info, s.path
		}
		_ = h.Close()
	}
	return nil, nil, ""
}

// lineStart finds where the line at the end of a file begins.
func lineStart(h handle, size int64) (int64, error) {
	for end := size; end > 0; {
		n := min(end, 64<<10)
		b, err := readAt(h, end-n, n)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil // it was cut just now
		}
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}
