// Package archtest holds the tests of the house itself: which package may
// import which, what nobody may import and why, and how long a file or a
// function may grow. There is nothing in it but tests.
package archtest
