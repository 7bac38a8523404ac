package audit

import "bytes"

const escape = 0x1b

// appendPlain appends a line without terminal escapes: the colours, and the other
// sequences that begin with ESC and [. What looks like one but isn't loses the
// ESC alone, so that nothing which was meant to be read is swallowed.
func appendPlain(to, line []byte) []byte {
	for {
		i := bytes.IndexByte(line, escape)
		if i < 0 {
			return append(to, line...)
		}
		to = append(to, line[:i]...)
		line = line[i+1+sequence(line[i+1:]):]
	}
}

// sequence gives the length of what follows an ESC and belongs to it: [, digits
// and the like, a letter.
func sequence(b []byte) int {
	if len(b) == 0 || b[0] != '[' {
		return 0
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
			return i + 1
		case c < ' ' || c > '?':
			return 0
		}
	}
	return 0
}
