// Package events holds the example events that the demo publishes: one
// publish request a line, as POST /v1/events takes it. The bodies are shaped
// like those of real senders, the awkward ones included.
package events

import "embed"

//go:generate go run generate.go awkward.go

// Files are the .jsonl files.
//
//go:embed *.jsonl
var Files embed.FS
