package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// offer lets the shell complete a flag's values. In a list it completes what
// stands after the last comma.
func offer(cc *cobra.Command, flag string, values ...string) {
	list := strings.HasSuffix(cc.Flags().Lookup(flag).Value.Type(), "Slice")
	// It is declared by then, and has no values yet: there is nothing to fail.
	_ = cc.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := ""
		if i := strings.LastIndexByte(typed, ','); list && i >= 0 {
			before = typed[:i+1]
		}
		out := make([]cobra.Completion, 0, len(values))
		for _, v := range values {
			if strings.HasPrefix(before+v, typed) && !strings.Contains(","+before, ","+v+",") {
				out = append(out, before+v)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}
