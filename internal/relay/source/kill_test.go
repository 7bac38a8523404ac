package source

import (
	"errors"
	"testing"
)

// A kill between the store's commit and the source's: what comes again has its id.
func TestTail_AKillRepeatsNothing(t *testing.T) {
	run(t, func(b *bench) {
		b.write(600)
		b.start()
		for range 5 {
			if !b.read() {
				break
			}
			b.store() // and never Committed
			b.crash()
			b.start()
		}
		b.readAll()
		b.complete()
	})
}

// A file that was empty when it was noted is known again after a kill, whatever
// became of it.
func TestTail_AKillAfterTheFirstLines(t *testing.T) {
	for name, then := range map[string]func(*bench){"nothing": func(*bench) {}, "rename": (*bench).rename, "copy": (*bench).copyCut,
		"compress": func(b *bench) { b.rename(); b.compress() }, "twice": func(b *bench) { b.copyCut(); b.write(1); b.copyCut() }} {
		for start, empty := range map[string]func(*bench){"cut": func(b *bench) { b.write(1); b.readAll(); b.copyCut() },
			"first": func(b *bench) { b.fromBeginning = false; b.add("") }} {
			t.Run(start+" "+name, func(t *testing.T) {
				run(t, func(b *bench) {
					if b.start(); start == "first" {
						empty(b)
						b.crash()
						b.start()
					} else {
						empty(b)
					}
					b.readAll()
					b.write(3)
					if !b.read() {
						t.Fatal("nothing came")
					}
					b.store() // and never Committed
					then(b)
					b.crash()
					b.start()
					b.readAll()
					b.complete()
				})
			})
		}
	}
}

// A file whose beginning is known, and of which nothing was read when it was cut
// again, isn't taken for what stands in it now.
func TestTail_CutBeforeItsFirstLine(t *testing.T) {
	for lines := range 40 { // below and above what is known of a beginning
		run(t, func(b *bench) {
			b.write(2)
			b.start()
			b.readAll()
			b.copyCut()
			b.write(1 + lines)
			b.states.fail = errors.New("the store is away")
			if b.read() {
				t.Error("lines came before their file was noted")
			}
			b.copyCut()
			b.write(41)
			b.states.fail = nil
			b.readAll()
			b.crash()
			b.start()
			b.readAll()
			b.complete()
		})
	}
}
