// Command bench measures deliveries against a raw net/http loop of the same run:
// alternating rounds, the receiver in a process of its own, medians.
//
//	go run ./bench            # the whole table, several minutes
//	go run ./bench --quick --json
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"
)

type options struct {
	quick, json bool
	postgres    bool
	rounds      int
	history     int
	size        int
}

func main() {
	var o options
	var role, arg string
	flag.BoolVar(&o.quick, "quick", false, "the main figures, in under a minute")
	flag.BoolVar(&o.json, "json", false, "print one JSON object")
	flag.BoolVar(&o.postgres, "postgres", false, "measure PostgreSQL as well, on a server of our own")
	flag.IntVar(&o.history, "history", 0, "finished events to fill in, and retention to remove them (10000000 takes some minutes and 10 GB; on SQLite a million at most); with --quick little else")
	flag.IntVar(&o.rounds, "rounds", 5, "alternating rounds of each comparison")
	flag.IntVar(&o.size, "size", 1024, "bytes of a body")
	flag.StringVar(&role, "role", "", "internal: what a child process does")
	flag.StringVar(&arg, "arg", "", "internal: its parameters")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if role != "" {
		err = child(ctx, role, arg)
	} else {
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// startReceiver runs the receiver in a child process.
func startReceiver(ctx context.Context) (remote, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, err := self(ctx, "receiver", "")
	if err != nil {
		cancel()
		return remote{}, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return remote{}, err
	}
	r := remote{stop: func() {
		cancel()
		_ = cmd.Wait() // killed, as meant
	}}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		r.stop()
	}
	return r, err
}

func self(ctx context.Context, role, arg string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "--role", role, "--arg", arg)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// in runs a scenario in a child process and reads its result.
func in[T any](ctx context.Context, role string, s scenario) (out T, err error) {
	arg, err := json.Marshal(s)
	if err != nil {
		return out, err
	}
	cmd, err := self(ctx, role, string(arg))
	if err != nil {
		return out, err
	}
	b, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w", role, err)
	}
	return out, json.Unmarshal(b, &out)
}

// scenario is what a child is asked to do.
type scenario struct {
	Remote    remote  `json:"remote"`
	Endpoints int     `json:"endpoints"`
	Size      int     `json:"size"`
	WarmMs    int     `json:"warm_ms"`
	RunMs     int     `json:"run_ms"`
	PerS      float64 `json:"per_s,omitempty"`
	Pending   int     `json:"pending,omitempty"`
	Profile   string  `json:"profile,omitempty"`
	Nodes     int     `json:"nodes,omitempty"`
	InFlight  int     `json:"in_flight,omitempty"` // requests at once; 0: the engine's default
	Database  string  `json:"database,omitempty"`  // of PostgreSQL; empty: SQLite
}

func (s scenario) warm() time.Duration { return time.Duration(s.WarmMs) * time.Millisecond }
func (s scenario) run() time.Duration  { return time.Duration(s.RunMs) * time.Millisecond }

func child(ctx context.Context, role, arg string) error {
	if role == "receiver" {
		return serveReceiver(os.Stdout)
	}
	var s scenario
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	roles := map[string]func(context.Context, scenario) (any, error){
		"raw": func(_ context.Context, s scenario) (any, error) {
			return rawLoop(s.Remote.URL, workers, s.Size, s.warm(), s.run())
		},
		"rate": engineRate, "latency": engineLatency, "noisy": engineNoisy, "backlog": engineBacklog, "rest": restPublish,
		"nodes": engineNodes, "sql": sqlPublish, "history": engineHistory,
	}
	f, ok := roles[role]
	if !ok {
		return errors.New("unknown role " + role)
	}
	got, err := profiled(s.Profile, func() (any, error) { return f(ctx, s) })
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func progress(format string, a ...any) { fmt.Fprintf(io.Writer(os.Stderr), format+"\n", a...) }
