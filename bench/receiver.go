package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The receiver runs in a process of its own, as receivers do. A body begins with
// `{"t":"` and the publish time in 16 hex digits, Unix nanoseconds.
type receiver struct {
	mu     sync.Mutex
	seen   map[string]uint32 // by webhook-id, when asked to remember
	keep   bool
	count  int64
	delays []uint32 // microseconds from publish to arrival
	down   bool
}

// arrivals is what a receiver saw since the last reset.
type arrivals struct {
	Count   int64   `json:"count"`
	Unique  int64   `json:"unique"`
	P50Ms   float64 `json:"p50_ms"`
	P95Ms   float64 `json:"p95_ms"`
	P99Ms   float64 `json:"p99_ms"`
	BlackTo string  `json:"black"`
}

func serveReceiver(out io.Writer) error {
	rc := &receiver{seen: map[string]uint32{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/", rc.hook)
	mux.HandleFunc("POST /held/", func(w http.ResponseWriter, r *http.Request) {
		rc.mu.Lock()
		down := rc.down
		rc.mu.Unlock()
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		rc.hook(w, r)
	})
	mux.HandleFunc("POST /reset", rc.reset)
	mux.HandleFunc("GET /arrivals", rc.report)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	black, err := blackHole()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(map[string]string{"url": "http://" + l.Addr().String(), "black": "http://" + black}); err != nil {
		return err
	}
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

// blackHole accepts connections and never answers.
func blackHole() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // until the sender gives up
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String(), nil
}

func (rc *receiver) hook(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	var head [64 << 10]byte
	n, err := io.ReadFull(r.Body, head[:min(int64(len(head)), r.ContentLength)])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.count++
	if rc.keep {
		rc.seen[r.Header.Get("webhook-id")]++
	}
	if t, ok := stamp(head[:n]); ok {
		rc.delays = append(rc.delays, uint32(max(now-t, 0)/1000))
	}
	w.WriteHeader(http.StatusOK)
}

func (rc *receiver) reset(_ http.ResponseWriter, r *http.Request) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.count, rc.delays, rc.seen = 0, rc.delays[:0], map[string]uint32{}
	rc.keep, rc.down = r.URL.Query().Get("keep") != "", r.URL.Query().Get("down") != ""
}

func (rc *receiver) report(w http.ResponseWriter, _ *http.Request) {
	rc.mu.Lock()
	a := arrivals{Count: rc.count, Unique: int64(len(rc.seen))}
	delays := slices.Clone(rc.delays)
	rc.mu.Unlock()
	slices.Sort(delays)
	if n := len(delays); n > 0 {
		a.P50Ms, a.P95Ms, a.P99Ms = float64(delays[n/2])/1000, float64(delays[n*95/100])/1000, float64(delays[n*99/100])/1000
	}
	_ = json.NewEncoder(w).Encode(a) // the asker is gone: nothing to tell
}

const hexDigits = "0123456789abcdef"

// payload makes a body of size bytes that carries the time.
func payload(size int, now time.Time) []byte {
	b := make([]byte, 0, size)
	b = append(b, `{"t":"`...)
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(now.UnixNano()))
	for _, x := range raw {
		b = append(b, hexDigits[x>>4], hexDigits[x&15])
	}
	b = append(b, `","pad":"`...)
	for len(b) < size-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// stamp finds the time again, wherever an envelope put the data.
func stamp(body []byte) (int64, bool) {
	const mark = `{"t":"`
	for i := 0; i+len(mark)+16 <= len(body) && i < 512; i++ {
		if string(body[i:i+len(mark)]) != mark {
			continue
		}
		var v uint64
		for _, c := range body[i+len(mark) : i+len(mark)+16] {
			d := slices.Index([]byte(hexDigits), c)
			if d < 0 {
				return 0, false
			}
			v = v<<4 | uint64(d)
		}
		return int64(v), true
	}
	return 0, false
}

// remote is the receiver as the parent sees it.
type remote struct {
	URL   string `json:"url"`
	Black string `json:"black"`
	stop  context.CancelFunc
}

func (r remote) reset(query string) error {
	res, err := http.Post(r.URL+"/reset?"+query, "", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (r remote) arrivals() (a arrivals, err error) {
	res, err := http.Get(r.URL + "/arrivals")
	if err != nil {
		return a, err
	}
	err = json.NewDecoder(res.Body).Decode(&a)
	return a, errors.Join(err, res.Body.Close())
}
