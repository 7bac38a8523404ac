package storetest

import (
	"crypto/sha256"
	"time"

	"github.com/surehook/surehook"
)

var adminTests = map[string]func(*env){
	"Tenants/are put, found and deleted":     tenantCRUD,
	"Keys/are found by hash until revoked":   keyCRUD,
	"Keys/the last admin key stays":          keyLast,
	"Keys/keep when they were used last":     keyUse,
	"Audit/keeps every field":                auditFields,
	"EventTypes/are put, listed and deleted": typeCRUD,
	"Settings/the first value stays":         settingCRUD,
	"Idempotency/an answer lasts a day":      idempotency,
}

func tenantCRUD(e *env) {
	t := &surehook.Tenant{ID: "acme", Name: "Acme “Ltd”", Partner: "p1"}
	e.ok(e.s.PutTenant(e.ctx, t, &surehook.AuditEntry{Action: "tenant.create"}))
	created := ms(e.clock.Now())
	e.same("filled in", t.CreatedAt, created)
	e.clock.Advance(time.Hour)
	v := e.version()
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme", Name: "Acme", Partner: "p1", EventsDays: 7}, nil))
	e.same("a new name changes no matching", e.version(), v)
	got, err := e.s.Tenant(e.ctx, "acme")
	e.ok(err)
	e.same("tenant", got, surehook.Tenant{Key: t.Key, ID: "acme", Name: "Acme", Partner: "p1", EventsDays: 7, CreatedAt: created})
	e.ok(e.s.DeleteTenant(e.ctx, "acme", &surehook.AuditEntry{Action: "tenant.delete"}))
	_, err = e.s.Tenant(e.ctx, "acme")
	e.code(err, surehook.NotFound)
	e.code(e.s.DeleteTenant(e.ctx, "acme", nil), surehook.NotFound)
	if e.version() == v {
		e.Fatal("the partner still sees the tenant's events")
	}
}

func (e *env) key(tenant string) *surehook.APIKey {
	e.Helper()
	id := e.id("key")
	hash := sha256.Sum256([]byte(id))
	k := &surehook.APIKey{ID: id, Name: "ci", Hash: hash[:], Hint: "abcd", Tenant: tenant, Permissions: []string{surehook.PermRead, surehook.PermEventsWrite}}
	e.ok(e.s.CreateKey(e.ctx, k, nil))
	return k
}

// Two admins who revoke each other at once must not both succeed.
func keyLast(e *env) {
	admin := func() *surehook.APIKey {
		k := &surehook.APIKey{ID: e.id("key"), Hash: []byte(e.id("hash")), Permissions: []string{surehook.PermAdmin}}
		e.ok(e.s.CreateKey(e.ctx, k, nil))
		return k
	}
	a, b := admin(), admin()
	e.key("acme") // a tenant's is none
	done := make(chan error, 2)
	for _, k := range []*surehook.APIKey{a, b} {
		go func() { done <- e.s.RevokeKey(e.ctx, k.ID, nil) }()
	}
	refused := 0
	for range 2 {
		if err := <-done; surehook.CodeOf(err) == surehook.Conflict {
			refused++
		} else {
			e.ok(err)
		}
	}
	e.same("refused", refused, 1)
	admin()
	for _, k := range []*surehook.APIKey{a, b} {
		e.ok(e.s.RevokeKey(e.ctx, k.ID, nil)) // with another one there, and again
	}
}

