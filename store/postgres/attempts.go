package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const insertAttempts = `INSERT INTO surehook.attempts (key, event_key, endpoint_key, id, created_at, duration_us, next_due, number, http_status,
	resolve_us, connect_us, tls_us, write_us, wait_us, read_us, status, flags, code, error, response)
	SELECT key, event, endpoint, id, created, duration, coalesce(due, 0), number, coalesce(http, 0), coalesce(resolve, 0), coalesce(connect, 0),
		coalesce(tls, 0), coalesce(write, 0), coalesce(wait, 0), coalesce(read, 0), status, coalesce(flags, 0::smallint), coalesce(code, ''), coalesce(error, ''), response
	FROM (SELECT unnest($1::bigint[]) AS key, unnest($2::bigint[]) AS event, unnest($3::bigint[]) AS endpoint, unnest($4::uuid[]) AS id,
		unnest($5::bigint[]) AS created, unnest($6::bigint[]) AS duration, unnest($7::bigint[]) AS due, unnest($8::int[]) AS number,
		unnest($9::int[]) AS http, unnest($10::int[]) AS resolve, unnest($11::int[]) AS connect, unnest($12::int[]) AS tls, unnest($13::int[]) AS write,
		unnest($14::int[]) AS wait, unnest($15::int[]) AS read, unnest($16::smallint[]) AS status, unnest($17::smallint[]) AS flags,
		unnest($18::text[]) AS code, unnest($19::text[]) AS error, unnest($20::bytea[]) AS response) x`

// orKept is for attempts that may be there already.
const orKept = ` ON CONFLICT DO NOTHING RETURNING key`

// insertAttempts stores attempts, and gives the keys of those that weren't there.
func (s *Store) insertAttempts(ctx context.Context, tx pgx.Tx, attempts []*surehook.Attempt) (map[int64]bool, error) {
	if len(attempts) == 0 {
		return nil, nil
	}
	args, err := attemptArgs(attempts)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, s.q(insertAttempts+orKept), args...)
	if err != nil {
		return nil, err
	}
	kept := make(map[int64]bool, len(attempts))
	var key int64
	_, err = pgx.ForEachRow(rows, []any{&key}, func() error { kept[key] = true; return nil })
	return kept, err
}

func attemptArgs(attempts []*surehook.Attempt) ([]any, error) {
	n := len(attempts)
	big, ints, small := make([][]int64, 6), make([][]int32, 8), make([][]int16, 2)
	for i := range big {
		big[i] = make([]int64, n)
	}
	for i := range ints {
		ints[i] = make([]int32, n)
	}
	for i := range small {
		small[i] = make([]int16, n)
	}
	ids, codes, errs, responses := make([][16]byte, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, a := range attempts {
		id, err := ulid.ParseStrict(strings.TrimPrefix(a.ID, "dlv_"))
		if err != nil {
			return nil, fmt.Errorf("attempt id: %w", err)
		}
		for c, v := range [...]int64{a.Key, a.EventKey, a.EndpointKey, millis(a.CreatedAt), a.Duration.Microseconds(), millis(a.NextDue)} {
			big[c][i] = v
		}
		p := a.Phases
		for c, v := range [...]int64{int64(a.Number), int64(a.HTTPStatus), p.Resolve.Microseconds(), p.Connect.Microseconds(), p.TLS.Microseconds(),
			p.Write.Microseconds(), p.Wait.Microseconds(), p.Read.Microseconds()} {
			ints[c][i] = int32(v)
		}
		small[0][i] = int16(slices.Index(row.Statuses, a.Status))
		if a.Late {
			small[1][i] |= row.Late
		}
		if a.Test {
			small[1][i] |= row.Test
		}
		ids[i], codes[i], errs[i], responses[i] = id, string(a.Code), storable(a.Error), a.Response
	}
	for c := range ints {
		if c > 0 { // the number is never 0
			ints[c] = sparse(ints[c], 0)
		}
	}
	if !slices.ContainsFunc(responses, func(r []byte) bool { return r != nil }) {
		responses = nil
	}
	return []any{big[0], big[1], big[2], ids, big[3], big[4], sparse(big[5], 0), ints[0], ints[1], ints[2], ints[3], ints[4], ints[5], ints[6], ints[7],
		small[0], sparse(small[1], 0), sparse(codes, ""), sparse(errs, ""), responses}, nil
}

// storable makes text of what a receiver's side may have said: the server takes
// neither NUL nor anything that isn't UTF-8.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// letter is a dead letter to be stored.
type letter struct {
	key, event, endpoint, pending int64
	code                          surehook.Code
	status, attempts              int
}

func (s *Store) insertLetters(ctx context.Context, tx pgx.Tx, dead []letter, now int64) error {
	if len(dead) == 0 {
		return nil
	}
	n := len(dead)
	key, event, endpoint, pending := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	code, status, attempts := make([]string, n), make([]int32, n), make([]int32, n)
	for i, l := range dead {
		key[i], event[i], endpoint[i], pending[i] = l.key, l.event, l.endpoint, l.pending
		code[i], status[i], attempts[i] = string(l.code), int32(l.status), int32(l.attempts)
	}
	_, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.dead_letters (key, event_key, endpoint_key, pending_id, code, http_status, attempts, created_at)
		SELECT *, $8::bigint FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::int[], $7::int[])
		ON CONFLICT DO NOTHING`), key, event, endpoint, pending, code, status, attempts, now)
	return err
}
