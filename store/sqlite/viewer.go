package sqlite

import (
	"strings"

	"github.com/surehook/surehook"
)

// sees asks for rows at endpoints that a viewer sees.
func (q *query) sees(v surehook.Viewer, key string) {
	if cond, args := seenBy(v, key); cond != "" {
		q.add(strings.TrimPrefix(cond, and), args...)
	}
}

const and = ` AND `

// seenBy is the same as a further condition, by the column of the endpoint's key;
// none for who sees all.
func seenBy(v surehook.Viewer, key string) (cond string, args []any) {
	own := and + `EXISTS (SELECT 1 FROM endpoints w WHERE w.key = ` + key + ` AND w.deleted = 0 AND `
	switch {
	case v.Tenant != "":
		return own + `w.tenant = ?)`, []any{v.Tenant}
	case v.Partner != "":
		return own + `(w.partner = ? OR w.tenant <> '' AND EXISTS (SELECT 1 FROM tenants t WHERE t.id = w.tenant AND t.partner = ?)))`, []any{v.Partner, v.Partner}
	}
	return "", nil
}
