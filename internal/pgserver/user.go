package pgserver

import (
	"errors"
	"os"
	osuser "os/user"
	"strconv"
)

// user is who the server runs as.
type user struct {
	name     string
	change   bool // it is another one than ours
	uid, gid uint32
}

// unprivileged finds the user for the server: PostgreSQL refuses to run as root,
// so that root lends it another: postgres, or nobody.
func unprivileged() (user, error) {
	if os.Geteuid() != 0 {
		return user{name: "that runs the tests"}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return user{name: name, change: true, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return user{}, errors.New("pgserver: PostgreSQL doesn't run as root, and there is no user postgres or nobody: create one, or run as another user")
}