func keyCRUD(e *env) {
	k := e.key("acme")
	got, err := e.s.KeyByHash(e.ctx, k.Hash)
	e.ok(err)
	want := *k
	want.CreatedAt = ms(e.clock.Now())
	e.same("key", got, want)
	_, err = e.s.KeyByHash(e.ctx, k.Hash[:31])
	e.code(err, surehook.NotFound)
	e.code(e.s.CreateKey(e.ctx, &surehook.APIKey{ID: "key_other", Hash: k.Hash}, nil), surehook.Conflict)
	e.clock.Advance(time.Minute)
	revoked := ms(e.clock.Now())
	e.ok(e.s.RevokeKey(e.ctx, k.ID, &surehook.AuditEntry{Action: "key.revoke"}))
	told, err := e.s.ListAudit(e.ctx, "acme", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("audited as the tenant's", []any{len(told), told[0].Action, told[0].Tenant}, []any{1, "key.revoke", "acme"})
	e.clock.Advance(time.Minute)
	e.ok(e.s.RevokeKey(e.ctx, k.ID, nil))
	got, err = e.s.KeyByHash(e.ctx, k.Hash)
	e.ok(err)
	e.same("revoked since", got.RevokedAt, revoked)
	e.code(e.s.RevokeKey(e.ctx, "key_none", nil), surehook.NotFound)
	ks, err := e.s.ListKeys(e.ctx, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("listed", len(ks), 1)
}

func keyUse(e *env) {
	a, b, c := e.key("acme"), e.key(""), e.key("")
	first := e.clock.Now()
	e.clock.Advance(time.Hour)
	second := e.clock.Now()
	e.ok(e.s.KeysUsed(e.ctx, map[int64]time.Time{a.Key: first, b.Key: second, 1 << 40: second}))
	e.ok(e.s.KeysUsed(e.ctx, map[int64]time.Time{a.Key: second, b.Key: first}))
	e.ok(e.s.KeysUsed(e.ctx, nil))
	e.reopen()
	ks, err := e.s.ListKeys(e.ctx, surehook.Page{Limit: 10})
	e.ok(err)
	var used []time.Time
	for _, k := range ks { // c, b, a
		used = append(used, k.LastUsedAt)
	}
	e.same("last used", used, []time.Time{c.LastUsedAt, ms(second), ms(second)})
	got, err := e.s.KeyByHash(e.ctx, a.Hash)
	e.ok(err)
	e.same("found with it", got.LastUsedAt, ms(second))
}

func auditFields(e *env) {
	a := &surehook.AuditEntry{Actor: "key_1", Action: "tenant.create", Target: "acme", Tenant: "acme", RequestID: "req_1", Details: `{"name":"a"}`}
	want := *a
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme"}, a))
	got, err := e.s.ListAudit(e.ctx, "acme", surehook.Page{Limit: 10})
	e.ok(err)
	want.Key, want.At = got[0].Key, ms(e.clock.Now())
	e.same("entry", got, []surehook.AuditEntry{want})
	other, err := e.s.ListAudit(e.ctx, "globex", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("another tenant's", len(other), 0)
}

func typeCRUD(e *env) {
	b := &surehook.EventType{Name: "b.x", Description: "B", Example: []byte(`{"n":1e400}`), Schema: []byte(`{"type":"object"}`), Validate: true}
	a := &surehook.EventType{Name: "a.x"}
	e.ok(e.s.PutEventType(e.ctx, b, &surehook.AuditEntry{Action: "event_type.put"}))
	e.ok(e.s.PutEventType(e.ctx, a, nil))
	created := ms(e.clock.Now())
	e.clock.Advance(time.Hour)
	changed := *b
	changed.Description, changed.CreatedAt = "new", time.Time{}
	e.ok(e.s.PutEventType(e.ctx, &changed, nil))
	got, err := e.s.EventTypes(e.ctx)
	e.ok(err)
	want := changed
	want.CreatedAt, want.UpdatedAt = created, ms(e.clock.Now())
	e.same("types, by name", got, []surehook.EventType{{Name: "a.x", CreatedAt: created, UpdatedAt: created}, want})
	e.ok(e.s.DeleteEventType(e.ctx, "a.x", nil))
	e.code(e.s.DeleteEventType(e.ctx, "a.x", nil), surehook.NotFound)
	got, err = e.s.EventTypes(e.ctx)
	e.ok(err)
	e.same("left", len(got), 1)
}

func settingCRUD(e *env) {
	_, err := e.s.Setting(e.ctx, "salt")
	e.code(err, surehook.NotFound)
	put := func(value string, overwrite bool, want string) {
		e.Helper()
		got, err := e.s.PutSetting(e.ctx, "salt", []byte(value), overwrite)
		e.ok(err)
		e.same("answered", string(got), want)
		got, err = e.s.Setting(e.ctx, "salt")
		e.ok(err)
		e.same("stored", string(got), want)
	}
	put("a\x00\xff", false, "a\x00\xff")
	put("b", false, "a\x00\xff")
	put("c", true, "c")
	put("", true, "")
	e.reopen()
	got, err := e.s.Setting(e.ctx, "salt")
	e.ok(err)
	e.same("after a new start", string(got), "")
}

func idempotency(e *env) {
	reserve := func(scope, want string, free bool) {
		e.Helper()
		hash, answer, err := e.s.Reserve(e.ctx, scope, "k", []byte("h"))
		e.ok(err)
		e.same("answer", string(answer), want)
		e.same("free", hash == nil, free)
	}
	reserve("acme", "", true)
	reserve("acme", "", false) // under way
	e.ok(e.s.Unreserve(e.ctx, "acme", "k"))
	reserve("acme", "", true)
	e.ok(e.s.Remember(e.ctx, "acme", "k", []byte("h"), []byte("first")))
	e.ok(e.s.Remember(e.ctx, "acme", "k", []byte("h"), []byte("second")))
	e.ok(e.s.Unreserve(e.ctx, "acme", "k")) // an answer stays
	reserve("acme", "first", false)
	reserve("globex", "", true)
	e.clock.Advance(surehook.ReservedFor - time.Millisecond)
	reserve("globex", "", false)
	e.clock.Advance(time.Millisecond)
	reserve("globex", "", true) // its node has died
	e.clock.Advance(24*time.Hour - surehook.ReservedFor - time.Millisecond)
	reserve("acme", "first", false)
	e.clock.Advance(time.Millisecond)
	reserve("acme", "", true)
	e.ok(e.s.Remember(e.ctx, "acme", "k", []byte("h"), []byte("third")))
	reserve("acme", "third", false)
}
