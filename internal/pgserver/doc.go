// Package pgserver runs real PostgreSQL servers for tests and measurements.
//
// A server is a temporary cluster in a folder of its own, reachable on loopback
// only and open to every user of this machine: nothing that matters belongs in
// it. It never outlives the process that started it, however that process ends:
// a guard, a small shell process, then stops it and removes its folder, and on
// Linux the kernel stops it as well.
//
// Tests of a store need one line, and a TestMain to leave nothing behind:
//
//	dsn := pgserver.Database(t) // fresh, empty, dropped when t ends
//
//	func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }
//
// Where a package looks for leaked goroutines, the suite stops the shared server
// before the look:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgserver.Suite{M: m}) }
package pgserver
