package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/mcp"
)

func (c *cmd) mcpCmd() *cobra.Command {
	var session, listen string
	cc := &cobra.Command{
		Use:   "mcp",
		Short: "Offer sentinels to agents over the Model Context Protocol",
		Long: `Offer sentinels to agents over the Model Context Protocol, with the tools sentinel_watch,
sentinel_list, sentinel_unwatch, sentinel_poll_now, list_sentinel_adapters and
setup_sentinel_provider.

Without --http one agent is served over standard input and output, with the key in
SUREHOOK_KEY. With --http any number are served over streamable HTTP, at any path; each
request brings its own key, as Authorization: Bearer KEY. Put TLS in front of it.`,
		Example: "  SUREHOOK_KEY=shk_… surehook mcp --session s1\n  surehook mcp --http 127.0.0.1:8090",
		Args:    exactly(),
	}
	cc.Flags().StringVar(&session, "session", "", "session that events are for when a call names none ["+sessionEnv+"]")
	cc.Flags().StringVar(&listen, "http", "", "serve streamable HTTP at this address, host:port")
	cc.Flags().StringVar(&c.url, "server", "", "address of the server [SUREHOOK_URL] (default "+defaultURL+")")
	cc.RunE = func(cc *cobra.Command, _ []string) error {
		if session == "" {
			session = c.env.getenv(sessionEnv)
		}
		ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		opt := mcp.Options{URL: c.server(), Version: version(), Session: session, Logger: slog.New(slog.NewTextHandler(c.env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		if listen != "" {
			return c.mcpHTTP(ctx, opt, listen)
		}
		if _, err := c.api(); err != nil {
			return err
		}
		return mcp.Stdio(ctx, opt, c.env.getenv("SUREHOOK_KEY"), io.NopCloser(c.env.Stdin), unclosed{c.env.Stdout})
	}
	return cc
}

// unclosed keeps the protocol from closing our standard output.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// mcpHTTP serves until ctx ends.
func (c *cmd) mcpHTTP(ctx context.Context, opt mcp.Options, listen string) error {
	h, err := mcp.Handler(opt)
	if err != nil {
		return usage("%s", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fail(exitFailed, "--http takes host:port, e.g. 127.0.0.1:8090", "can't listen: %w", err)
	}
	c.say("serving the Model Context Protocol at http://%s/", l.Addr())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(end); err != nil {
			_ = srv.Close() // what was under way has had its time
		}
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
