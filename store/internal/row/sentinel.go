package row

import (
	"encoding/json"
	"fmt"

	"github.com/surehook/surehook"
)

// KnownEvents is how many of a sentinel's latest events are known by their ids, at
// least. Every so many, those before the last so many are forgotten.
const KnownEvents = 1000

// ErrPlan refuses a sentinel whose watch is being cancelled: it was planned too long ago.
var ErrPlan error = surehook.Errorf(surehook.Unavailable, "to make the sentinel took too long; nothing is left of it: ask again")

// clause is how a surehook.Clause is stored.
type clause struct {
	Subject string   `json:"subject"`
	Types   []string `json:"types,omitempty"`
}

// Clauses is how a sentinel's clauses are stored.
func Clauses(v []surehook.Clause) string {
	out := make([]clause, len(v))
	for i, c := range v {
		out[i] = clause(c)
	}
	b, _ := json.Marshal(out) // strings always marshal
	return string(b)
}

// ParseClauses is Clauses backwards.
func ParseClauses[T string | []byte](raw T) ([]surehook.Clause, error) {
	var in []clause
	if err := json.Unmarshal([]byte(raw), &in); err != nil {
		return nil, fmt.Errorf("a sentinel's stored clauses can't be read: %w", err)
	}
	out := make([]surehook.Clause, len(in))
	for i, c := range in {
		out[i] = surehook.Clause(c)
	}
	return out, nil
}
