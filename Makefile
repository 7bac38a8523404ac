# Surehook: everything a developer runs. `make` alone prints this help.
GO     ?= go
LINT_V := v2.15.0
export CGO_ENABLED = 0

.PHONY: help demo build test unit race lint fuzz bench proof clean

help: ## print this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## watch real events being delivered, signed, retried and accounted for
	$(GO) run ./cmd/surehook demo

build: ## build bin/surehook
	$(GO) build -trimpath -o bin/surehook ./cmd/surehook

test: vet unit race proof-short ## the whole suite, as CI runs it

.PHONY: vet proof-short
vet:
	$(GO) vet ./...
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

unit: ## unit, store, API, CLI and end-to-end tests
	$(GO) test -p 3 -timeout 15m -skip '^TestProof' ./...

RACED = ./internal/fanout ./internal/egress ./store/...
RACE = CGO_ENABLED=1 $(GO) test -race -short -timeout 15m

race: ## the packages that share memory, under the race detector (needs a C compiler)
	@command -v cc >/dev/null 2>&1 || { echo "installing gcc"; apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
	@# The tests wait more than they work: once built, three runs at a time.
	$(RACE) -run '^$$' $(RACED) ./internal/dispatch ./engine >/dev/null
	@# Go's race detector crashes when two threads run timers of one synctest bubble at
	@# once: the dispatcher's tests, which are such bubbles, have one processor.
	($(RACE) -skip '^TestStore' $(RACED) && $(RACE) -cpu 1 ./internal/dispatch) & a=$$!; $(RACE) -run '^Test[A-N]' ./engine & b=$$!; $(RACE) -run '^Test[O-Z]' ./engine; c=$$?; \
	  wait $$a && wait $$b && exit $$c

proof-short: ## the proofs, reduced
	$(GO) test -timeout 10m -run 'TestProof' ./bench

proof: ## the long proofs: crashes, model, backlog (about half an hour)
	SUREHOOK_PROOF=full $(GO) test -timeout 60m -v -run 'TestProof' ./bench

bench: ## measure against a raw net/http loop, and print the table
	$(GO) run ./bench --postgres

fuzz: ## fuzz everything that parses, a minute each
	@for t in $$($(GO) list ./... ); do \
	  for f in $$($(GO) test -list '^Fuzz' $$t | grep '^Fuzz'); do \
	    echo "== $$t $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s $$t || exit 1; \
	  done; done

lint: ## strict lint (installs golangci-lint when it is missing)
	@command -v golangci-lint >/dev/null 2>&1 || test -x "$$($(GO) env GOPATH)/bin/golangci-lint" || \
	  $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_V)
	PATH="$$PATH:$$($(GO) env GOPATH)/bin" golangci-lint run ./...

clean: ## remove what was built
	rm -rf bin dist artifacts
