package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/pgserver"
)

func TestMain(m *testing.M) {
	testscript.Main(pgserver.Suite{M: m}, map[string]func(){"surehook": func() { os.Exit(Main(context.Background(), Process())) }})
}

// Scripts that need no server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/tools", Cmds: scriptCmds(), RequireExplicitExec: true})
}

// Scripts that talk to a server: $SUREHOOK_URL and $SUREHOOK_KEY are its
// address and its first admin key, $RECEIVER a receiver that takes everything,
// $DATA the server's data directory.
func TestClientScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/client", Cmds: scriptCmds(), RequireExplicitExec: true, Setup: withServer})
}

// deadKey holds the channel that tells of deliveries that died.
type deadKey struct{}

func withServer(env *testscript.Env) error {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/broken") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	env.Defer(receiver.Close)
	data, died := env.Getenv("WORK")+"/.data", make(chan struct{}, 16)
	env.Values[deadKey{}] = died
	a, stop, err := startServer(data, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, func(t engine.Try) {
		if t.Decision == surehook.Bury {
			died <- struct{}{}
		}
	})
	if err != nil {
		return err
	}
	env.Defer(stop)
	env.Setenv("SUREHOOK_URL", "http://"+a.Addr.String())
	env.Setenv("SUREHOOK_KEY", a.AdminKey)
	env.Setenv("RECEIVER", receiver.URL)
	env.Setenv("DATA", data)
	return nil
}

func startServer(data string, allow []netip.Prefix, observe func(engine.Try)) (*app.App, func(), error) {
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.AllowNetworks = "127.0.0.1:0", data, allow
	a, err := app.Start(context.Background(), cfg, app.Options{Version: "test", Observe: observe})
	return a, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			panic(err)
		}
	}, err
}

func scriptCmds() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// status N command…: it ends with this exit code.
		"status": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < 2 {
				ts.Fatalf("usage: status CODE command…")
			}
			err := ts.Exec(args[1], args[2:]...)
			code := "0"
			if err != nil {
				code = strings.TrimPrefix(err.Error(), "exit status ")
			}
			if code != args[0] {
				ts.Fatalf("ended with %s, not %s", code, args[0])
			}
		},
		// field VAR NAME: a member of the JSON value on standard output.
		"field": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 2 {
				ts.Fatalf("usage: field VAR NAME")
			}
			var v map[string]any
			line, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
			ts.Check(json.Unmarshal([]byte(line), &v))
			s, ok := v[args[1]].(string)
			if !ok {
				ts.Fatalf("no text %q in %s", args[1], line)
			}
			ts.Setenv(args[0], s)
		},
		// strict: go on with another server, one that reaches nothing private.
		"strict": func(ts *testscript.TestScript, _ bool, _ []string) {
			a, stop, err := startServer(ts.MkAbs(".strict"), nil, nil)
			ts.Check(err)
			ts.Defer(stop)
			ts.Setenv("SUREHOOK_URL", "http://"+a.Addr.String())
			ts.Setenv("SUREHOOK_KEY", a.AdminKey)
		},
		// dead N: wait until so many deliveries have died and are dead letters.
		"dead": func(ts *testscript.TestScript, _ bool, args []string) {
			n, err := strconv.Atoi(args[0])
			ts.Check(err)
			died, _ := ts.Value(deadKey{}).(chan struct{})
			for range n {
				<-died
			}
			// The attempt was made; the letter is written a moment later.
			api, err := client.New(ts.Getenv("SUREHOOK_URL"), ts.Getenv("SUREHOOK_KEY"))
			ts.Check(err)
			for found := 0; found < n; {
				found = 0
				for _, err := range api.DeadLetters(context.Background(), client.DeadLetterFilter{}) {
					ts.Check(err)
					found++
				}
			}
		},
		// jsonlines: standard output is JSON alone, one value a line.
		"jsonlines": func(ts *testscript.TestScript, _ bool, _ []string) {
			out := ts.ReadFile("stdout")
			for line := range strings.Lines(out) {
				if !json.Valid([]byte(line)) {
					ts.Fatalf("not JSON: %s", line)
				}
			}
		},
	}
}
