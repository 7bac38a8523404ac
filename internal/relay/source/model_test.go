package source

import (
	"os"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Whatever happens to a log and to who reads it: each line comes, under one id.
func TestTail_Model(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble has no deadline to ask for, so the T is wrapped.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(rt, dir)
			b.write(1)
			b.start()
			b.read()
			rotations := 0 // as many as keep their files
			rotate := func(how func(*bench)) func(*rapid.T) {
				return func(*rapid.T) {
					if rotations++; rotations > 9 || b.half != "" {
						return
					}
					b.write(1) // an empty file isn't rotated
					how(b)
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"write": func(rt *rapid.T) { b.end(); b.write(rapid.IntRange(1, 5).Draw(rt, "lines")) },
				"half":  func(*rapid.T) { b.end(); b.half = b.next() + "\n"; b.add(b.half[:30]); b.half = b.half[30:] },
				"read": func(rt *rapid.T) {
					for range rapid.IntRange(1, 3).Draw(rt, "batches") {
						b.read()
					}
				},
				"give": func(*rapid.T) { // what the store has, and the source doesn't know
					if b.read() {
						b.store()
					}
				},
				"kill":                func(*rapid.T) { b.crash(); b.start() },
				"restart":             func(*rapid.T) { b.stop(); b.start() },
				"rename":              rotate((*bench).rename),
				"copy":                rotate((*bench).copyCut),
				"rename and compress": rotate(func(b *bench) { b.rename(); b.compress() }),
				"copy and compress":   rotate(func(b *bench) { b.copyCut(); b.compress() }),
				"away": func(rt *rapid.T) { // things happen while nobody reads
					b.crash()
					for range rapid.IntRange(1, 3).Draw(rt, "rotations") {
						rapid.SampledFrom([]func(*rapid.T){rotate((*bench).rename), rotate((*bench).copyCut)}).Draw(rt, "how")(rt)
					}
					b.start()
				},
			})
			b.end()
			b.readAll()
			b.stop()
			b.start()
			b.readAll()
			b.complete()
			b.stop()
		})
	})
}
