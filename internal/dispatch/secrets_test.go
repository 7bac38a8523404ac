package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
)

// counted counts what is unsealed.
type counted struct {
	openKeys
	opened *atomic.Int64
}

func (c counted) Open(table, column, row, sealed string) ([]byte, error) {
	c.opened.Add(1)
	return c.openKeys.Open(table, column, row, sealed)
}

// An unsealed secret serves for a minute at most, however busy its endpoint, and
// isn't unsealed for each attempt.
func TestSecretsAreKeptForAMinuteAtMost(t *testing.T) {
	var opened atomic.Int64
	bubble(t, func(k *desk) {
		k.endpoint(1)
		for range 600 {
			k.publish(1, 1)
			after(time.Second)
		}
		if n := opened.Load(); n < 10 || n > 14 {
			t.Errorf("unsealed %d times in ten minutes and 600 attempts", n)
		}
		want(t, "requests", k.w.count(host(1)), 600)
	}, func(o *Options) { o.Keyring = counted{opened: &opened} })
}

// What is kept belongs to one ciphertext of one endpoint: another one is unsealed
// for the next attempt.
func TestAnotherCiphertextIsUnsealedAtOnce(t *testing.T) {
	var opened atomic.Int64
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.endpoint(2)
		before := opened.Load()
		k.publish(1, 1)
		k.publish(1, 2)
		synctest.Wait()
		want(t, "unsealed for attempts in the same minute", int(opened.Load()-before), 0)
		k.change(1, func(e *surehook.Endpoint) { e.Secrets.Current = "another" })
		k.publish(1, 1)
		k.publish(1, 2)
		synctest.Wait()
		want(t, "unsealed after the change", int(opened.Load()-before), 1)
	}, func(o *Options) { o.Keyring = counted{opened: &opened} })
}

// A claim that meets a newer configuration has it read before anything is sent.
func TestAClaimCatchesUp(t *testing.T) {
	refreshed := 0
	var k *desk
	bubble(t, func(d *desk) {
		k = d
		k.endpoint(1)
		k.w.use(fails500)
		k.publish(1, 1)
		synctest.Wait()
		k.m.set(func() { k.m.version = 7 }) // changed elsewhere, and no notice came
		k.w.use(nil)
		after(time.Hour)
		want(t, "refreshed", refreshed, 1)
		want(t, "requests", k.w.count(host(1)), 2)
	}, func(o *Options) {
		o.Refresh = func(context.Context) error {
			refreshed++
			k.change(1, func(e *surehook.Endpoint) { e.Version = 7 })
			return nil
		}
	})
}
