// Command surehook delivers webhooks that arrive.
package main

import (
	"context"
	"os"

	"github.com/surehook/surehook/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), cli.Process()))
}
