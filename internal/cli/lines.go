package cli

import (
	"context"
	"io"
	"os"

	"github.com/surehook/surehook/client"
)

// imported counts what became of the lines of a file.
type imported struct{ accepted, duplicates, refused, last int }

// publishLines imports a file; refused lines don't stop it.
func (c *cmd) publishLines(ctx context.Context, api *client.Client, file string) error {
	in, total, err := c.lines(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	read := &meter{r: in}
	var sum imported
	show, end := c.bar("bytes read")
	err = api.PublishLines(ctx, read, func(lines []client.Line) error {
		for _, l := range lines {
			if err := c.imported(&sum, l); err != nil {
				return err
			}
		}
		if total > 0 {
			show(int(read.n), int(total))
		}
		return nil
	})
	end()
	say := c.out.line
	if c.json {
		say = c.say // standard output is for the lines' own objects
	}
	say("%d accepted, %d were there already, %d refused", sum.accepted, sum.duplicates, sum.refused)
	switch {
	case err != nil:
		c.say("It ended after line %d. Publish the rest again; ids that were given are recognised.", sum.last)
		return err
	case sum.refused > 0:
		return fail(exitFailed, "mend these lines and publish them again", "%s refused", plural(sum.refused, "line was", "lines were"))
	}
	return nil
}

// lines opens the file, and tells its size where it has one.
func (c *cmd) lines(file string) (io.ReadCloser, int64, error) {
	if file == "-" {
		if c.env.StdinTerminal {
			return nil, 0, usage("nothing to publish: give a file, or the lines on standard input")
		}
		return io.NopCloser(c.env.Stdin), 0, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, fail(exitUsage, "", "--lines: %w", err)
	}
	if info, err := f.Stat(); err == nil {
		return f, info.Size(), nil
	}
	return f, 0, nil
}

// imported counts a line, and tells of one that was refused.
func (c *cmd) imported(sum *imported, l client.Line) error {
	sum.last = l.N
	switch {
	case l.Error != nil:
		sum.refused++
		c.say("line %d refused: %s", l.N, printable(l.Error.Message))
	case l.Duplicate:
		sum.duplicates++
	default:
		sum.accepted++
	}
	if c.json {
		return c.out.value(l)
	}
	return nil
}

// meter counts what is read through it.
type meter struct {
	r io.Reader
	n int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	return n, err
}
