package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/seal"
)

const (
	rotatePage    = 500
	rotateWriters = 32 // whose writes share the store's transactions
)

// Rotation is what RotateMaster did.
type Rotation struct {
	NewKey   bool `json:"new_key"` // false: an earlier rotation was resumed
	Resealed int  `json:"resealed"`
	Current  int  `json:"already_current"`
	Lost     int  `json:"unreadable"` // sealed under a key that nobody has, or damaged
	Removed  int  `json:"old_keys_removed"`
	Kept     int  `json:"old_keys_kept"`
	FromEnv  bool `json:"-"`
}

// RotateMaster brings every stored secret under a new master key. A SQLite store
// must be that of a stopped server; on PostgreSQL every node needs both keys
// before, and only the new one after: with online the caller says that they have,
// else none may run. When it is interrupted, the next call
// goes on where it was: the key file holds both keys until nothing is left
// under the old one.
func RotateMaster(ctx context.Context, cfg config.Config, online bool, entropy io.Reader, progress func(done, total int)) (out Rotation, err error) {
	if entropy == nil {
		entropy = rand.Reader
	}
	path := cfg.MasterKeyFile
	if path == "" {
		path = filepath.Join(cfg.Data, KeyFile)
	}
	if cfg.Database == "" && missing(filepath.Join(cfg.Data, StoreFile)) {
		return out, surehook.Errorf(surehook.NotFound, "there is no store in %s", cfg.Data)
	}
	cfg.Deliver = false // this process is no node that others should share endpoints with
	store, err := openStore(ctx, cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if s, shared := store.(interface {
		Alone(ctx context.Context) error
	}); shared && !online {
		if err := s.Alone(ctx); err != nil {
			return out, err
		}
	}
	out.FromEnv = cfg.MasterKey != ""
	keys, err := currentKeys(cfg, path)
	if err != nil {
		return out, err
	}
	r := &rotation{store: store, progress: progress}
	if err := r.load(ctx, keys); err != nil {
		return out, err
	}
	if !out.FromEnv && r.old == 0 { // nothing left to resume
		fresh := make([]byte, 32)
		if _, err := io.ReadFull(entropy, fresh); err != nil {
			return out, err
		}
		keys = append([][]byte{fresh}, keys...)
		if err := writeKeys(path, keys); err != nil {
			return out, err
		}
		out.NewKey = true
		if err := r.load(ctx, keys); err != nil {
			return out, err
		}
	}
	out.Current = len(r.all) - r.old - r.lost
	err = r.reseal(ctx)
	out.Resealed, out.Lost = r.done, r.lost
	if err != nil {
		return out, err
	}
	if err := r.ring.Check(ctx, store, false); err != nil && !errors.Is(err, seal.ErrOtherKey) {
		return out, err
	}
	if _, err := r.ring.Setting(ctx, store, seal.EventIDKey, false); err != nil && !errors.Is(err, seal.ErrOtherKey) {
		return out, err
	}
	return out, r.prune(ctx, path, keys, &out)
}

func currentKeys(cfg config.Config, path string) ([][]byte, error) {
	if cfg.MasterKey != "" {
		return seal.ParseKeys(cfg.MasterKey)
	}
	return seal.ReadKeys(path)
}

// rotation is one run.
type rotation struct {
	store    surehook.Store
	ring     *seal.Keyring
	progress func(done, total int)

	all  []*surehook.Endpoint
	old  int // of all: with a secret under an older key
	lost int // of all: with one that doesn't open
	used map[string]bool

	mu   sync.Mutex
	done int
}

// load looks at what every secret is sealed under.
func (r *rotation) load(ctx context.Context, keys [][]byte) (err error) {
	if r.ring, err = seal.NewKeyring(rand.Reader, keys...); err != nil {
		return err
	}
	r.all, r.old, r.lost, r.used = nil, 0, 0, map[string]bool{}
	for page := (surehook.Page{Limit: rotatePage}); ; {
		eps, err := r.store.ListEndpoints(ctx, surehook.EndpointFilter{}, page)
		if err != nil {
			return err
		}
		for _, ep := range eps {
			r.all = append(r.all, ep)
			stale, err := r.bring(ep)
			switch {
			case err != nil:
				r.lost++
			case stale:
				r.old++
			}
			for _, s := range []string{ep.Secrets.Current, ep.Secrets.Previous} {
				if id, err := seal.KeyID(s); err == nil {
					r.used[id] = true
				}
			}
		}
		if len(eps) < page.Limit {
			return nil
		}
		page.Cursor = eps[len(eps)-1].Key
	}
}

// bring gives an endpoint's secrets resealed, without storing them, and whether
// that changed any.
func (r *rotation) bring(ep *surehook.Endpoint) (changed bool, err error) {
	_, changed, err = r.sealed(ep)
	return changed, err
}

func (r *rotation) sealed(ep *surehook.Endpoint) (s surehook.Secrets, changed bool, err error) {
	s = ep.Secrets
	for _, x := range []struct {
		column string
		text   *string
	}{{dispatch.CurrentColumn, &s.Current}, {dispatch.PreviousColumn, &s.Previous}} {
		if *x.text == "" {
			continue
		}
		fresh, moved, err := r.ring.Reseal(dispatch.SecretTable, x.column, ep.ID, *x.text)
		if err != nil {
			return s, false, err
		}
		*x.text, changed = fresh, changed || moved
	}
	return s, changed, nil
}

// reseal stores every secret that isn't under the current key, some at a time:
// their writes share transactions.
func (r *rotation) reseal(ctx context.Context) error {
	work := make(chan *surehook.Endpoint)
	errs := make(chan error, rotateWriters)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range rotateWriters {
		wg.Go(func() {
			for ep := range work {
				if err := r.one(ctx, ep); err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
	for _, ep := range r.all {
		if changed, err := r.bring(ep); err != nil || !changed {
			continue
		}
		select {
		case work <- ep:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(work)
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return context.Cause(ctx)
	}
}

func (r *rotation) one(ctx context.Context, ep *surehook.Endpoint) error {
	_, err := r.store.UpdateEndpoint(ctx, ep.ID, func(now *surehook.Endpoint) error {
		s, _, err := r.sealed(now)
		now.Secrets = s
		return err
	}, nil)
	if err != nil {
		return fmt.Errorf("resealing the secret of %s: %w", ep.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.progress != nil {
		r.progress(r.done, r.old)
	}
	return nil
}

// prune takes out of the file the keys that nothing is sealed under any more.
func (r *rotation) prune(ctx context.Context, path string, keys [][]byte, out *Rotation) error {
	if err := r.load(ctx, keys); err != nil {
		return err
	}
	keep := keys[:1:1]
	for _, key := range keys[1:] {
		ring, err := seal.NewKeyring(rand.Reader, key)
		if err != nil {
			return err
		}
		if r.used[ring.Current()] {
			keep = append(keep, key)
			out.Kept++
		} else {
			out.Removed++
		}
	}
	if out.FromEnv || out.Removed == 0 {
		return nil
	}
	return writeKeys(path, keep)
}

// writeKeys replaces a key file: the old one or the new one is there, whole, at
// any time.
func writeKeys(path string, keys [][]byte) error {
	var text strings.Builder
	text.WriteString("# Surehook's master keys. The first one seals; the others open what is still sealed under them.\n" +
		"# Without them no signing secret can be read: keep a copy apart from the data.\n")
	for _, key := range keys {
		text.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("the key file can't be written: %w", err)
	}
	_, err = f.WriteString(text.String())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the key file can't be written: %w", err), os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
