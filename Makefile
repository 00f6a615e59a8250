# Each target is one line that you can type. Variables: FUZZTIME (per fuzz
# target), GOTESTFLAGS (for go test), STAG_NEED (what must not be skipped).
FUZZTIME ?= 10s
.PHONY: all generate test demo interop fuzz bench man lint clean

all: generate lint test

generate:
	go generate ./...

test:
	go vet ./... && go test $(GOTESTFLAGS) ./...

demo:
	go run ./cmd/stag demo

# The peer of this stage is the kernel's TCP; peers that speak RDMA and iSCSI come later.
interop:
	go test -v -count=1 ./test/e2e/...

fuzz:
	bash test/fuzz.sh $(FUZZTIME)

bench:
	go test -p 1 -run '^$$' -bench . -benchmem ./... && go run ./test/bench

# Manual pages of section 8, and what shells complete the command line with.
man:
	go build -o bin/stag ./cmd/stag && bin/stag man -o bin/man && for s in bash zsh fish; do bin/stag completion $$s > bin/stag.$$s || exit 1; done

lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)" && go vet ./... && go tool staticcheck ./...

clean:
	rm -rf bin coverage.out && go clean -testcache
