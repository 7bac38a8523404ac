//go:build unix

package egress

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// mute is an address where a connection attempt gets no answer: a listener
// whose queue is full.
func mute(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in4, ok := sa.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatal(os.ErrInvalid)
	}
	for range 4 {
		s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(s) })
		if err := syscall.SetNonblock(s, true); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Connect(s, in4)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port))
}

// I-21: any of the addresses will do, soon.
func TestI21_FallsBackBetweenFamilies(t *testing.T) {
	for name, tc := range map[string]struct {
		addrs []string
		good  string
		other func(*testing.T) netip.AddrPort
	}{
		"IPv6 refuses":     {[]string{pub4, pub6}, pub4, closedPort},
		"IPv4 refuses":     {[]string{pub4, pub6}, pub6, closedPort},
		"IPv6 is silent":   {[]string{pub4, pub6}, pub4, mute},
		"IPv4 is silent":   {[]string{pub4, pub6}, pub6, mute},
		"IPv6 only":        {[]string{pub6}, pub6, closedPort},
		"many, first dead": {[]string{"1.1.1.1", "1.1.1.2", pub4}, pub4, closedPort},
	} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			rc := newReceiver(t, ca.serverConfig(t, "hooks.example.com"), func(p *peer) {
				if p.request() {
					p.say("HTTP/1.1 204 N\r\nConnection: close\r\n\r\n")
				}
			})
			c, r := routed(t, Config{Resolver: resolving("hooks.example.com", tc.addrs...), RootCAs: ca.pool},
				map[string]netip.AddrPort{tc.good: rc.addr()})
			r.rest = tc.other(t)
			res := post(t, c, hooks, "{}")
			want(t, res, "", "")
			if res.Remote.Addr().String() != tc.good || res.Phases.Connect > patience/4 {
				t.Errorf("%v, connect took %v", res.Remote, res.Phases.Connect)
			}
		})
	}
}

func TestDialsAreCapped(t *testing.T) {
	addrs := make([]string, 20)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("93.184.215.%d", i+1)
	}
	c, r := routed(t, Config{Resolver: resolving("hooks.example.com", addrs...)}, nil)
	want(t, post(t, c, hooks, "{}"), surehook.Connect, "connection refused")
	if n := len(r.dialled()); n != maxDials {
		t.Errorf("%d dials", n)
	}
}

func TestConnectTimeoutIsNotTheAttempts(t *testing.T) {
	c, r := routed(t, Config{Resolver: resolving("hooks.example.com", pub4)}, nil)
	r.rest = mute(t)
	res := c.Do(t.Context(), &Request{Target: target(t, c, hooks), Timeout: patience, ConnectTimeout: 50 * time.Millisecond})
	want(t, res, surehook.Connect, "timed out connecting")
	res = c.Do(t.Context(), &Request{Target: target(t, c, hooks), Timeout: 50 * time.Millisecond})
	want(t, res, surehook.Timeout, "connecting")
}

// The control hook is the last word: it refuses whatever slipped through.
func TestControlHookJudgesAgain(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	d := dialer{guard: NewGuard(nil, nil)}
	if nc, err := d.one(t.Context(), rc.addr(), false); err == nil {
		_ = nc.Close()
		t.Error("connected to loopback")
	}
	d = dialer{guard: NewGuard(loopback, nil)}
	nc, err := d.one(t.Context(), rc.addr(), true)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
	if rc.conns.Load() > 1 {
		t.Error("more than the allowed connection")
	}
}
