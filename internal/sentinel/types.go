package sentinel

import (
	"slices"
	"strings"

	"github.com/surehook/surehook"
)

// pullTypes are what a watch on GitHub asks for unless it says otherwise.
var pullTypes = []string{
	"github.check_suite.completed", "github.workflow_run.completed", "github.pull_request_review.submitted",
	"github.pull_request.closed", "github.pull_request.synchronize", "github.issue_comment.created",
}

// DefaultTypes are the types of a subject's events that a clause without types asks
// for: of a subject of GitHub's those about pull requests, of any other every type
// (nil).
func DefaultTypes(subject string) []string {
	if strings.HasPrefix(surehook.FoldSubject(subject), "github:") {
		return slices.Clone(pullTypes)
	}
	return nil
}
