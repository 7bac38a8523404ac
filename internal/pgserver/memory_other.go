//go:build !linux

package pgserver

func memory() string { return "" }
