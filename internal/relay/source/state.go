package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// state is what a file's source knows from run to run.
type state struct {
	Seed  []byte      `json:"seed"` // of the ids
	Next  int64       `json:"next"` // the next generation
	Files []fileState `json:"files,omitempty"`
	// Done are files that were read to their end or weren't to be read, newest last.
	Done []known `json:"done,omitempty"`
	// Ours are the last two contents of the bookmark beside the file: any other was
	// written by somebody else.
	Ours  []string  `json:"ours,omitempty"`
	Saved time.Time `json:"saved"`
	// Left is when the last file in hand was written last.
	Left time.Time `json:"left,omitzero"`
}

// fileState is a file that isn't finished, oldest first.
type fileState struct {
	Generation int64     `json:"generation"`
	Born       time.Time `json:"born"`
	Ident      ident     `json:"ident"`
	Mark       mark      `json:"mark"`
}

// known is a file that is not to be read again.
type known struct {
	Ident ident `json:"ident"`
	Mark  mark  `json:"mark"`
}

const keepDone = 16

func newState(entropy io.Reader) (*state, error) {
	s := &state{Seed: make([]byte, 16), Next: 1}
	_, err := io.ReadFull(entropy, s.Seed)
	return s, err
}

func (s *state) finished(k known) {
	s.Done = append(s.Done, k)
	s.Done = s.Done[max(0, len(s.Done)-keepDone):]
}

func load(ctx context.Context, states States, id string) (*state, error) {
	b, err := states.Load(ctx, id)
	if err != nil || b == nil {
		return nil, err
	}
	s := new(state)
	if err := json.Unmarshal(b, s); err != nil || len(s.Seed) == 0 {
		return nil, fmt.Errorf("the state of %s in the store can't be read: %w", id, err)
	}
	return s, nil
}

// bookmark is the file that the original keeps beside a log, so that one can come
// from it and go back.
type bookmark struct {
	path    string
	present string // what it holds, as far as we know
}

func newBookmark(log string) bookmark { return bookmark{path: log + ".purple-wolf-relay.bookmark"} }

func (b *bookmark) read() (inode uint64, offset int64, ok bool) {
	text, err := os.ReadFile(b.path)
	if err != nil || len(text) > 100 {
		return 0, 0, false
	}
	b.present = string(text)
	f := strings.Fields(b.present)
	if len(f) != 2 {
		return 0, 0, false
	}
	inode, err = strconv.ParseUint(f[0], 10, 64)
	offset, err2 := strconv.ParseInt(f[1], 10, 64)
	return inode, offset, err == nil && err2 == nil && offset >= 0
}

func content(inode uint64, offset int64) string { return fmt.Sprintf("%d %d\n", inode, offset) }

func (b *bookmark) write(text string) error {
	if b.present == text {
		return nil
	}
	tmp := b.path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil { //nolint:gosec // the original, under another user, must be able to read it
		return err
	}
	if err := os.Rename(tmp, b.path); err != nil {
		return err
	}
	b.present = text
	return nil
}

// ours tells whether a bookmark is what we wrote, maybe the one before the last.
func (s *state) ours(text string) bool { return text == "" || slices.Contains(s.Ours, text) }

// Settings keeps states among a store's settings. Scope sets those of several
// relays on one store apart; it must be the same from run to run.
type Settings struct {
	Store surehook.Settings
	Scope string
}

func (s Settings) name(id string) string { return "relay.source." + s.Scope + "." + id }

// Load gives nil for what was never saved.
func (s Settings) Load(ctx context.Context, id string) ([]byte, error) {
	b, err := s.Store.Setting(ctx, s.name(id))
	if surehook.CodeOf(err) == surehook.NotFound && err != nil {
		return nil, nil //nolint:nilerr // it is no error that nothing was saved
	}
	return b, err
}

// Save keeps a state.
func (s Settings) Save(ctx context.Context, id string, state []byte) error {
	_, err := s.Store.PutSetting(ctx, s.name(id), state, true)
	return err
}

var _ States = Settings{}

var errGone = errors.New("the file isn't what it was")
