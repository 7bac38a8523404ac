package sqlite

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// appTable is how names of the application's tables begin.
const appTable = "app_"

// authorize judges what a statement of the application's does. Ours, which the
// same connection prepares, may do everything.
func (c *conn) authorize(action sqlite3.AuthorizerActionCode, third, fourth, _, _ string) sqlite3.AuthorizerReturnCode {
	if !c.foreign {
		return sqlite3.AUTH_OK
	}
	table := third
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_FUNCTION, sqlite3.AUTH_RECURSIVE, sqlite3.AUTH_REINDEX:
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_INSERT, sqlite3.AUTH_UPDATE, sqlite3.AUTH_DELETE:
		if strings.HasPrefix(table, "sqlite_") { // what DDL does; SQLite itself keeps others from it
			return sqlite3.AUTH_OK
		}
	case sqlite3.AUTH_CREATE_INDEX, sqlite3.AUTH_DROP_INDEX, sqlite3.AUTH_CREATE_TRIGGER, sqlite3.AUTH_DROP_TRIGGER, sqlite3.AUTH_ALTER_TABLE:
		table = fourth
	case sqlite3.AUTH_CREATE_TABLE, sqlite3.AUTH_DROP_TABLE, sqlite3.AUTH_CREATE_VIEW, sqlite3.AUTH_DROP_VIEW,
		sqlite3.AUTH_CREATE_VTABLE, sqlite3.AUTH_DROP_VTABLE:
	default:
		return sqlite3.AUTH_DENY
	}
	if len(table) <= len(appTable) || !strings.EqualFold(table[:len(appTable)], appTable) {
		return sqlite3.AUTH_DENY
	}
	c.altered = c.altered || action == sqlite3.AUTH_CREATE_TABLE || action == sqlite3.AUTH_ALTER_TABLE
	return sqlite3.AUTH_OK
}

// checkTables looks at what the authorizer isn't asked about: a foreign key that
// would keep the store from deleting its own rows.
func checkTables(c *conn) error {
	bad, err := c.one(`SELECT 1 FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' AND m.name LIKE 'app\_%' ESCAPE '\'
		AND f."table" NOT LIKE 'app\_%' ESCAPE '\'`,
		nil, func(*sqlite3.Stmt) error { return nil })
	if err == nil && bad {
		err = surehook.Errorf(surehook.InvalidRequest, "a foreign key may lead to tables whose names begin with %s only", appTable)
	}
	return err
}

// bindApp binds the application's arguments.
func bindApp(st *sqlite3.Stmt, args []any) error {
	if n := st.BindCount(); n != len(args) {
		return surehook.Errorf(surehook.InvalidRequest, "the statement has %d parameters, and %d arguments are given", n, len(args))
	}
	for i, a := range args {
		if err := bindOne(st, i+1, a); err != nil {
			return err
		}
	}
	return nil
}

func bindOne(st *sqlite3.Stmt, i int, a any) error {
	switch v := a.(type) {
	case nil:
		return st.BindNull(i)
	case []byte:
		if v == nil {
			return st.BindNull(i)
		}
		return st.BindBlob(i, v)
	case time.Time:
		return st.BindText(i, v.Format(time.RFC3339Nano))
	}
	switch v := reflect.ValueOf(a); {
	case v.Kind() == reflect.Bool:
		return st.BindBool(i, v.Bool())
	case v.CanInt():
		return st.BindInt64(i, v.Int())
	case v.CanUint() && v.Uint() <= 1<<63-1:
		return st.BindInt64(i, int64(v.Uint()))
	case v.CanFloat():
		return st.BindFloat(i, v.Float())
	case v.Kind() == reflect.String:
		return st.BindText(i, v.String())
	}
	return surehook.Errorf(surehook.InvalidRequest, "argument %d: a %T can't be stored", i, a)
}

// Row is a row of a query's answer.
type Row struct {
	tx *Tx
	st *sqlite3.Stmt
}

// Scan copies the row's columns into what the pointers point at: booleans,
// integers, floats, string, []byte, time.Time or any. NULL is the zero value.
func (r Row) Scan(dest ...any) error {
	return r.tx.use(true, func(*conn) error {
		switch {
		case !r.tx.open[r.st]:
			return errOver
		case len(dest) != r.st.ColumnCount():
			return surehook.Errorf(surehook.InvalidRequest, "the row has %d columns, and %d places are given", r.st.ColumnCount(), len(dest))
		}
		for i, d := range dest {
			if err := scanOne(r.st, i, d); err != nil {
				return err
			}
		}
		return nil
	})
}

func scanOne(st *sqlite3.Stmt, i int, dest any) error {
	switch d := dest.(type) {
	case *any:
		*d = anyColumn(st, i)
		return nil
	case *[]byte:
		*d = st.ColumnBlob(i, nil)
		return nil
	case *time.Time:
		*d = time.Time{}
		if st.ColumnType(i) == sqlite3.NULL {
			return nil
		}
		t, err := time.Parse(time.RFC3339Nano, st.ColumnText(i))
		if err != nil {
			return fmt.Errorf("sqlite: column %d is no time in RFC 3339", i+1)
		}
		*d = t
		return nil
	}
	v := reflect.ValueOf(dest)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return surehook.Errorf(surehook.InvalidRequest, "place %d: a pointer is needed, not a %T", i+1, dest)
	}
	switch v = v.Elem(); {
	case v.Kind() == reflect.Bool:
		v.SetBool(st.ColumnBool(i))
	case v.CanInt() && !v.OverflowInt(st.ColumnInt64(i)):
		v.SetInt(st.ColumnInt64(i))
	case v.CanUint() && st.ColumnInt64(i) >= 0 && !v.OverflowUint(uint64(st.ColumnInt64(i))):
		v.SetUint(uint64(st.ColumnInt64(i)))
	case v.CanFloat():
		v.SetFloat(st.ColumnFloat(i))
	case v.Kind() == reflect.String:
		v.SetString(st.ColumnText(i))
	default:
		return surehook.Errorf(surehook.InvalidRequest, "place %d: column doesn't go into a %T", i+1, dest)
	}
	return nil
}

func anyColumn(st *sqlite3.Stmt, i int) any {
	switch st.ColumnType(i) {
	case sqlite3.INTEGER:
		return st.ColumnInt64(i)
	case sqlite3.FLOAT:
		return st.ColumnFloat(i)
	case sqlite3.TEXT:
		return st.ColumnText(i)
	case sqlite3.BLOB:
		return st.ColumnBlob(i, nil)
	}
	return nil
}
