package source

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// handle is an open file of the log.
type handle interface {
	io.ReaderAt
	io.Closer
}

// open opens a regular file, compressed or not. A pipe would keep us waiting for
// its other end.
func open(path string) (handle, os.FileInfo, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s isn't a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if fi, err = f.Stat(); err != nil { // another one may be there by now
		_ = f.Close()
		return nil, nil, err
	}
	if strings.HasSuffix(path, ".gz") {
		g := &unzipped{f: f}
		if err := g.rewind(); err != nil {
			_ = f.Close()
			return nil, nil, err
		}
		return g, fi, nil
	}
	return f, fi, nil
}

// unzipped reads what a compressed file holds, forward at best: going back begins
// anew.
type unzipped struct {
	f  *os.File
	z  *gzip.Reader
	br *bufio.Reader
	at int64
}

func (u *unzipped) rewind() error {
	if _, err := u.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(bufio.NewReader(u.f))
	if err != nil {
		return err
	}
	if u.z, u.at = z, 0; u.br == nil {
		u.br = bufio.NewReaderSize(z, maxRead+tailBytes)
	}
	u.br.Reset(z)
	return nil
}

// ReadAt gives at most maxRead bytes and those before them that are compared.
func (u *unzipped) ReadAt(p []byte, offset int64) (int, error) {
	if offset < u.at {
		if err := u.rewind(); err != nil {
			return 0, err
		}
	}
	for u.at < offset {
		n, err := u.br.Discard(int(min(offset-u.at, 1<<20)))
		u.at += int64(n)
		if err != nil {
			return 0, err
		}
	}
	b, err := u.br.Peek(min(len(p), u.br.Size()))
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
	}
	return copy(p, b), err
}

func (u *unzipped) Close() error { return u.f.Close() }
