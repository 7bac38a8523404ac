package seal

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const maxKeyFile = 64 << 10

// ParseKey reads a master key: 32 bytes in standard base64, padded or not, or
// in hex. The two can't be confused: they differ in length. The error doesn't
// repeat the text.
func ParseKey(s string) ([]byte, error) {
	// The decoder skips line breaks.
	if strings.ContainsAny(s, " \t\r\n") {
		return nil, errors.New("bad master key: white space in it")
	}
	switch len(s) {
	case hex.EncodedLen(keySize):
		if key, err := hex.DecodeString(s); err == nil {
			return key, nil
		}
	case base64.StdEncoding.EncodedLen(keySize):
		if key, err := base64.StdEncoding.Strict().DecodeString(s); err == nil && len(key) == keySize {
			return key, nil
		}
	case base64.RawStdEncoding.EncodedLen(keySize):
		if key, err := base64.RawStdEncoding.Strict().DecodeString(s); err == nil {
			return key, nil
		}
	default:
		return nil, fmt.Errorf("bad master key: %d characters; 32 bytes are 44 in base64 or 64 in hex", len(s))
	}
	return nil, errors.New("bad master key: its characters are neither standard base64 nor hex")
}

// ParseKeys reads the keys of a file or an environment value: one a line, the
// first current, the others for what is still sealed under them. Empty lines
// and lines that begin with # are skipped.
func ParseKeys(text string) ([][]byte, error) {
	var keys [][]byte
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := ParseKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		keys = append(keys, key)
	}
	if lines.Err() != nil {
		return nil, errors.New("bad master key: a line is too long")
	}
	if len(keys) == 0 {
		return nil, errors.New("no master key in it")
	}
	return keys, nil
}

// ReadKeys reads a key file. A file that others than its owner may read is
// refused: the keys in it may be known already.
func ReadKeys(path string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("master key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened, so that nothing can change in between
	if err != nil {
		return nil, fmt.Errorf("master key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("master key file %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); loose(mode) {
		return nil, fmt.Errorf("master key file %s may be read or written by others (mode %04o); make it its owner's alone: chmod 600 %s", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("master key file: %w", err)
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("master key file %s is too large", path)
	}
	keys, err := ParseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// CreateKey makes a master key from rand and writes it to a new file of mode
// 0600: complete and on disk, or not there at all. An existing file is never
// replaced: that would lose what is sealed under it. The error is then
// fs.ErrExist.
func CreateKey(path string, rand io.Reader) ([]byte, error) {
	key := make([]byte, keySize)
	if _, err := io.ReadFull(rand, key); err != nil {
		return nil, fmt.Errorf("new master key: %w", err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Surehook's master key. Without it no signing secret can be read: keep a copy apart from the data.\n%s\n",
		base64.StdEncoding.EncodeToString(key))
	if err := writeNew(path, text.Bytes()); err != nil {
		return nil, fmt.Errorf("new master key file: %w", err)
	}
	return key, nil
}

// LoadOrCreate reads a key file, or makes it where there is none. created
// tells which. Two processes that start at once end with the same key.
func LoadOrCreate(path string, rand io.Reader) (keys [][]byte, created bool, err error) {
	keys, err = ReadKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, false, err
	}
	key, err := CreateKey(path, rand)
	if errors.Is(err, fs.ErrExist) { // another process was first
		keys, err = ReadKeys(path)
		return keys, false, err
	}
	if err != nil {
		return nil, false, err
	}
	return [][]byte{key}, true, nil
}

// writeNew writes beside the target and links the finished file to its name,
// because a rename would replace a file that appeared meanwhile.
func writeNew(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := publish(os.Link, f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// publish gives the finished file its name. Where the file system has no links
// (some network and container mounts) it looks first and renames then.
func publish(link func(from, to string) error, from, to string) error {
	err := link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fs.ErrExist, err)
	}
	return os.Rename(from, to)
}
