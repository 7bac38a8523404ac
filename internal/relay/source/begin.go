package source

import (
	"context"
	"os"
	"slices"
	"time"
)

// begin takes up where the last run was: by the state in the store, or by the
// bookmark beside the log where the original was at work since; else by what the
// configuration says of a first start.
func (t *tail) begin(ctx context.Context) error {
	st, err := load(ctx, t.o.States, t.id)
	if err != nil {
		return err
	}
	inode, offset, marked := t.bookmark.read()
	fresh := st == nil
	if fresh {
		if st, err = newState(t.o.Entropy); err != nil {
			return err
		}
		st.Saved = t.o.Now()
	}
	t.state, t.scan = st, true
	switch {
	case !fresh && (!marked || st.ours(t.bookmark.present)):
		t.resume()
	case marked:
		t.log.Info("going on where the bookmark beside the log says", "bookmark", t.bookmark.path)
		st.Files, st.Done = nil, nil
		err = t.fromBookmark(inode, offset)
	default:
		err = t.first()
	}
	if err != nil {
		for _, f := range t.files {
			_ = f.h.Close()
		}
		t.files, t.state = nil, nil
		return err
	}
	t.unsaved = true
	return nil
}

// first is the first start on a log that nobody has read.
func (t *tail) first() error {
	t.passOver(time.Time{})
	fi, err := os.Stat(t.path)
	if err != nil || !fi.Mode().IsRegular() || t.fromBeginning {
		return nil //nolint:nilerr // follow deals with it, from its beginning
	}
	h, info, err := open(t.path)
	if err != nil {
		return err
	}
	f := t.add(&file{path: t.path, h: h, info: info})
	offset, err := lineStart(h, info.Size())
	if err == nil {
		err = f.seek(offset)
	}
	if err == nil {
		t.log.Info("reading the log from its end on", "path", t.path, "offset", offset)
	}
	return err
}

// passOver notes that rotated files that were written last before a time aren't to
// be read; the zero time: all that are there.
func (t *tail) passOver(before time.Time) {
	all, err := siblings(t.path)
	if err != nil {
		return // the folder comes with the log
	}
	for _, s := range all {
		if !before.IsZero() && !s.info.ModTime().Before(before) {
			continue
		}
		t.state.Left = s.info.ModTime()
		if h, info, err := open(s.path); err == nil {
			b := make([]byte, headBytes)
			n, _ := h.ReadAt(b, 0)
			t.state.finished(known{identOf(info), mark{HeadLen: int64(n), Head: sum(b[:n]), Tail: sum(nil)}})
			_ = h.Close()
		}
	}
}

// fromBookmark goes on where the original stopped. It knows files by their
// numbers alone. A file that was rotated since is read to its end first, and a
// bookmark whose file is gone says at least that the log was being read: what is
// there now is new.
func (t *tail) fromBookmark(inode uint64, offset int64) error {
	fi, err := os.Stat(t.path)
	if err == nil && identOf(fi).Ino == inode {
		t.passOver(time.Time{})
		if offset > fi.Size() {
			return nil // it was cut: from its beginning
		}
		return t.at(t.path, offset, time.Time{})
	}
	all, err := siblings(t.path)
	if err != nil {
		return nil //nolint:nilerr // the folder comes with the log
	}
	i := slices.IndexFunc(all, func(s sibling) bool { return identOf(s.info).Ino == inode && s.info.Size() >= offset })
	if i < 0 {
		t.log.Warn("the file that the bookmark means isn't there any more; what wasn't read of it is lost", "bookmark", t.bookmark.path)
		t.passOver(time.Time{})
		return nil
	}
	t.passOver(all[i].info.ModTime())
	return t.at(all[i].path, offset, t.since(all[i].info))
}

// at begins a file at a place.
func (t *tail) at(path string, offset int64, left time.Time) error {
	h, info, err := open(path)
	if err != nil {
		return err
	}
	return t.add(&file{path: path, h: h, info: info, left: left}).seek(offset)
}

// resume finds the files of the state again: by their numbers, as long as what
// stood in them is still there, and else by that alone, in a copy.
func (t *tail) resume() {
	for _, fs := range t.state.Files {
		if fs.Mark.blank() {
			continue // it was empty: whatever is there now is new
		}
		f := &file{generation: fs.Generation, born: fs.Born}
		if !t.locate(f, fs) {
			t.log.Warn("a file of the log isn't there any more; what wasn't read of it is lost", "path", t.path, "offset", fs.Mark.Offset)
			t.state.finished(known{fs.Ident, fs.Mark})
			continue
		}
		if err := f.seek(fs.Mark.Offset); err != nil { // it was cut just now
			_ = f.h.Close()
			t.trouble("a file of the log can't be read", err)
			continue
		}
		t.files = append(t.files, f)
	}
}

func (t *tail) locate(f *file, fs fileState) bool {
	if h, info, err := open(t.path); err == nil {
		if identOf(info) == fs.Ident && fs.Mark.in(h) {
			f.h, f.info, f.path = h, info, t.path
			return true
		}
		_ = h.Close()
	}
	if all, err := siblings(t.path); err == nil {
		for _, s := range all {
			if identOf(s.info) != fs.Ident {
				continue
			}
			if h, info, err := open(s.path); err == nil {
				if fs.Mark.in(h) {
					f.h, f.info, f.path, f.left = h, info, s.path, t.since(info)
					return true
				}
				_ = h.Close()
			}
		}
	}
	f.h, f.info, f.path = t.find(fs.Mark, func(os.FileInfo) bool { return true })
	if f.h == nil {
		return false
	}
	f.left, f.frozen = t.since(f.info), true
	return true
}
