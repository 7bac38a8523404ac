package source

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sibling is a file beside the log that a rotation may have left: access.log.1,
// access.log-20260525, access.log.2.gz, access-2026-05-25.log.
type sibling struct {
	path string
	info os.FileInfo
}

const serial = `\d[\dTZ:._-]*`

// siblings lists them, the longest untouched first. Where the log is a link, what
// it leads to may have some, too.
func siblings(path string) ([]sibling, error) {
	out, err := beside(path)
	if err != nil {
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != filepath.Clean(path) {
		more, err := beside(target)
		if err != nil {
			return nil, err
		}
		for _, s := range more {
			if !slices.ContainsFunc(out, func(o sibling) bool { return os.SameFile(o.info, s.info) }) {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sibling) int {
		// Clocks of file systems are coarse. Of numbers the higher is the older, of
		// dates the lower.
		return cmp.Or(a.info.ModTime().Compare(b.info.ModTime()), cmp.Compare(b.number(), a.number()))
	})
	return out, nil
}

func beside(path string) ([]sibling, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	ext := filepath.Ext(base)
	stem := strings.TrimSuffix(base, ext)
	pattern, err := regexp.Compile(`^(?:` + regexp.QuoteMeta(base) + `[.-]` + serial + `|` + regexp.QuoteMeta(stem) + `[.-]` + serial + regexp.QuoteMeta(ext) + `)(?:\.gz)?$`)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []sibling
	for _, e := range entries {
		if e.Name() == base || !pattern.MatchString(e.Name()) {
			continue
		}
		full := filepath.Join(dir, e.Name())
		if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() {
			out = append(out, sibling{full, fi})
		}
	}
	return out, nil
}

// number is N of access.log.N; 0: there is none.
func (s sibling) number() int {
	name := strings.TrimSuffix(s.path, ".gz")
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	if err != nil || n > 9999 {
		return 0
	}
	return n
}
